"""Lookup tables of strings (string to string, string to vector, vector to string), and selection by a mask."""

from __future__ import annotations

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, TypeMismatch, constant, dtypes, op, shapes
from tenonnx_extensions.checks import DOMAIN, integers, strings, table


def _found(matches, missing):
    """Index of the match along the last axis of a mask with at most one match each, and whether there is one."""
    position = ops.argmax(ops.cast(matches, to=DType.int32), axis=-1, keepdims=0)
    return position, ops.cast(ops.reduce_max(ops.cast(matches, to=DType.int32), [-1], keepdims=0), to=DType.bool)


def _matches(X, keys):
    return ops.equal(ops.unsqueeze(X, [-1]), constant(strings(list(keys))))


@op("StringMapping", domain=DOMAIN, grows_text=True)
def string_mapping(input, *, map: str):
    """Replace strings by a lookup table; others stay. ``map`` has lines of key, tab, value."""
    entries = table(string_mapping, map)
    if not entries:
        return ops.identity(input)
    position, known = _found(_matches(input, entries), input)
    return ops.where(known, ops.gather(constant(strings(list(entries.values()))), position), input)


string_mapping.requires(dtypes(input="string"))


@op("StringToVector", domain=DOMAIN)
def string_to_vector(text, *, map: str, unk: str):
    """Replace each string by a vector of integers, along a new last axis; ``unk`` is the vector of unknown strings.

    ``map`` has lines of a string, a tab, and integers separated by spaces.
    """
    rows = {
        word: integers(string_to_vector, "map", line.split()) for word, line in table(string_to_vector, map).items()
    }
    rest = integers(string_to_vector, "unk", unk.split())
    _check_lengths(string_to_vector, [*rows.values(), rest])
    if not rows:
        return ops.gather(constant(np.asarray([rest], np.int64)), ops.cast(ops.equal(text, text), to=DType.int64) - 1)
    position, known = _found(_matches(text, rows), text)
    matrix = constant(np.asarray([*rows.values(), rest], np.int64))
    return ops.gather(matrix, ops.where(known, position, constant(np.int64(len(rows)))))


string_to_vector.requires(dtypes(text="string"))


def _check_lengths(op, rows):
    if len(set(map(len, rows))) > 1 or not rows[0]:
        raise TypeMismatch(f'{op.title}: vectors of "map" differ in length, or are empty', given=str(rows[:3]))


@op("VectorToString", domain=DOMAIN)
def vector_to_string(token_ids, *, map: str, unk: str):
    """Replace each vector along the last axis by a string, or each integer if ``map`` has vectors of length one.

    ``map`` has lines of a string, a tab, and integers separated by spaces; ``unk`` is the string of unknown vectors.
    """
    entries = table(vector_to_string, map)
    rows = [integers(vector_to_string, "map", line.split()) for line in entries.values()]
    if not rows:
        raise TypeMismatch(f'{vector_to_string.title}: "map" is empty')
    _check_lengths(vector_to_string, rows)
    ids = token_ids if len(rows[0]) > 1 else ops.unsqueeze(token_ids, [-1])
    equal = ops.cast(ops.equal(ops.unsqueeze(ids, [-2]), constant(np.asarray(rows, np.int64))), to=DType.int32)
    matches = ops.cast(ops.reduce_min(equal, [-1], keepdims=0), to=DType.bool)
    position, known = _found(matches, ids)
    words = constant(strings([*entries, unk]))
    return ops.gather(words, ops.where(known, position, constant(np.int64(len(rows)))))


vector_to_string.requires(dtypes(token_ids="int64"))


@op("MaskedFill", domain=DOMAIN)
def masked_fill(value, mask):
    """The strings of a vector for which ``mask`` is true."""
    return ops.compress(value, mask, axis=0)


masked_fill.requires(dtypes(value="string", mask="bool"), shapes(value="size", mask="size"))
