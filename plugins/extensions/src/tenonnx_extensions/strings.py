"""Strings: case, length, comparison, joining and splitting."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import (
    DType,
    NotRepresentable,
    TensorType,
    TypeMismatch,
    constant,
    dtypes,
    holds,
    limits,
    op,
    primitive,
    static,
    subgraph,
)
from tenonnx_extensions.checks import DOMAIN, mapped, single, strings
from tenonnx_standard.checking import dim_of, numpy_rule

#: Whitespace that the runtime's library strips: ASCII only.
_WHITE = " \t\n\v\f\r"


def _in_case(X, action: str):
    """Strings in another case. An empty tensor gets one string appended, which StringNormalizer returns for none."""
    flat = ops.concat(ops.reshape(X, [-1]), constant(strings([""])), axis=0)
    changed = ops.string_normalizer(flat, case_change_action=action, locale="C")
    return ops.reshape(ops.slice_(changed, [0], [-1], [0]), ops.shape(X))


@op("StringUpper", domain=DOMAIN)
def string_upper(input):
    """Convert ASCII letters of each string to upper case."""
    return _in_case(input, "UPPER")


@op("StringLower", domain=DOMAIN)
def string_lower(input):
    """Convert ASCII letters of each string to lower case."""
    return _in_case(input, "LOWER")


@op("StringConcat", domain=DOMAIN, grows_text=True)
def string_concat(left, right):
    """Each string of ``left`` followed by that of ``right``, which has the same shape."""
    return ops.string_concat(left, right)


@op("StringEqual", domain=DOMAIN)
def string_equal(x, y):
    """Whether strings are equal; the shapes broadcast."""
    return ops.equal(x, y)


for each in (string_upper, string_lower):
    each.requires(dtypes(input="string"))
string_equal.requires(dtypes(x="string", y="string"))


def check_same_shape(*, left: Any, right: Any) -> str | None:
    """Reason why two shapes differ, or None."""
    one, other = left.tensor.shape, right.tensor.shape
    if one is None or other is None:
        return None
    pairs = zip(one, other, strict=False)
    same = len(one) == len(other) and all(a == b for a, b in pairs if isinstance(a, int) and isinstance(b, int))
    return None if same else f"left and right differ in shape: {list(one)} and {list(other)}"


string_concat.requires(dtypes(left="string", right="string"), holds(check_same_shape))


@primitive("StringStrip", domain=DOMAIN)
def string_strip(input):
    """Each string without leading and trailing ASCII whitespace."""


@primitive("StringLength", domain=DOMAIN)
def string_length(input):
    """The number of characters (code points) of each string."""


string_strip.requires(dtypes(input="string"))
string_length.requires(dtypes(input="string"))


@string_strip.type
def string_strip_type(input):
    return input.tensor


@string_length.type
def string_length_type(input):
    return input.tensor.with_dtype(DType.int64)


@numpy_rule(string_strip)
def string_strip_numpy(input):
    return mapped(lambda text: text.strip(_WHITE), input)


@numpy_rule(string_length)
def string_length_numpy(input):
    return mapped(len, input, np.int64)


# ----- joining and splitting ------------------------------------------------------------------------------------------


@primitive("StringJoin", domain=DOMAIN, grows_text=True)
def string_join(input_X, input_sep, input_axis):
    """Join the strings along an axis by a separator; a vector results in a vector of one string."""


def check_join(*, input_sep: Any, input_axis: Any) -> str | None:
    """Reason why a separator or an axis has several elements, or None."""
    for name, value in (("input_sep", input_sep), ("input_axis", input_axis)):
        if value.tensor.shape not in (None, (), (1,), (None,)) and value.tensor.shape[0] != 1:
            return f"{name} is not one element: {value.type}"
    return None


string_join.requires(dtypes(input_X="string", input_sep="string", input_axis="int64"))


@string_join.type
def string_join_type(input_X, input_sep, input_axis):
    axis, shape = static(input_axis), input_X.tensor.shape
    if shape is None or (axis is None and len(shape) > 1):
        return TensorType(DType.string)
    if len(shape) < 2:
        return TensorType(DType.string, (1,))
    k = _axis(int(axis.reshape(-1)[0]) if axis.size == 1 else -1, len(shape))
    return TensorType(DType.string, shape[:k] + shape[k + 1 :])


def _axis(axis: int, rank: int) -> int:
    if not 0 <= axis < max(rank, 1):
        raise TypeMismatch(
            f"{string_join.title}: axis lies outside [0, {max(rank, 1) - 1}]", given=f"axis {axis} for rank {rank}"
        )
    return axis


@numpy_rule(string_join)
def string_join_numpy(input_X, input_sep, input_axis):
    separator = single(string_join, "input_sep", input_sep)
    axis = _axis(single(string_join, "input_axis", input_axis), input_X.ndim)
    if input_X.ndim == 0:
        return input_X.reshape(1)
    rows = np.moveaxis(input_X, axis, -1)
    shape = rows.shape[:-1] or (1,)
    size = limits.text_bytes(input_X.reshape(-1).tolist()) + input_X.size * len(separator)
    limits.check_memory(2 * size, f"the text of {string_join.title}")
    flat = rows.reshape(-1, rows.shape[-1]) if rows.size else np.empty((int(np.prod(shape)), 0), object)
    return strings([separator.join(row) for row in flat.tolist()], shape)


@string_join.lower()
def string_join_lowering(input_X, input_sep, input_axis):
    axis = static(input_axis)
    if axis is None or not input_X.rank:
        raise NotRepresentable("ai.onnx has no op that joins strings along an axis that is not known")
    k = int(axis.reshape(-1)[0])
    separator = ops.reshape(input_sep, constant(np.zeros(0, np.int64)))
    known, size = static(input_sep), dim_of(input_X, k)
    is_empty = known is not None and known.reshape(-1).tolist() == [""]
    if not isinstance(size, int) or not size:
        joined = _joined_by_loop(input_X, separator, k)
    else:
        joined, *parts = (ops.gather(input_X, constant(np.int64(position)), axis=k) for position in range(size))
        for part in parts:
            joined = ops.string_concat(joined if is_empty else ops.string_concat(joined, separator), part)
    return ops.reshape(joined, [1]) if input_X.rank == 1 else joined


def _joined_by_loop(x, separator, axis):
    """Strings joined along an axis of any length."""
    sizes = ops.shape(x)
    rest = ops.concat(ops.slice_(sizes, [0], [axis], [0]), ops.slice_(sizes, [axis + 1], [2**62], [0]), axis=0)
    nothing = constant(strings([""], ()))

    def body(step, going, text):
        between = ops.where(ops.greater(step, constant(np.int64(0))), separator, nothing)
        part = ops.string_concat(between, ops.gather(x, step, axis=axis))
        return [ops.identity(going), ops.string_concat(text, part)]

    shape = x.tensor.shape
    kind = TensorType(DType.string, shape[:axis] + shape[axis + 1 :])
    formals = [("step", TensorType(DType.int64, ())), ("going", TensorType(DType.bool, ())), ("text", kind)]
    count = ops.gather(sizes, constant(np.int64(axis)))
    return ops.loop(count, None, ops.expand(nothing, rest), body=subgraph(body, formals))


@primitive("StringSplit", domain=DOMAIN)
def string_split(input, sep, skip_empty):
    """Split a vector of strings to a sparse matrix: row and column of each piece, the pieces, and the shape.

    Each character of ``sep`` is a separator; an empty ``sep`` splits between all characters. An empty string has no
    pieces. ``skip_empty`` drops empty pieces.
    """


def check_split(*, input: Any) -> str | None:
    """Reason why an input is not a vector, or None."""
    return None if input.rank in (None, 1) else f"input is not a vector: {input.type}"


string_split.requires(dtypes(input="string", sep="string", skip_empty="bool"), holds(check_split))


@string_split.type
def string_split_type(input, sep, skip_empty):
    return TensorType(DType.int64, (None, 2)), TensorType(DType.string, (None,)), TensorType(DType.int64, (2,))


@numpy_rule(string_split)
def string_split_numpy(input, sep, skip_empty):
    cut, skips = single(string_split, "sep", sep), single(string_split, "skip_empty", skip_empty)
    rows = []
    for text in input.tolist():
        pieces = list(text) if not cut else re.split(f"[{re.escape(cut)}]", text) if text else []
        rows.append([piece for piece in pieces if piece or not skips])
    indices = [(row, column) for row, pieces in enumerate(rows) for column in range(len(pieces))]
    return (
        np.asarray(indices, dtype=np.int64).reshape(-1, 2),
        strings([piece for pieces in rows for piece in pieces]),
        np.asarray([len(rows), max(map(len, rows), default=0)], dtype=np.int64),
    )


@string_split.lower()
def string_split_lowering(input, sep, skip_empty):
    cut = static(sep)
    if cut is None or len(cut.reshape(-1)[0]) != 1:
        raise NotRepresentable(
            "ai.onnx splits strings at a separator of several characters as a whole, or at a known one"
        )
    pieces, counts = ops.string_split(input, delimiter=str(cut.reshape(-1)[0]))
    columns = ops.range_(
        constant(np.int64(0)), ops.gather(ops.shape(pieces), constant(np.int64(1))), constant(np.int64(1))
    )
    empty = constant(strings([""], ()))
    exists = ops.and_(
        ops.less(columns, ops.unsqueeze(counts, [1])), ops.unsqueeze(ops.not_(ops.equal(input, empty)), [1])
    )
    skips = ops.reshape(skip_empty, constant(np.zeros(0, np.int64)))
    exists = ops.and_(exists, ops.not_(ops.and_(skips, ops.equal(pieces, empty))))
    kept = ops.cast(exists, to=DType.int64)
    places = ops.transpose(ops.non_zero(exists), perm=[1, 0])
    ranks = ops.sub(ops.cumsum(kept, constant(np.int64(1))), constant(np.int64(1)))
    column = ops.unsqueeze(ops.gather_nd(ranks, places), [1])
    row = ops.slice_(places, [0], [1], [1])
    longest = ops.reduce_max(
        ops.concat(ops.reduce_sum(kept, [1], keepdims=0), constant(np.zeros(1, np.int64)), axis=0), keepdims=1
    )
    return ops.concat(row, column, axis=1), ops.gather_nd(pieces, places), ops.concat(ops.shape(input), longest, axis=0)
