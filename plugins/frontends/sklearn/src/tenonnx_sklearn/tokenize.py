"""Tokenization of strings into words and characters, like scikit-learn's analyzers.

No runtime op lowercases or strips accents portably. So strings are split unchanged, and each character is mapped to the
integers of its normalized form, as far as the vocabulary contains these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Value
from tenonnx_contrib_ms.text import tokenizer
from tenonnx_onnx_ml.encoders import label_encoder

#: Whitespace of Python's str.split, and word characters of Python's re, as RE2 classes.
SPACES = r"\t\n\x0b\f\r\x1c-\x1f \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}"
LETTERS = r"\p{L}\p{N}_"


def one_more(texts: Value) -> Value:
    """Append an empty string, since kernels fail without rows."""
    return ops.concat(texts, np.asarray([""], object), axis=0)


def pieces(texts: Value, expression: str) -> Value:
    """Matches of a regular expression in each string: ``string[texts, most]``, padded with empty strings."""
    return _wider(tokenizer(texts, mark=0, mincharnum=1, pad_value="", tokenexp=expression))


def letters(texts: Value) -> Value:
    """The characters of each string: ``string[texts, most]``, padded with empty strings."""
    return _wider(tokenizer(texts, mark=0, mincharnum=1, pad_value="", separators=[""]))


def _wider(tokens: Value) -> Value:
    """Prepend an empty column, since all strings may be empty; onnx infers the type of tokens from it."""
    rows = ops.concat(ops.shape(tokens, start=0, end=1), np.array([1], np.int64), axis=0)
    blank = ops.expand(np.asarray([[""]], object), rows)
    limits = np.array([1], np.int64), np.array([1 << 40], np.int64), np.array([1], np.int64)
    return ops.slice_(ops.concat(blank, tokens, blank, axis=1), *limits)


def packed(codes: Value) -> Value:
    """Move the zeros of each row of integers to the end, keeping the order of the others."""
    width = ops.shape(codes, start=1, end=2)
    places = ops.range_(np.int64(0), ops.squeeze(width, np.array([0], np.int64)), np.int64(1))
    keys = ops.where(ops.equal(codes, np.int64(0)), places + 1_000_000_000, places)
    _, order = ops.top_k(keys, width, axis=1, largest=0)
    return ops.gather_elements(codes, order, axis=1)


@dataclass(frozen=True)
class Charset:
    """Normalization of characters: ``fold`` maps each to a string; ``alphabet`` are those in the vocabulary."""

    fold: Callable[[str], str]
    alphabet: tuple[str, ...]

    @classmethod
    def of(cls, fold: Callable[[str], str], texts: Iterable[str]) -> Charset:
        return cls(fold, tuple(sorted({each for text in texts for each in text})))

    @cached_property
    def changes(self) -> bool:
        """Whether normalization maps any character to a different one in the alphabet."""
        return any(key != value for key, value in self._entries.items())

    @cached_property
    def _entries(self) -> dict[str, str]:
        """Characters that are mapped to a character in the alphabet, to nothing, or to several."""
        known, result = set(self.alphabet), {}
        for number in range(0x20000):
            if not 0xD800 <= number < 0xE000:
                folded = self.fold(chr(number))
                if len(folded) != 1 or folded in known:
                    result[chr(number)] = folded
        result |= {each: each for each in known if ord(each) >= 0x20000}
        return result

    def code(self, text: str) -> list[int]:
        """The integers of a normalized string; 1 for characters outside of the alphabet."""
        places = {each: k for k, each in enumerate(self.alphabet, 2)}
        return [places.get(each, 1) for each in text]

    def codes(self, characters: Value) -> Value:
        """``int64[rows, most]`` for ``string[rows, characters]``, padded with zeros."""
        dropped = [key for key, folded in self._entries.items() if not folded]
        ascii_alone = len(dropped) > 0x8000
        entries = {key: made for key, made in self._entries.items() if made or not ascii_alone}
        if ascii_alone:
            entries |= {chr(number): self.fold(chr(number)) for number in range(128)}
        slots = max(1, *map(len, entries.values())) if entries else 1
        table = np.zeros((len(entries) + 2, slots), np.int64)
        for row, made in enumerate(entries.values()):
            table[row, : len(made)] = self.code(made)
        table[len(entries), 0] = 0 if ascii_alone else 1
        keys = [*entries, ""]
        places = [*range(len(entries)), len(entries) + 1]
        rows = label_encoder(characters, keys_strings=keys, values_int64s=places, default_int64=len(entries))
        result = ops.gather(table, rows, axis=0)
        result = ops.reshape(result, np.array([0, -1], np.int64)) if slots > 1 else ops.squeeze(result, np.array([2]))
        return packed(result) if slots > 1 or not all(entries.values()) else result


def named(words: Value, charset: Charset, names: dict[str, int], shortest: int = 1) -> Value:
    """The integer of each word of ``string[rows, most]``: 0 for empty or too short words, -1 for unknown ones."""
    if not charset.changes:
        keys, values = ["", *names], [0, *names.values()]
        return label_encoder(words, keys_strings=keys, values_int64s=values, default_int64=-1)
    distinct, _, places, _ = ops.unique(words)
    codes = charset.codes(letters(distinct))
    longest = max(map(len, names), default=0) + 1
    width = np.array([0, 0, 0, longest], np.int64)
    limits = np.array([0], np.int64), np.array([longest], np.int64), np.array([1], np.int64)
    codes = ops.slice_(ops.pad(codes, width), *limits)
    one, two = (_looked_up(codes, longest, names, charset, seed) for seed in (0, 1000))
    found = ops.where(ops.equal(one, two), one, np.int64(-1))
    if shortest > 1:
        length = ops.reduce_sum(ops.cast(codes > 0, to=DType.int64), np.array([1], np.int64), keepdims=0)
        found = ops.where(length < shortest, np.int64(0), found)
    return ops.reshape(ops.gather(found, places, axis=0), ops.shape(words))


def _looked_up(codes: Value, longest: int, names: dict[str, int], charset: Charset, seed: int) -> Value:
    """Look up rows of codes by a random linear hash, exact in float64, since kernels sum in float64.

    Unknown words may collide with known ones in one hash; in two hashes they do so about once in 2**60.
    """
    words = np.zeros((len(names), longest), np.int64)
    for row, word in zip(words, names, strict=True):
        row[: len(word)] = charset.code(word)
    while True:
        factors = np.random.default_rng(seed).integers(1, (1 << 52) // (longest * (len(charset.alphabet) + 2)), longest)
        sums = (words * factors).sum(axis=1)
        if len({0, *sums.tolist()}) == len(names) + 1:
            break
        seed += 1
    keys = ops.reduce_sum(codes * factors[None], np.array([1], np.int64), keepdims=0)
    return label_encoder(keys, keys_int64s=[0, *sums.tolist()], values_int64s=[0, *names.values()], default_int64=-1)


def distinct_letters(words: Value) -> tuple[Value, Value]:
    """The characters of each distinct word, and the index of the distinct word for each word."""
    distinct, _, places, _ = ops.unique(words)
    return letters(distinct), ops.reshape(places, ops.shape(words))


def fold_of(model: Any) -> Callable[[str], str]:
    """The character normalization of an analyzer's preprocessor."""
    preprocessor = model.build_preprocessor()
    return lambda character: str(preprocessor(character))
