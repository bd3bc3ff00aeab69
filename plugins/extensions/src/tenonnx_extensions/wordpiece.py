"""WordPiece: BERT tokenizers, their stages, and their decoder."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from tenonnx.extend import DType, TensorType, TypeMismatch, dtypes, primitive
from tenonnx_extensions.checks import DOMAIN, module, parsed, strings
from tenonnx_standard.checking import numpy_rule


def _words(do_lower_case, strip_accents, tokenize_chinese_chars):
    """BERT's normalizer and pre-tokenizer."""
    tokenizers = module("tokenizers", "text")
    normalizer = tokenizers.normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=bool(tokenize_chinese_chars),
        strip_accents=bool(strip_accents),
        lowercase=bool(do_lower_case),
    )
    return normalizer, tokenizers.pre_tokenizers.BertPreTokenizer()


@lru_cache(maxsize=8)
def _bert(title, vocab, do_lower_case, strip_accents, tokenize_chinese_chars, basic, unk, cls, sep, suffix, max_length):
    """The tokenizer for a vocabulary with a token per line. Raises ``TypeMismatch`` if a special token is missing."""
    tokenizers = module("tokenizers", "text")
    ids = {token: position for position, token in enumerate(vocab.split("\n")) if token}
    missing = [token for token in (unk, cls, sep) if token not in ids]
    if missing:
        raise TypeMismatch(f"{title}: the vocabulary has no token {missing[0]}", given=f"{len(ids)} tokens")
    model = tokenizers.models.WordPiece(
        ids, unk_token=unk, continuing_subword_prefix=suffix, max_input_chars_per_word=100
    )
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer, words = _words(do_lower_case, strip_accents, tokenize_chinese_chars)
    tokenizer.pre_tokenizer = words if basic else tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = tokenizers.processors.BertProcessing((sep, ids[sep]), (cls, ids[cls]))
    if max_length > 0:
        tokenizer.enable_truncation(max_length)
    return tokenizer


def _encoded(title, text, attributes):
    """The encoding of one text, or of a pair."""
    a = attributes
    tokenizer = _bert(
        title,
        a["vocab_file"],
        a["do_lower_case"],
        a["strip_accents"],
        a["tokenize_chinese_chars"],
        a["do_basic_tokenize"],
        a["unk_token"],
        a["cls_token"],
        a["sep_token"],
        a["suffix_indicator"],
        a["max_length"],
    )
    return tokenizer.encode(*text.reshape(-1).tolist())


@primitive("BertTokenizer", domain=DOMAIN)
def bert_tokenizer(
    text,
    *,
    vocab_file: str,
    do_lower_case=1,
    do_basic_tokenize=1,
    unk_token="[UNK]",
    sep_token="[SEP]",
    pad_token="[PAD]",
    cls_token="[CLS]",
    mask_token="[MASK]",
    tokenize_chinese_chars=1,
    strip_accents=0,
    suffix_indicator="##",
    truncation_strategy_name="longest_first",
    max_length=-1,
):
    """Ids, token types, mask and offsets of a text or a pair, as one row each, like transformers' BertTokenizer.

    ``vocab_file`` is the contents of the vocabulary, a token per line. Special tokens in the text are not recognized.
    """


@primitive("HfBertTokenizer", domain=DOMAIN)
def hf_bert_tokenizer(
    text,
    *,
    vocab_file: str,
    do_lower_case=1,
    do_basic_tokenize=1,
    unk_token="[UNK]",
    sep_token="[SEP]",
    pad_token="[PAD]",
    cls_token="[CLS]",
    mask_token="[MASK]",
    tokenize_chinese_chars=1,
    strip_accents=0,
    suffix_indicator="##",
    truncation_strategy_name="longest_first",
    max_length=-1,
):
    """Ids, attention mask and token types of a pair of texts, each as a matrix of one row."""


def check_texts(op, text, counts):
    """Raise ``TypeMismatch`` unless the number of strings is one of ``counts``."""
    if text.size not in counts:
        allowed = " or ".join(map(str, counts))
        raise TypeMismatch(f"{op.title}: text does not have {allowed} strings", given=f"shape {list(text.shape)}")


bert_tokenizer.requires(dtypes(text="string"))
hf_bert_tokenizer.requires(dtypes(text="string"))


@bert_tokenizer.type
def bert_tokenizer_type(text, **attributes):
    row = TensorType(DType.int64, (None,))
    return row, row, row, TensorType(DType.int64, (None, 2))


@hf_bert_tokenizer.type
def hf_bert_tokenizer_type(text, **attributes):
    return (TensorType(DType.int64, (1, None)),) * 3


@numpy_rule(bert_tokenizer)
def bert_tokenizer_numpy(text, **attributes):
    check_texts(bert_tokenizer, text, (1, 2))
    found = _encoded(bert_tokenizer.title, text, attributes)
    offsets = np.asarray(found.offsets, np.int64).reshape(-1, 2)
    return (*(np.asarray(row, np.int64) for row in (found.ids, found.type_ids, found.attention_mask)), offsets)


@numpy_rule(hf_bert_tokenizer)
def hf_bert_tokenizer_numpy(text, **attributes):
    check_texts(hf_bert_tokenizer, text, (2,))
    found = _encoded(hf_bert_tokenizer.title, text, attributes)
    return tuple(np.asarray([row], np.int64) for row in (found.ids, found.attention_mask, found.type_ids))


# ----- stages ---------------------------------------------------------------------------------------------------------


