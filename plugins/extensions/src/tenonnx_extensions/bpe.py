"""Byte pair encoding: the tokenizers of GPT-2, RoBERTa, CLIP and Llama, and their decoder."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from tenonnx.extend import DType, TensorType, TypeMismatch, dtypes, limits, primitive
from tenonnx_extensions.checks import DOMAIN, integers, module, padded, parsed, strings
from tenonnx_standard.checking import numpy_rule

#: Words that CLIP splits off before encoding.
_CLIP_WORDS = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"


def _merges(title, merges):
    pairs = [tuple(line.split(" ")) for line in merges.split("\n") if line and not line.startswith("#version")]
    broken = next((pair for pair in pairs if len(pair) != 2), None)
    if broken is not None:
        raise TypeMismatch(f"{title}: a merge is not two tokens", given=" ".join(broken))
    return pairs


@lru_cache(maxsize=8)
def _made(op, vocab, merges, added_token):
    """The tokenizer of an op, and the padding id."""
    tokenizers = module("tokenizers", "text")
    ids = parsed(op, "vocab", vocab)
    if not all(isinstance(number, int) and 0 <= number < 2**32 for number in ids.values()):
        raise TypeMismatch(f'{op.title}: "vocab" does not map tokens to ids')
    start, end, unknown, pad = _SPECIAL[op.name]
    missing = [token for token in (start, end) if token is not None and token not in ids]
    if missing:
        raise TypeMismatch(f"{op.title}: the vocabulary has no token {missing[0]}", given=f"{len(ids)} tokens")
    pairs = _merges(op.title, merges)
    options: dict[str, str | bool] = {"unk_token": unknown} if unknown in ids else {}
    if op.name == "CLIPTokenizer":
        options |= {"end_of_word_suffix": "</w>"}
    if op.name == "SpmTokenizer":
        options |= {"byte_fallback": True, "fuse_unk": True}
    try:
        tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(ids, pairs, **options))
    except Exception as error:  # the library raises only this class
        raise TypeMismatch(f"{op.title}: vocabulary and merges do not match", given=str(error)) from error
    _prepare(tokenizers, tokenizer, op.name)
    if start is not None:
        tokenizer.post_processor = tokenizers.processors.RobertaProcessing(
            (end, ids[end]), (start, ids[start]), trim_offsets=op.name == "RobertaTokenizer", add_prefix_space=False
        )
    names = [line.rpartition("=")[0] for line in (added_token or "").split("\n") if "=" in line]
    tokenizer.add_special_tokens([name for name in names if name in ids])
    return tokenizer, ids.get(pad, 0)


#: Start, end, unknown and padding token of each op.
_SPECIAL = {
    "GPT2Tokenizer": (None, None, "<|endoftext|>", "<|endoftext|>"),
    "RobertaTokenizer": ("<s>", "</s>", "<unk>", "<pad>"),
    "CLIPTokenizer": ("<|startoftext|>", "<|endoftext|>", "<|endoftext|>", "<|endoftext|>"),
    "SpmTokenizer": (None, None, "<unk>", "<unk>"),
}


def _prepare(tokenizers, made, name):
    normalizers, pre = tokenizers.normalizers, tokenizers.pre_tokenizers
    if name == "CLIPTokenizer":
        spaces = normalizers.Replace(tokenizers.Regex(r"\s+"), " ")
        made.normalizer = normalizers.Sequence([normalizers.NFC(), spaces, normalizers.Lowercase()])
        words = pre.Split(tokenizers.Regex(_CLIP_WORDS), behavior="removed", invert=True)
        made.pre_tokenizer = pre.Sequence([words, pre.ByteLevel(add_prefix_space=False, use_regex=False)])
    elif name == "SpmTokenizer":
        made.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    else:
        made.pre_tokenizer = pre.ByteLevel(add_prefix_space=False)


def _encoded(op, text, vocab, merges, padding_length, added_token):
    """Ids, attention mask and offsets of strings; rows are padded or truncated to one length."""
    tokenizer, pad = _made(op, vocab, merges, added_token)
    found = tokenizer.encode_batch(text.reshape(-1).tolist())
    length = padding_length if padding_length > 0 else None
    ids = padded([each.ids for each in found], pad, length)
    mask = padded([each.attention_mask for each in found], 0, length)
    offsets = np.zeros((*ids.shape, 2), np.int64)
    for row, each in zip(offsets, found, strict=True):
        places = np.asarray(each.offsets, np.int64).reshape(-1, 2)[: ids.shape[1]]
        row[: len(places)] = places
    return ids, mask, offsets


def _tokenizer(name, doc, outputs=3):
    def declared(
        input_text, *, vocab: str, merges: str, padding_length=-1, added_token: str | None = None, model_name=""
    ):
        pass

    declared.__name__ = declared.__qualname__ = f"{name.removesuffix('Tokenizer').lower()}_tokenizer"
    declared.__doc__ = doc
    op = primitive(name, domain=DOMAIN)(declared)
    op.requires(dtypes(input_text="string"))

    @op.type
    def type_rule(input_text, **attributes):
        size = input_text.shape[0] if input_text.rank == 1 else None
        matrix = TensorType(DType.int64, (size, None))
        return (matrix, matrix, TensorType(DType.int64, (size, None, 2)))[:outputs]

    @numpy_rule(op)
    def rule(input_text, *, vocab, merges, padding_length, added_token, model_name):
        return _encoded(op, input_text, vocab, merges, padding_length, added_token)[:outputs]

    return op


_BOTH = "``vocab`` is a JSON object from token to id, ``merges`` has a pair of tokens a line."
gpt2_tokenizer = _tokenizer(
    "GPT2Tokenizer", f"Ids and attention mask of each string by byte pairs of bytes, as GPT-2. {_BOTH}", 2
)
roberta_tokenizer = _tokenizer(
    "RobertaTokenizer", f"Ids, attention mask and offsets of each string, as RoBERTa. {_BOTH}"
)
clip_tokenizer = _tokenizer("CLIPTokenizer", f"Ids, attention mask and offsets of each string, as CLIP. {_BOTH}")
spm_tokenizer = _tokenizer("SpmTokenizer", f"Ids, attention mask and offsets of each string, as Llama. {_BOTH}")


@primitive("HfJsonTokenizer", domain=DOMAIN)
def hf_json_tokenizer(text, *, tokenizer_vocab: str, tokenizer_config="{}"):
    """Ids, attention mask, and offsets of each string, equal to those of the Python package ``tokenizers``.

    ``tokenizer_vocab`` is the contents of any ``tokenizer.json``, ``tokenizer_config`` those of its
    ``tokenizer_config.json``. The former determines special tokens, truncation and padding. By default, rows are padded
    to the longest with the padding token of the configuration, or 0.
    """


hf_json_tokenizer.requires(dtypes(text="string"))


@hf_json_tokenizer.type
def hf_json_tokenizer_type(text, *, tokenizer_vocab, tokenizer_config):
    size = text.shape[0] if text.rank == 1 else None
    matrix = TensorType(DType.int64, (size, None))
    return matrix, matrix, TensorType(DType.int64, (size, None, 2))


@lru_cache(maxsize=8)
def of_json(title, contents, config):
    """The tokenizer for the contents of its files, without padding, and its padding settings.

    Raises ``TypeMismatch`` for contents that cannot be read.
    """
    tokenizers = module("tokenizers", "text")
    try:
        tokenizer = tokenizers.Tokenizer.from_str(contents)
    except Exception as error:  # the library raises only this class
        raise TypeMismatch(f"{title}: tokenizer_vocab is not a tokenizer.json", given=str(error)[:500]) from error
    padding = tokenizer.padding
    if padding is None:
        token = parsed(hf_json_tokenizer, "tokenizer_config", config).get("pad_token")
        token = token.get("content") if isinstance(token, dict) else token
        number = tokenizer.token_to_id(token) if isinstance(token, str) else None
        padding = {"pad_id": number or 0, "direction": "right", "length": None, "pad_to_multiple_of": None}
    tokenizer.no_padding()
    return tokenizer, padding


@numpy_rule(hf_json_tokenizer)
def hf_json_tokenizer_numpy(text, *, tokenizer_vocab, tokenizer_config):
    tokenizer, padding = of_json(hf_json_tokenizer.title, tokenizer_vocab, tokenizer_config)
    found = tokenizer.encode_batch(text.reshape(-1).tolist())
    width = max([padding["length"] or 0, *(len(each.ids) for each in found)])
    width += -width % (padding["pad_to_multiple_of"] or 1)
    shape = limits.sized((len(found), width), f"the ids of {hf_json_tokenizer.title}")
    ids, mask = np.full(shape, padding["pad_id"], np.int64), np.zeros(shape, np.int64)
    offsets = np.zeros((*shape, 2), np.int64)
    for row, each in enumerate(found):
        size = len(each.ids)
        place = slice(0, size) if padding["direction"] == "right" else slice(width - size, width)
        ids[row, place], mask[row, place] = each.ids, each.attention_mask
        offsets[row, place] = np.asarray(each.offsets, np.int64).reshape(-1, 2)
    return ids, mask, offsets


# ----- decoding -------------------------------------------------------------------------------------------------------


@primitive("BpeDecoder", domain=DOMAIN)
def bpe_decoder(
    ids,
    *,
    id_vocab: str,
    byte_decoder: str,
    added_tokens="",
    all_special_ids="",
    en_normalization=0,
    skip_special_tokens=0,
    whitespace_token=0,
    bos_token="<|endoftext|>",
    eos_token="<|endoftext|>",
    unk_token="<|endoftext|>",
):
    """Decode each row of ids to text.

    ``id_vocab`` has a line with the token of each id. ``byte_decoder`` has lines of a code point, a tab and the byte
    that it encodes; ``added_tokens`` has lines of an id, a tab and its text.
    """


bpe_decoder.requires(dtypes(ids="int64"))


@bpe_decoder.type
def bpe_decoder_type(ids, **attributes):
    shape = ids.tensor.shape
    return TensorType(DType.string, None if shape is None else shape[:-1] or (1,))


@lru_cache(maxsize=8)
def _vocabulary(id_vocab, byte_decoder, added_tokens, all_special_ids):
    pairs = [line.split("\t") for line in byte_decoder.split("\n") if line]
    added = [line.split("\t", 1) for line in added_tokens.split("\n") if "\t" in line]
    to_bytes = {chr(code): byte for code, byte in (integers(bpe_decoder, "byte_decoder", pair) for pair in pairs)}
    texts = dict(zip(integers(bpe_decoder, "added_tokens", [a for a, _ in added]), [b for _, b in added], strict=True))
    special = set(integers(bpe_decoder, "all_special_ids", all_special_ids.split()))
    return id_vocab.split("\n"), to_bytes, texts, special


@numpy_rule(bpe_decoder)
def bpe_decoder_numpy(ids, *, id_vocab, byte_decoder, added_tokens, all_special_ids, skip_special_tokens, **others):
    vocabulary, to_bytes, added, special = _vocabulary(id_vocab, byte_decoder, added_tokens, all_special_ids)
    rows = ids.reshape(-1, ids.shape[-1]) if ids.size else np.zeros((int(np.prod(ids.shape[:-1])), 0), np.int64)

    def text_of(row):
        parts = []
        for number in row:
            if number in special and skip_special_tokens:
                continue
            if number in added:
                parts.append(added[number].encode())
            elif 0 <= number < len(vocabulary):
                token = vocabulary[number]
                parts += [bytes([to_bytes[c]]) if c in to_bytes else c.encode("utf-8", "replace") for c in token]
            else:
                raise TypeMismatch(f"{bpe_decoder.title}: an id lies outside the vocabulary", given=str(number))
        return b"".join(parts).decode("utf-8", "replace")

    return strings([text_of(row) for row in rows.tolist()], ids.shape[:-1] or (1,))
