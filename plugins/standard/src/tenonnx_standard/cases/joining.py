"""Cases of ops that concatenate and split tensors."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_standard.cases.shapes import ANY
from tenonnx_standard.joining import concat, concat_by_default, split, split_by_either, split_exactly
from tenonnx_testing import axis_of, call, cases, shapes, tensors


def parts(draw, dtypes, sides, axis):
    """Tensors that differ only in the length of one axis."""
    dtype = draw(st.sampled_from(dtypes))
    several = [[*sides[:axis], draw(st.integers(0, 3)), *sides[axis + 1 :]] for _ in range(draw(st.integers(1, 3)))]
    return [draw(tensors(dtype, shape=each)) for each in several]


@cases(concat)
def concat_cases(draw):
    sides = draw(shapes(1))
    axis = draw(st.integers(0, len(sides) - 1))
    return call(*parts(draw, ANY, sides, axis), axis=axis - draw(st.sampled_from([0, len(sides)])))


@cases(concat_by_default)
def concat_by_default_cases(draw):
    sides = draw(shapes(2))
    axis = draw(st.one_of(st.none(), st.integers(0, len(sides) - 1)))
    return call(*parts(draw, ["float32", "float64", "float16"], sides, 1 if axis is None else axis), axis=axis)


def lengths(draw, whole):
    """Numbers whose sum is ``whole``."""
    cuts = sorted(draw(st.lists(st.integers(0, whole), min_size=1, max_size=3)))
    return np.diff([0, *cuts, whole]).astype(np.int64)


@cases(split)
def split_cases(draw):
    x = draw(tensors(ANY, min_rank=1))
    axis = draw(axis_of(x))
    sizes = lengths(draw, x.shape[axis])
    return call(x, sizes, axis=axis, _outputs=len(sizes))


@cases(split)
def split_cases_2(draw):
    x = draw(tensors(ANY, min_rank=1))
    axis = draw(axis_of(x))
    count = draw(st.sampled_from([n for n in range(1, 6) if -(-x.shape[axis] // n) * (n - 1) < x.shape[axis]]))
    return call(x, axis=axis, num_outputs=count, _outputs=count)


@cases(split_exactly)
def split_exactly_cases(draw):
    x = draw(tensors(ANY, min_rank=1))
    axis = draw(axis_of(x))
    if draw(st.booleans()):
        sizes = lengths(draw, x.shape[axis])
        return call(x, sizes, axis=axis, _outputs=len(sizes))
    return call(x, axis=axis, _outputs=draw(st.sampled_from([n for n in range(1, 6) if x.shape[axis] % n == 0])))


@cases(split_by_either, gradient=["input"])
def split_by_either_cases(draw):
    x = draw(tensors(["float32", "float64"], min_rank=1))
    axis = draw(st.one_of(st.none(), st.integers(0, x.ndim - 1)))
    sizes = lengths(draw, x.shape[axis or 0])
    if draw(st.booleans()):
        return call(x, axis=axis, split=sizes.tolist(), _outputs=len(sizes))
    return call(x, sizes.astype(x.dtype), axis=axis, _outputs=len(sizes))
