"""Cases of tokenizers, with vocabularies of a few words and all bytes."""

from __future__ import annotations

import json
import re

import numpy as np
from hypothesis import strategies as st

from tenonnx_extensions.bpe import (
    bpe_decoder,
    clip_tokenizer,
    gpt2_tokenizer,
    hf_json_tokenizer,
    roberta_tokenizer,
    spm_tokenizer,
)
from tenonnx_extensions.cases.library import kernel
from tenonnx_extensions.checks import strings
from tenonnx_extensions.trie import trie_detokenizer, trie_tokenizer
from tenonnx_extensions.wordpiece import (
    basic_tokenizer,
    bert_tokenizer,
    bert_tokenizer_decoder,
    hf_bert_tokenizer,
    wordpiece_tokenizer,
)
from tenonnx_testing import Gap, call, cases

TEXTS = [
    "",
    "hello world",
    "Hello, WORLD!",
    " it's 12  x",
    "na\u00efve \u4f60\u597d",
    "caf\u00e9 \U0001f600\n",
    "walking walk",
]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [*SPECIAL, "hello", "world", ",", "!", "walk", "##ing", "it", "'", "s", "\u4f60", "\u597d", "na", "##ive"]
VOCABULARY = "\n".join(WORDS)


def of_bytes():
    """GPT-2's characters for all bytes."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {byte: chr(byte) for byte in shown} | {byte: chr(256 + k) for k, byte in enumerate(hidden)}


BYTES = of_bytes()
MERGES = ["h e", "l l", "he ll", "hell o", "\u0120 w", "o r", "\u0120w or", "\u0120wor l", "\u0120worl d"]
TOKENS = ["<|endoftext|>", *(BYTES[byte] for byte in range(256)), *(merge.replace(" ", "") for merge in MERGES)]
IDS = {token: position for position, token in enumerate(TOKENS)}
PAIRS = {"vocab": json.dumps(IDS), "merges": "\n".join(MERGES)}
ROBERTA = PAIRS | {"vocab": json.dumps(IDS | {"<s>": 300, "</s>": 301, "<unk>": 302, "<pad>": 303})}
_OF_BYTES = ["<|startoftext|>", "<|endoftext|>", *BYTES.values(), *(f"{c}</w>" for c in BYTES.values())]
_CLIP = [*_OF_BYTES, "he", "ll", "hell", "hello</w>", "or", "wor", "worl", "world</w>"]
CLIP = {
    "vocab": json.dumps({token: k for k, token in enumerate(_CLIP)}),
    "merges": "\n".join(["h e", "l l", "he ll", "hell o</w>", "o r", "w or", "wor l", "worl d</w>"]),
}
_LLAMA = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", "h", "e", "l", "o", "he", "ll"]
LLAMA = {"vocab": json.dumps({token: k for k, token in enumerate(_LLAMA)}), "merges": "h e\nl l"}


def texts(draw, least=1, most=3):
    return strings(draw(st.lists(st.sampled_from(TEXTS), min_size=least, max_size=most)))


PLACES = Gap(
    "expected",
    "the library's offsets are wrong after white space, at the ends of a text and after removed characters",
    when=lambda call: any(
        not text or text != " ".join(text.split()) or not text.isascii() for text in call.inputs[0].reshape(-1)
    ),
)


KNOWN = {"hello", "world", ",", "!", "walk", "walking", "it", "'", "s", ""}
ENDS = Gap(
    "expected",
    "for a word with an unknown end the library returns the pieces before it, and tokenizers only the unknown token",
    when=lambda call: any(
        word not in KNOWN for text in call.inputs[0].reshape(-1) for word in re.split(r"(\W)|\s", text.lower()) if word
    ),
)


UNDRAWN = dict.fromkeys(
    (
        "do_lower_case",
        "do_basic_tokenize",
        "unk_token",
        "sep_token",
        "pad_token",
        "cls_token",
        "mask_token",
        "tokenize_chinese_chars",
        "suffix_indicator",
        "truncation_strategy_name",
        "max_length",
    ),
    "the tests have them",
)


@cases(
    bert_tokenizer,
    gradient=False,
    gaps=[PLACES, ENDS],
    reference=kernel("BertTokenizer", 4),
    undrawn=UNDRAWN,
)
def bert_tokenizer_cases(draw):
    strip = draw(st.integers(0, 1))
    return call(texts(draw, 1, 2), vocab_file=VOCABULARY, do_lower_case=1, strip_accents=strip)


@cases(hf_bert_tokenizer, gradient=False, gaps=[ENDS], reference=kernel("HfBertTokenizer", 3), undrawn=UNDRAWN)
def hf_bert_tokenizer_cases(draw):
    return call(texts(draw, 2, 2), vocab_file=VOCABULARY, do_lower_case=1, strip_accents=draw(st.integers(0, 1)))


@cases(
    basic_tokenizer,
    gradient=False,
    reference=kernel("BasicTokenizer"),
    undrawn={"remove_control_chars": "it has no effect"},
)
def basic_tokenizer_cases(draw):
    flags = ("do_lower_case", "tokenize_chinese_chars", "strip_accents", "tokenize_punctuation")
    return call(texts(draw, 1, 1), remove_control_chars=1, **{flag: draw(st.integers(0, 1)) for flag in flags})


@cases(
    wordpiece_tokenizer,
    gradient=False,
    reference=kernel("WordpieceTokenizer", 4),
    gaps=[
        Gap(
            "expected",
            "the library splits words with characters other than letters",
            when=lambda call: not all(word.isalpha() for word in call.inputs[0].reshape(-1)),
        )
    ],
    undrawn={"suffix_indicator": "the tests have it"},
)
def wordpiece_tokenizer_cases(draw):
    words = strings(["walking", "hello", "zzz"][: draw(st.integers(1, 3))])
    rows = draw(st.sampled_from([[], [0, len(words)]]))
    return call(
        words,
        np.asarray(rows, np.int64),
        vocab=json.dumps({word: k for k, word in enumerate(WORDS)}),
        unknown_token="[UNK]",
        suffix_indicator="##",
        max_input_chars_per_word=draw(st.sampled_from([5, 100])),
    )


@cases(
    bert_tokenizer_decoder,
    gradient=False,
    reference=kernel("BertTokenizerDecoder"),
    undrawn=dict.fromkeys(
        (
            "unk_token",
            "sep_token",
            "pad_token",
            "cls_token",
            "mask_token",
            "suffix_indicator",
            "clean_up_tokenization_spaces",
        ),
        "the tests have them",
    ),
)
def bert_tokenizer_decoder_cases(draw):
    ids = np.asarray([2, 5, 6, 9, 10, 3][: draw(st.integers(2, 6))])
    spans, used = np.asarray([[0, 1], [1, 2]]), draw(st.integers(0, 1))
    return call(ids, spans, vocab_file=VOCABULARY, use_indices=used, skip_special_tokens=draw(st.integers(0, 1)))


_NAMES = {"added_token": "the tests have it", "model_name": "it has no effect"}


@cases(gpt2_tokenizer, gradient=False, reference=kernel("GPT2Tokenizer", 2), undrawn=_NAMES)
def gpt2_tokenizer_cases(draw):
    return call(texts(draw), padding_length=draw(st.sampled_from([-1, 3, 20])), **PAIRS)


@cases(roberta_tokenizer, gradient=False, reference=kernel("RobertaTokenizer", 2), undrawn=_NAMES)
def roberta_tokenizer_cases(draw):
    return call(texts(draw), padding_length=draw(st.sampled_from([-1, 20])), _outputs=2, **ROBERTA)


@cases(clip_tokenizer, gradient=False, undrawn=_NAMES)
def clip_tokenizer_cases(draw):
    return call(texts(draw), padding_length=draw(st.sampled_from([-1, 20])), **CLIP)


@cases(spm_tokenizer, gradient=False, undrawn=_NAMES)
def spm_tokenizer_cases(draw):
    return call(texts(draw), padding_length=draw(st.sampled_from([-1, 20])), **LLAMA)


def tokenizer_json():
    model: dict[str, object] = {
        "type": "BPE",
        "unk_token": None,
        "vocab": IDS,
        "merges": [merge.split(" ") for merge in MERGES],
    }
    model |= dict.fromkeys(("dropout", "continuing_subword_prefix", "end_of_word_suffix"))
    model |= {"fuse_unk": False, "byte_fallback": False, "ignore_merges": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    parts = dict.fromkeys(("truncation", "padding", "normalizer", "post_processor"))
    return {"version": "1.0", **parts, "added_tokens": [], "pre_tokenizer": level, "decoder": level, "model": model}


@cases(hf_json_tokenizer, gradient=False, reference=kernel("HfJsonTokenizer", 2))
def hf_json_tokenizer_cases(draw):
    config = json.dumps({"tokenizer_class": "GPT2Tokenizer", "pad_token": "<|endoftext|>"})
    return call(texts(draw), tokenizer_vocab=json.dumps(tokenizer_json()), tokenizer_config=config, _outputs=2)


@cases(
    bpe_decoder,
    gradient=False,
    reference=kernel("BpeDecoder"),
    undrawn=dict.fromkeys(("en_normalization", "whitespace_token", "bos_token", "eos_token", "unk_token"), "no effect"),
)
def bpe_decoder_cases(draw):
    ids = draw(st.lists(st.sampled_from([0, 73, 106, 257, 260, 265]), min_size=1, max_size=5))
    return call(
        np.asarray(ids),
        id_vocab="\n".join(TOKENS),
        byte_decoder="\n".join(f"{ord(character)}\t{byte}" for byte, character in BYTES.items()),
        added_tokens="0\t<|endoftext|>",
        all_special_ids="0",
        skip_special_tokens=draw(st.integers(0, 1)),
    )


#: Tokens of bytes, characters and words, like in RWKV vocabularies.
_TRIE = [*(bytes([byte]) for byte in range(256)), "he", "hello", " world", "\u4f60", "ll"]
TRIE = "\n".join(
    f"{k} {token!r} {len(token.encode() if isinstance(token, str) else token)}" for k, token in enumerate(_TRIE, 1)
)


@cases(trie_tokenizer, gradient=False, reference=kernel("TrieTokenizer"))
def trie_tokenizer_cases(draw):
    return call(strings(draw(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=4))), vocab=TRIE)


@cases(trie_detokenizer, gradient=False, reference=kernel("TrieDetokenizer"))
def trie_detokenizer_cases(draw):
    rows = draw(st.lists(st.sampled_from([[105, 0], [257, 34], [258, 259], [0, 260], [196, 165]]), min_size=1))
    return call(np.asarray(rows), vocab=TRIE)
