"""Text that is split, and rows of different lengths, as the numbers of rows of their elements."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, NotRepresentable, TensorType, Value, constant, static, subgraph
from tenonnx_tensorflow.rules import rule
from tenonnx_tensorflow.rules.indexing import _segments
from tenonnx_tensorflow.tracked_values import as_dtype, int64, known, number, scalar


def _size(x: Value) -> Value:
    return ops.gather(ops.shape(x), constant(np.asarray(0)))


def _count(size: Value) -> Value:
    return ops.range_(constant(np.asarray(0)), size, constant(np.asarray(1)))


@rule("StringSplitV2", outputs="indices values shape")
def split(node: Any, x: Value, separator: Value) -> list[Value]:
    """The pieces of all strings, with the string and the place within it of each."""
    cut = str(known(separator, "what text is split at").reshape(-1)[0])
    most = int(node.get("maxsplit", -1))
    given: dict[str, Any] = {"delimiter": cut} if cut else {}
    if most >= 0:
        given["maxsplit"] = most
    pieces, counts = ops.string_split(x, **given)
    if cut:  # of an empty string, TensorFlow gives one piece
        counts = ops.maximum(counts, constant(np.asarray(1)))
        nothing = ops.expand(constant(np.asarray([""], object)), ops.shape(ops.unsqueeze(counts, [1])))
        pieces = ops.concat(pieces, nothing, axis=1)
    places = ops.unsqueeze(_count(ops.gather(ops.shape(pieces), constant(np.asarray(1)))), [0])
    indices = ops.transpose(ops.non_zero(ops.less(places, ops.unsqueeze(counts, [1]))), perm=[1, 0])
    longest = ops.reduce_max(ops.concat(counts, constant(np.asarray([0])), axis=0), keepdims=1)
    return [indices, ops.gather_nd(pieces, indices), ops.concat(ops.shape(counts), longest, axis=0)]


@rule("StaticRegexReplace")
def replace(node: Any, x: Value) -> Value:
    """One of some characters by nothing: what is left between them is put together."""
    characters = _characters(node["pattern"])
    if characters is None or node["rewrite"] or not node.get("replace_global", True):
        raise NotRepresentable(
            "text is replaced that is not single characters, or not by nothing",
            given=f'{node.title}: "{node["pattern"]}" by "{node["rewrite"]}"',
            do="prepare text before the model",
        )
    found = ops.reshape(x, [-1])
    for character in characters:
        found = _without(found, character)
    return ops.reshape(found, ops.shape(x))


def _characters(pattern: str) -> str | None:
    """Those that a pattern stands for that is one class of ASCII characters."""
    if not re.fullmatch(r"\[[^^\]](?:[^\\\]]|\\.)*\]", pattern, re.DOTALL) and len(pattern) != 1:
        return None
    try:
        compiled = re.compile(pattern)
    except re.error:
        return None
    if compiled.search("\u00e9\u4e2d\u20ac"):
        return None
    return "".join(c for c in map(chr, range(128)) if compiled.fullmatch(c))


def _without(x: Value, character: str) -> Value:
    pieces, _ = ops.string_split(x, delimiter=character)

    def joined(count: Value, going: Value, held: Value) -> list[Value]:
        return [ops.identity(going), ops.string_concat(held, ops.gather(pieces, count, axis=1))]

    nothing = ops.expand(constant(np.asarray("", object)), ops.shape(x))
    formals = [("step", TensorType(DType.int64, ())), ("going", TensorType(DType.bool, ())), ("text", x.type)]
    found: Value = ops.loop(
        ops.gather(ops.shape(pieces), constant(np.asarray(1))), None, nothing, body=subgraph(joined, formals)
    )
    return found


# ----- rows of different lengths --------------------------------------------------------------------------------------


def _rows(splits: Value) -> Value:
    """Of each element the number of its row, where rows end at these places."""
    ends = int64(splits)
    count = ops.gather(ends, constant(np.asarray(-1)))
    behind = ops.less_or_equal(
        ops.unsqueeze(ops.slice_(ends, [1], [np.iinfo(np.int64).max], [0]), [0]), ops.unsqueeze(_count(count), [1])
    )
    return ops.reduce_sum(as_dtype(behind, DType.int64), [1], keepdims=0)


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
    """Rows with ``default`` behind their elements, or without those that are too many."""
    kinds = [k.decode() if isinstance(k, bytes) else str(k) for k in node["row_partition_types"]]
    if kinds == ["FIRST_DIM_SIZE", "VALUE_ROWIDS"]:
        count, rows = scalar(int64(parts[0])), int64(parts[1])
    elif kinds == ["ROW_SPLITS"]:
        count, rows = ops.sub(_size(parts[0]), constant(np.asarray(1))), _rows(parts[0])
    else:
        raise NotRepresentable("rows are of several levels", given=f"{node.title}: {', '.join(kinds)}")
    sizes = static(shape)
    wanted = [-1] * 2 if sizes is None or np.ndim(sizes) == 0 else np.asarray(sizes).reshape(-1).tolist()
    ones = ops.expand(constant(np.asarray(1)), ops.shape(rows))
    lengths = _segments(ones, rows, count, "add", 0)
    before = ops.sub(ops.cumsum(lengths, constant(np.asarray(0))), lengths)
    place = ops.sub(_count(_size(rows)), ops.gather(before, rows))
    longest = ops.reduce_max(ops.concat(lengths, constant(np.asarray([0])), axis=0), keepdims=0)
    width = longest if wanted[1] < 0 else constant(np.asarray(wanted[1]))
    count = count if wanted[0] < 0 else constant(np.asarray(wanted[0]))
    one = constant(np.asarray([1]))
    inner = ops.slice_(ops.shape(x), [1], [np.iinfo(np.int64).max], [0])
    whole = ops.concat(*(ops.add(ops.reshape(n, [1]), one) for n in (count, width)), inner, axis=0)
    # what is too many goes behind the last row or place, which is cut off
    at = [ops.unsqueeze(ops.minimum(held, most), [1]) for held, most in ((rows, count), (place, width))]
    filled = ops.scatter_nd(ops.expand(scalar(default), whole), ops.concat(*at, axis=1), x)
    return ops.slice_(filled, [0, 0], [-1, -1], [0, 1])


@rule("RaggedBincount")
def bincount(node: Any, splits: Value, x: Value, size: Value, weights: Value) -> Value:
    """Counts of each number below ``size`` in each row, or sums of their weights."""
    held, most = int64(x), scalar(int64(size))
    counted = weights.shape is not None and 0 in weights.shape
    content = ops.expand(number(1, weights), ops.shape(held)) if counted else weights
    count = ops.sub(_size(splits), constant(np.asarray(1)))
    flat = ops.add(ops.mul(_rows(splits), most), held)
    flat = ops.where(ops.less(held, most), flat, constant(np.asarray(-1)))
    found = _segments(content, flat, ops.mul(count, most), "add", 0)
    if node.get("binary_output", False):
        found = ops.minimum(found, number(1, found))
    return ops.reshape(found, ops.concat(ops.reshape(count, [1]), ops.reshape(most, [1]), axis=0))
