"""Decoding of tokens to text as a graph, from the files of Hugging Face and SentencePiece."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Graph, NotRepresentable, Value
from tenonnx_extensions.bpe import bpe_decoder
from tenonnx_extensions.checks import DOMAIN, module, strings
from tenonnx_extensions.pipelines.files import settings
from tenonnx_extensions.pipelines.tokenizer import FAIRSEQ, file_of, marian_vocabulary, read_json, read_sentencepiece
from tenonnx_extensions.regex import string_regex_replace
from tenonnx_extensions.strings import string_join

#: Patterns whose matches are removed from joined tokens; the first one that equals the library is used.
_STRIPPED = ("", "^ ", "^ +", r"^\s+|\s+$")

#: Replacements of ``clean_up_tokenization_spaces`` in transformers, in order.
_CLEAN = [
    *((f" {mark}", mark) for mark in (".", "?", "!", ",")),
    (" ' ", "'"),
    *((f" {ending}", ending) for ending in ("n't", "'m", "'s", "'ve", "'re")),
]

#: Number and length of the random rows on which tables are compared with the library.
_ROWS, _LENGTH = 300, 12

#: Number of tokens that differ at the start of a row of which all pairs are compared, too.
_AT_START = 30

Decode = Callable[[Sequence[int]], str]


class _Table(NamedTuple):
    """The text of each token as the first of a row and elsewhere, and the pattern that is removed from the whole."""

    first: list[str]
    later: list[str]
    stripped: str


def detokenizer(path: str | os.PathLike[str]) -> Graph:
    """The graph from ``sequences``, int64[batch, tokens], to ``generated_text``, string[batch].

    ``path`` is that of a tokenizer, as for ``tokenizer``, or of a folder with one. Special tokens are skipped, as with
    ``skip_special_tokens=True`` in transformers, and tokens without a text. Byte-level tokens become BpeDecoder; others
    are joined from a table, after a comparison with the library on random rows. Raises ``InvalidModel`` for a file that
    cannot be read, and ``NotRepresentable`` for a tokenizer whose tokens have no fixed text.
    """
    file = file_of(Path(path))
    beside = file.parent / "tokenizer_config.json"
    config = settings(beside) if beside.is_file() else {}
    graph = Graph("detokenizer", opsets={"ai.onnx": 21, DOMAIN: 1})
    sequences = graph.input("sequences", "int64", ("batch", "tokens"))
    with graph.building():
        graph.output("generated_text", _decoded(sequences, file, config))
    return graph


def _decoded(sequences: Value, file: Path, config: dict[str, Any]) -> Value:
    if file.suffix in (".model", ".spm"):
        if config.get("separate_vocabs"):
            raise NotRepresentable("unsupported setting of the tokenizer: separate_vocabs", given="true")
        decode, special, count = _of_sentencepiece(file, config)
        return _joined(sequences, _table(decode, special, count, file), special)
    tokenizer = module("tokenizers", "text").Tokenizer.from_str(read_json(file, config, None))
    special = {number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    count = max(tokenizer.get_vocab().values(), default=-1) + 1
    kinds = _kinds(json.loads(tokenizer.to_str()).get("decoder"))
    if "ByteLevel" in kinds:
        text = _of_bytes(sequences, tokenizer, special, count)
    else:

        def decode(row: Sequence[int]) -> str:
            return str(tokenizer.decode(list(row), skip_special_tokens=True))

        text = _joined(sequences, _table(decode, special, count, file), special)
    if config.get("clean_up_tokenization_spaces") and type(tokenizer.model).__name__ != "BPE":
        for mark, without in _CLEAN:
            text = _replaced(text, mark.replace("?", r"\?").replace(".", r"\."), without)
    return text


def _kinds(decoder: Any) -> list[str]:
    """The classes of a decoder and of its parts."""
    if not isinstance(decoder, dict):
        return []
    return [str(decoder.get("type")), *(kind for part in decoder.get("decoders", ()) for kind in _kinds(part))]


def _replaced(text: Value, pattern: str, rewrite: str) -> Value:
    replaced: Value = string_regex_replace(text, strings([pattern]), strings([rewrite]))
    return replaced


# ----- tables ---------------------------------------------------------------------------------------------------------


def _of_sentencepiece(file: Path, config: dict[str, Any]) -> tuple[Decode, set[int], int]:
    """The function that decodes, the tokens that it skips, and the number of tokens."""
    processor = read_sentencepiece(file)
    if file.suffix == ".model":
        shift = 1 if config.get("tokenizer_class") in FAIRSEQ else 0
        count = processor.get_piece_size() + shift
        usual = {number for number in range(4 * shift, count) if not _is_special(processor, number - shift)}
        special = set(range(count)).difference(usual)
        return lambda row: str(processor.decode([number - shift for number in row if number in usual])), special, count
    vocabulary, special = marian_vocabulary(file)
    pieces = {number: piece for piece, number in vocabulary.items()}

    def decode(row: Sequence[int]) -> str:
        kept = [pieces[number] for number in row if number in pieces and number not in special]
        return str(processor.decode_pieces(kept)).replace("\u2581", " ").strip()

    return decode, special, max(pieces) + 1


def _is_special(processor: Any, number: int) -> bool:
    return bool(processor.is_control(number) or processor.is_unknown(number))


def _table(decode: Decode, special: set[int], count: int, file: Path) -> _Table:
    """The text of each token. Raises ``NotRepresentable`` if the library joins tokens otherwise."""
    drawn = np.random.default_rng(0)
    usual = [number for number in range(count) if number not in special]
    first = ["" if number in special else decode([number]) for number in range(count)]
    anchor = next((number for number in usual if first[number].strip().isalnum()), None)
    if anchor is not None:
        size = len(first[anchor])
        later = ["" if number in special else decode([anchor, number, anchor])[size:] for number in range(count)]
        end = len(decode([anchor, anchor])) - size
        later = [text[: len(text) - end] if text else "" for text in later]
        rows = [drawn.choice(usual, 1 + k % _LENGTH).tolist() for k in range(_ROWS)]
        at_start = sorted((k for k in usual if first[k] != later[k]), key=lambda k: len(later[k]))[:_AT_START]
        rows += [[one, other] for one in at_start for other in at_start]
        expected = [decode(row) for row in rows]
        for stripped in _STRIPPED:
            result = _Table(later if stripped else first, later, stripped)
            if all(_text(result, row) == text for row, text in zip(rows, expected, strict=True)):
                return result
    raise NotRepresentable(
        f'the tokens of "{file}" have no fixed text, such as bytes of characters',
        available="byte-level tokens, and tokens whose texts are joined",
    )


def _text(table: _Table, row: Sequence[int]) -> str:
    whole = "".join((table.later if k else table.first)[number] for k, number in enumerate(row))
    return re.sub(table.stripped, "", whole) if table.stripped else whole


def _joined(sequences: Value, table: _Table, special: set[int]) -> Value:
    count = len(table.first)
    inside = ops.clip(sequences, np.int64(0), np.int64(count))  # token IDs beyond the vocabulary have no text
    texts = ops.gather(strings([*table.later, ""]), inside)
    if table.first != table.later:
        is_usual = np.array([number not in special for number in range(count)] + [False])
        usual = ops.gather(is_usual, inside)
        is_first = ops.and_(usual, ops.equal(ops.cumsum(ops.cast(usual, to=DType.int64), np.int64(1)), np.int64(1)))
        texts = ops.where(is_first, ops.gather(strings([*table.first, ""]), inside), texts)
    text: Value = string_join(texts, strings([""]), np.array([1]))
    return _replaced(text, table.stripped, "") if table.stripped else text


def _of_bytes(sequences: Value, tokenizer: Any, special: set[int], count: int) -> Value:
    """The text of byte-level tokens."""
    alphabet = _alphabet()
    characters = {byte: character for character, byte in alphabet.items()}
    tokens = []
    for number in range(count):
        token = "" if number in special else tokenizer.id_to_token(number) or ""
        if not all(character in alphabet for character in token):  # an added token is text
            token = "".join(characters[byte] for byte in token.encode())
        tokens.append(token)
    inside = ops.clip(sequences, np.int64(0), np.int64(count))
    decoded: Value = bpe_decoder(
        inside,
        id_vocab="\n".join([*tokens, ""]),
        byte_decoder="\n".join(f"{ord(character)}\t{byte}" for character, byte in alphabet.items()),
    )
    return decoded


def _alphabet() -> dict[str, int]:
    """The byte of each character of byte-level tokens: printable ones of Latin-1 are themselves."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + k): byte for k, byte in enumerate(others)}
