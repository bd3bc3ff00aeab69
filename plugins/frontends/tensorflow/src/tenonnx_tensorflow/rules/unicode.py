"""Characters, code points and bytes of UTF-8 strings.

GPT-2's byte-pair tokenizer without merges, with one token for each byte, converts between characters and bytes.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, NotRepresentable, Value, constant
from tenonnx_extensions.bpe import bpe_decoder, gpt2_tokenizer
from tenonnx_extensions.regex import string_regex_split_with_offsets
from tenonnx_tensorflow.rules import rule
from tenonnx_tensorflow.rules.patterns import replaced, texts
from tenonnx_tensorflow.rules.ragged import _rows, joined_rows
from tenonnx_tensorflow.tracked_values import as_dtype, int64


class Characters(NamedTuple):
    """The characters of strings, concatenated.

    ``begin`` and ``end`` are their byte positions in their strings; ``splits`` are the row splits of the strings.
    """

    texts: Value
    begin: Value
    end: Value
    splits: Value

    @staticmethod
    def of(x: Value) -> Characters:
        return Characters(*string_regex_split_with_offsets(x, texts("(?s)(.)"), texts("(?s).")))


#: Characters that represent bytes in the vocabulary of GPT-2.
_PLAIN = [*range(33, 127), *range(161, 173), *range(174, 256)]
_OTHERS = [byte for byte in range(256) if byte not in _PLAIN]
_TOKENS = {byte: chr(byte) for byte in _PLAIN} | {byte: chr(256 + k) for k, byte in enumerate(_OTHERS)}
_VOCABULARY = json.dumps({token: byte for byte, token in _TOKENS.items()})

#: Factors of the bytes of a character, by number of bytes less 1.
_FACTORS = [[1, 0, 0, 0], [64, 1, 0, 0], [4096, 64, 1, 0], [262144, 4096, 64, 1]]
_BASES = [0, 12416, 925824, 63447168]
_LEADS = [0, 192, 224, 240]


def _bytes(characters: Value) -> tuple[Value, Value]:
    """The bytes of characters, int64[count, 4], and their number."""
    ids, mask = gpt2_tokenizer(
        ops.concat(characters, texts("a"), axis=0), vocab=_VOCABULARY, merges="#version: 0.2\n", padding_length=4
    )
    ids, mask = (ops.slice_(each, [0], [-1], [0]) for each in (ids, mask))
    # some runtimes end strings at a 0 and have no byte for it
    return ops.mul(ids, mask), ops.maximum(ops.reduce_sum(mask, [1], keepdims=0), constant(np.asarray(1)))


def bytes_of(x: Value) -> tuple[Value, Value]:
    """The bytes of a vector of strings, zero-padded, int64[rows, 8 * blocks], and their number."""
    characters = Characters.of(x)
    contents, counts = _bytes(characters.texts)
    places = constant(np.arange(4))
    is_byte = ops.less(places, ops.unsqueeze(counts, [1]))
    rows = ops.expand(ops.unsqueeze(_rows(characters.splits), [1]), ops.shape(contents))
    columns = ops.add(ops.unsqueeze(characters.begin, [1]), places)
    at = ops.concat(*(ops.unsqueeze(_chosen(each, is_byte), [1]) for each in (rows, columns)), axis=1)
    ends = ops.concat(characters.end, constant(np.asarray([0])), axis=0)
    longest = ops.reduce_max(ends, keepdims=1)
    width = ops.mul(
        ops.add(ops.div(longest, constant(np.asarray(8))), constant(np.asarray(1))), constant(np.asarray(8))
    )
    nothing = ops.expand(constant(np.asarray(0)), ops.concat(ops.shape(x), width, axis=0))
    result = ops.scatter_nd(nothing, at, _chosen(contents, is_byte))
    ones = ops.expand(constant(np.asarray(0)), ops.shape(x))
    length = ops.scatter_nd(
        ones, ops.unsqueeze(_rows(characters.splits), [1]), ops.sub(characters.end, characters.begin), reduction="add"
    )
    return result, length


def _chosen(x: Value, mask: Value) -> Value:
    return ops.compress(ops.reshape(x, [-1]), ops.reshape(mask, [-1]), axis=0)


def code_points(characters: Value) -> Value:
    """The code point of each string of one character."""
    contents, counts = _bytes(characters)
    place = ops.sub(counts, constant(np.asarray(1)))
    whole = ops.reduce_sum(ops.mul(contents, ops.gather(constant(np.asarray(_FACTORS)), place)), [1], keepdims=0)
    return ops.sub(whole, ops.gather(constant(np.asarray(_BASES)), place))


def encoded(points: Value, splits: Value) -> Value:
    """The string of each row of code points."""
    points, most = int64(points), [1 << 7, 1 << 11, 1 << 16]
    beyond = ops.greater_or_equal(ops.unsqueeze(points, [1]), constant(np.asarray(most)))
    place = ops.reduce_sum(as_dtype(beyond, DType.int64), [1], keepdims=0)
    factors = ops.gather(constant(np.asarray([[max(f, 1) for f in row] for row in _FACTORS])), place)
    shifted = ops.div(ops.unsqueeze(points, [1]), factors)
    leads = ops.unsqueeze(ops.gather(constant(np.asarray(_LEADS)), place), [1])
    first = ops.add(ops.slice_(shifted, [0], [1], [1]), leads)
    others = ops.add(ops.mod(ops.slice_(shifted, [1], [4], [1]), constant(np.asarray(64))), constant(np.asarray(128)))
    contents = ops.concat(first, others, axis=1)
    is_byte = ops.less_or_equal(constant(np.arange(4)), ops.unsqueeze(place, [1]))
    # as a single row with an extra byte, since the library reads beyond the end of rows, and rejects empty ones
    contents = ops.concat(_chosen(contents, is_byte), constant(np.asarray([ord("a")])), axis=0)
    whole = bpe_decoder(
        ops.unsqueeze(contents, [0]),
        id_vocab="\n".join(_TOKENS[byte] for byte in range(256)),
        byte_decoder="\n".join(f"{ord(token)}\t{byte}" for byte, token in _TOKENS.items()),
    )
    characters = ops.slice_(Characters.of(whole).texts, [0], [-1], [0])
    count = ops.sub(ops.squeeze(ops.shape(splits), [0]), constant(np.asarray(1)))
    return joined_rows(characters, _rows(splits), count)


# ----- rules ----------------------------------------------------------------------------------------------------------


def _check_utf8(node: Any, *names: str) -> None:
    for name in names:
        if node.get(name, "UTF-8").upper() not in ("UTF-8", "UTF8"):
            raise NotRepresentable(
                "text is not in UTF-8", given=f"{node.title}: {name} {node[name]}", do="convert it before the model"
            )


@rule("UnicodeDecode", outputs="row_splits char_values")
def decode(node: Any, x: Value) -> list[Value]:
    return decode_with_offsets(node, x)[:2]


@rule("UnicodeDecodeWithOffsets", outputs="row_splits char_values char_to_byte_starts")
def decode_with_offsets(node: Any, x: Value) -> list[Value]:
    _check_utf8(node, "input_encoding")
    characters = Characters.of(ops.reshape(x, [-1]))
    points = code_points(characters.texts)
    if node.get("replace_control_characters", False):
        is_control = ops.less(points, constant(np.asarray(32)))
        points = ops.where(is_control, constant(np.asarray(int(node.get("replacement_char", 65533)))), points)
    splits = as_dtype(characters.splits, DType.int32 if int(node.get("Tsplits", 9)) == 3 else DType.int64)
    return [splits, as_dtype(points, DType.int32), characters.begin]


@rule("UnicodeEncode")
def encode(node: Any, points: Value, splits: Value) -> Value:
    """Strings from rows of code points. Invalid ones become the replacement character, whatever ``errors`` says."""
    _check_utf8(node, "output_encoding")
    points = int64(points)
    is_surrogate = ops.equal(ops.div(points, constant(np.asarray(2048))), constant(np.asarray(27)))
    outside = ops.or_(ops.less(points, constant(np.asarray(0))), ops.greater(points, constant(np.asarray(0x10FFFF))))
    replacement = constant(np.asarray(int(node.get("replacement_char", 65533))))
    return encoded(ops.where(ops.or_(is_surrogate, outside), replacement, points), splits)


@rule("UnicodeTranscode")
def transcode(node: Any, x: Value) -> Value:
    _check_utf8(node, "input_encoding", "output_encoding")
    if not node.get("replace_control_characters", False):
        return ops.identity(x)
    return replaced(x, r"[\x00-\x1f]", chr(int(node.get("replacement_char", 65533))))
