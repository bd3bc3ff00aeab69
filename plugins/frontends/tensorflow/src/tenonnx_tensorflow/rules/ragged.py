"""Ragged tensors: split strings, and rows of different lengths."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, NotRepresentable, Value, constant, static
from tenonnx_extensions.strings import string_join, string_split
from tenonnx_tensorflow.rules import rule
from tenonnx_tensorflow.rules.indexing import _segments
from tenonnx_tensorflow.rules.patterns import replaced, texts
from tenonnx_tensorflow.tracked_values import as_dtype, int64, known, number, scalar


def _size(x: Value) -> Value:
    return ops.gather(ops.shape(x), constant(np.asarray(0)))


def _count(size: Value) -> Value:
    return ops.range_(constant(np.asarray(0)), size, constant(np.asarray(1)))


@rule("StringSplitV2", outputs="indices values shape")
def split(node: Any, x: Value, separator: Value) -> list[Value]:
    """The pieces of all strings as a sparse tensor: positions (string, piece), pieces, and shape."""
    cut = str(known(separator, "what text is split at").reshape(-1)[0])
    most = int(node.get("maxsplit", -1))
    if not cut and most < 0:
        return _words(x)
    given: dict[str, Any] = {"delimiter": cut} if cut else {}
    if most >= 0:
        given["maxsplit"] = most
    pieces, counts = ops.string_split(x, **given)
    if cut:  # TensorFlow splits an empty string into one piece
        counts = ops.maximum(counts, constant(np.asarray(1)))
        nothing = ops.expand(constant(np.asarray([""], object)), ops.shape(ops.unsqueeze(counts, [1])))
        pieces = ops.concat(pieces, nothing, axis=1)
    places = ops.unsqueeze(_count(ops.gather(ops.shape(pieces), constant(np.asarray(1)))), [0])
    return _sparse(pieces, ops.less(places, ops.unsqueeze(counts, [1])))


def _words(x: Value) -> list[Value]:
    """Pieces between ASCII whitespace; runtimes differ in what they consider whitespace."""
    pieces, _ = ops.string_split(replaced(x, r"[\t-\r]", " "), delimiter=" ")
    return _sparse(pieces, ops.not_(ops.equal(pieces, constant(np.asarray("", object)))))


def _sparse(pieces: Value, exists: Value) -> list[Value]:
    """The existing pieces of each row as a sparse tensor: positions, contents and shape."""
    places = ops.transpose(ops.non_zero(exists), perm=[1, 0])
    counted = ops.cumsum(as_dtype(exists, DType.int64), constant(np.asarray(1)))
    columns = ops.sub(ops.gather_nd(counted, places), constant(np.asarray(1)))
    indices = ops.concat(ops.slice_(places, [0], [1], [1]), ops.unsqueeze(columns, [1]), axis=1)
    longest = ops.reduce_max(ops.concat(columns, constant(np.asarray([-1])), axis=0), keepdims=1)
    size = ops.slice_(ops.shape(pieces), [0], [1], [0])
    return [
        indices,
        ops.gather_nd(pieces, places),
        ops.concat(size, ops.add(longest, constant(np.asarray([1]))), axis=0),
    ]


@rule("StringSplit", outputs="indices values shape")
def split_at_characters(node: Any, x: Value, separators: Value) -> list[Value]:
    """Split at any of several characters, or after each character if there are none."""
    skips = constant(np.asarray([node.get("skip_empty", True)]))
    return list(string_split(x, ops.reshape(separators, [1]), skips))


# ----- rows of different lengths --------------------------------------------------------------------------------------


def _rows(splits: Value) -> Value:
    """The row number of each element, from row splits."""
    ends = int64(splits)
    count = ops.gather(ends, constant(np.asarray(-1)))
    behind = ops.less_or_equal(
        ops.unsqueeze(ops.slice_(ends, [1], [np.iinfo(np.int64).max], [0]), [0]), ops.unsqueeze(_count(count), [1])
    )
    return ops.reduce_sum(as_dtype(behind, DType.int64), [1], keepdims=0)


def joined(x: Value, axis: int, separator: str) -> Value:
    """Join strings along an axis."""
    result = string_join(x, texts(separator), constant(np.asarray([axis])))
    return scalar(result) if x.rank == 1 else result


def joined_rows(x: Value, owners: Value, count: Value, separator: str = "") -> Value:
    """Join the strings of each of ``count`` rows, in order."""
    places = ops.range_(constant(np.asarray(0)), ops.squeeze(ops.shape(owners), [0]), constant(np.asarray(1)))
    before = ops.less(ops.unsqueeze(places, [0]), ops.unsqueeze(places, [1]))
    shared = ops.equal(ops.unsqueeze(owners, [0]), ops.unsqueeze(owners, [1]))
    columns = ops.reduce_sum(as_dtype(ops.and_(before, shared), DType.int64), [1], keepdims=0)
    if separator:
        is_first = ops.equal(columns, constant(np.asarray(0)))
        x = ops.where(is_first, x, ops.string_concat(texts(separator), x))
    most = ops.reduce_max(ops.concat(columns, constant(np.asarray([0])), axis=0), keepdims=1)
    shape = ops.concat(ops.unsqueeze(count, [0]), ops.add(most, constant(np.asarray([1]))), axis=0)
    at = ops.concat(ops.unsqueeze(owners, [1]), ops.unsqueeze(columns, [1]), axis=1)
    return joined(ops.scatter_nd(ops.expand(texts(""), shape), at, x), 1, "")


@rule("StringNGrams", outputs="ngrams ngrams_splits")
def ngrams(node: Any, x: Value, splits: Value) -> list[Value]:
    """Join neighboring strings of each ragged row to n-grams, for each width in turn."""
    if node.get("pad_width", 0) or node.get("preserve_short_sequences", False):
        raise NotRepresentable("StringNGrams pads its rows or keeps short ones", given=node.title)
    rows, total = _rows(splits), _size(x)
    widths = [int(n) for n in node["ngram_widths"]]
    texts, owners, keys = [], [], []
    for place, width in enumerate(widths):
        starts = _count(ops.maximum(ops.sub(total, constant(np.asarray(width - 1))), constant(np.asarray(0))))
        last = ops.gather(rows, ops.add(starts, constant(np.asarray(width - 1))))
        owner = ops.gather(rows, starts)
        starts = ops.compress(starts, ops.equal(owner, last), axis=0)
        text = ops.gather(x, starts)
        for k in range(1, width):
            neighbor = ops.gather(x, ops.add(starts, constant(np.asarray(k))))
            text = ops.string_concat(text, constant(np.asarray(node.get("separator", " "), object)))
            text = ops.string_concat(text, neighbor)
        owner = ops.gather(rows, starts)
        groups = ops.add(ops.mul(owner, constant(np.asarray(len(widths)))), constant(np.asarray(place)))
        texts.append(text)
        owners.append(owner)
        keys.append(ops.add(ops.mul(groups, ops.add(total, constant(np.asarray(1)))), starts))
    key = ops.concat(*keys, axis=0)
    _, order = ops.top_k(key, ops.shape(key), largest=0, sorted=1)
    found = ops.gather(ops.concat(*texts, axis=0), order)
    owner = ops.concat(*owners, axis=0)
    ones = ops.expand(constant(np.asarray(1)), ops.shape(owner))
    lengths = _segments(ones, owner, ops.sub(_size(splits), constant(np.asarray(1))), "add", 0)
    ends = ops.cumsum(lengths, constant(np.asarray(0)))
    return [found, as_dtype(ops.concat(constant(np.asarray([0])), ends, axis=0), splits.dtype)]


@rule("RaggedTensorToTensor")
def to_tensor(node: Any, shape: Value, x: Value, default: Value, *parts: Value) -> Value:
    """A dense tensor of ragged rows, padded by ``default`` or truncated."""
    kinds = [k.decode() if isinstance(k, bytes) else str(k) for k in node["row_partition_types"]]
    if kinds[0] == "FIRST_DIM_SIZE":
        count, parts, kinds = scalar(int64(parts[0])), parts[1:], kinds[1:]
    else:
        count = ops.sub(_size(parts[0]), constant(np.asarray(1)))
    levels = [_rows(part) if kind == "ROW_SPLITS" else int64(part) for kind, part in zip(kinds, parts, strict=True)]
    sizes = static(shape)
    wanted = (
        [-1] * (len(levels) + 1) if sizes is None or np.ndim(sizes) == 0 else np.asarray(sizes).reshape(-1).tolist()
    )
    counts = [count if wanted[0] < 0 else constant(np.asarray(wanted[0]))]
    at: list[Value] = []
    for level, rows in enumerate(levels):
        ones = ops.expand(constant(np.asarray(1)), ops.shape(rows))
        lengths = _segments(ones, rows, count, "add", 0)
        before = ops.sub(ops.cumsum(lengths, constant(np.asarray(0))), lengths)
        place = ops.sub(_count(_size(rows)), ops.gather(before, rows))
        longest = ops.reduce_max(ops.concat(lengths, constant(np.asarray([0])), axis=0), keepdims=0)
        counts.append(longest if wanted[level + 1] < 0 else constant(np.asarray(wanted[level + 1])))
        at = [*(ops.gather(each, rows) for each in at or [_count(count)]), place]
        count = _size(rows)
    one = constant(np.asarray([1]))
    inner = ops.slice_(ops.shape(x), [1], [np.iinfo(np.int64).max], [0])
    whole = ops.concat(*(ops.add(ops.reshape(n, [1]), one) for n in counts), inner, axis=0)
    # excess elements go to an extra row or column, which is cut off
    at = [ops.unsqueeze(ops.minimum(places, most), [1]) for places, most in zip(at, counts, strict=True)]
    filled = ops.scatter_nd(ops.expand(scalar(default), whole), ops.concat(*at, axis=1), x)
    axes = list(range(len(counts)))
    return ops.slice_(filled, [0] * len(axes), [-1] * len(axes), axes)


@rule("RaggedBincount")
def bincount(node: Any, splits: Value, x: Value, size: Value, weights: Value) -> Value:
    """Counts of each number below ``size`` in each row, or sums of weights."""
    numbers, most = int64(x), scalar(int64(size))
    counted = weights.shape is not None and 0 in weights.shape
    content = ops.expand(number(1, weights), ops.shape(numbers)) if counted else weights
    count = ops.sub(_size(splits), constant(np.asarray(1)))
    flat = ops.add(ops.mul(_rows(splits), most), numbers)
    flat = ops.where(ops.less(numbers, most), flat, constant(np.asarray(-1)))
    found = _segments(content, flat, ops.mul(count, most), "add", 0)
    if node.get("binary_output", False):
        found = ops.minimum(found, number(1, found))
    return ops.reshape(found, ops.concat(ops.reshape(count, [1]), ops.reshape(most, [1]), axis=0))