@primitive("BasicTokenizer", domain=DOMAIN)
def basic_tokenizer(
    text,
    *,
    do_lower_case=1,
    tokenize_chinese_chars=1,
    strip_accents=0,
    tokenize_punctuation=0,
    remove_control_chars=1,
):
    """The words of a text, split like BERT before WordPiece; punctuation apart if ``tokenize_punctuation``."""


basic_tokenizer.requires(dtypes(text="string"))


@basic_tokenizer.type
def basic_tokenizer_type(text, **attributes):
    return TensorType(DType.string, (None,))


@numpy_rule(basic_tokenizer)
def basic_tokenizer_numpy(
    text, *, do_lower_case, tokenize_chinese_chars, strip_accents, tokenize_punctuation, remove_control_chars
):
    check_texts(basic_tokenizer, text, (1,))
    normalizer, words = _words(do_lower_case, strip_accents, tokenize_chinese_chars)
    if not tokenize_punctuation:
        words = module("tokenizers", "text").pre_tokenizers.WhitespaceSplit()
    normal = normalizer.normalize_str(text.reshape(-1)[0])
    return strings([word for word, _ in words.pre_tokenize_str(normal)])


@primitive("WordpieceTokenizer", domain=DOMAIN)
def wordpiece_tokenizer(
    text, row_indices, *, vocab: str, unknown_token: str, suffix_indicator="##", max_input_chars_per_word=200
):
    """Split words into pieces: returns the pieces, the index of the first piece of each row, and the ends of rows.

    ``vocab`` is a JSON object from token to id; ``row_indices`` has the index of the first word of each row, or is
    empty. As in the runtime's library, rows end before the first one that does not start after its predecessor.
    """


wordpiece_tokenizer.requires(dtypes(text="string", row_indices="int64"))


@wordpiece_tokenizer.type
def wordpiece_tokenizer_type(text, row_indices, **attributes):
    row = TensorType(DType.int64, (None,))
    return TensorType(DType.string, (None,)), row, row, row


@numpy_rule(wordpiece_tokenizer)
def wordpiece_tokenizer_numpy(text, row_indices, *, vocab, unknown_token, suffix_indicator, max_input_chars_per_word):
    words = text.reshape(-1).tolist()
    known = parsed(wordpiece_tokenizer, "vocab", vocab)
    rows = row_indices.reshape(-1).tolist() or list(range(len(words) + 1))
    if any(not 0 <= row <= len(words) for row in rows):
        raise TypeMismatch(f"{wordpiece_tokenizer.title}: row_indices lie outside the words", given=str(rows[:10]))
    pieces, begins = [], [0]
    for word in words:
        pieces += _pieces(word, known, unknown_token, suffix_indicator, max_input_chars_per_word)
        begins.append(len(pieces))
    rising = next((k for k in range(1, len(rows)) if rows[k] <= rows[k - 1]), len(rows))
    starts = np.asarray([*(begins[row] for row in rows[:rising] if row < len(words)), len(pieces)], np.int64)
    return strings(pieces), starts, starts[:-1], starts[1:]


def _pieces(word, known, unknown, suffix, longest):
    """Split a word greedily into the longest known prefixes, or return the unknown token."""
    if len(word) > longest:
        return [unknown]
    result, start = [], 0
    while start < len(word):
        head = suffix if start else ""
        end = next((end for end in range(len(word), start, -1) if head + word[start:end] in known), None)
        if end is None:
            return [unknown]
        result.append(head + word[start:end])
        start = end
    return result


@primitive("BertTokenizerDecoder", domain=DOMAIN)
def bert_tokenizer_decoder(
    ids,
    position,
    *,
    vocab_file: str,
    unk_token="[UNK]",
    sep_token="[SEP]",
    pad_token="[PAD]",
    cls_token="[CLS]",
    mask_token="[MASK]",
    suffix_indicator="##",
    use_indices=0,
    skip_special_tokens=0,
    clean_up_tokenization_spaces=1,
):
    """Decode ids to text, or with ``use_indices`` to a text for each start and end in ``position``."""


bert_tokenizer_decoder.requires(dtypes(ids="int64", position="int64"))


@bert_tokenizer_decoder.type
def bert_tokenizer_decoder_type(ids, position, **attributes):
    return TensorType(DType.string, (None,))


@numpy_rule(bert_tokenizer_decoder)
def bert_tokenizer_decoder_numpy(
    ids,
    position,
    *,
    vocab_file,
    suffix_indicator,
    use_indices,
    skip_special_tokens,
    clean_up_tokenization_spaces,
    **tokens,
):
    vocabulary = vocab_file.split("\n")
    flat = ids.reshape(-1).tolist()
    if any(not 0 <= each < len(vocabulary) for each in flat):
        raise TypeMismatch(
            f"{bert_tokenizer_decoder.title}: ids lie outside the vocabulary of {len(vocabulary)} tokens"
        )
    decoder = module("tokenizers", "text").decoders.WordPiece(suffix_indicator, bool(clean_up_tokenization_spaces))
    special = set(tokens.values()) if skip_special_tokens else set()
    spans = position.reshape(-1, 2).tolist() if use_indices else [(0, len(flat))]
    if any(not 0 <= start <= end <= len(flat) for start, end in spans):
        raise TypeMismatch(f"{bert_tokenizer_decoder.title}: positions lie outside the ids", given=str(spans[:5]))
    texts = []
    for start, end in spans:
        pieces = [vocabulary[each] for each in flat[start:end]]
        texts.append(decoder.decode([piece for piece in pieces if piece not in special]))
    return strings(texts)
