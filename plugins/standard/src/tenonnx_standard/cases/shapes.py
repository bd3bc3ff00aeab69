"""Cases of ops that change a tensor's shape or return it."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_standard.shapes import (
    expand,
    flatten,
    identity,
    reshape,
    shape,
    size,
    squeeze,
    squeeze_from_front,
    tile,
    tile_along,
    transpose,
    unsqueeze,
    unsqueeze_from_front,
)
from tenonnx_testing import Gap, axis_of, call, cases, shapes, tensors

#: Element types of every kind.
ANY = ["float32", "float64", "float16", "bfloat16", "int32", "int64", "int8", "uint8", "bool", "string", "complex64"]


def integers(*numbers):
    return np.asarray(numbers, np.int64)


@cases(identity)
def identity_cases(draw):
    return call(draw(tensors([*ANY, "float8e4m3fn", "int4"])))


@cases(identity)
def identity_cases_2(draw):
    return call([draw(tensors(shape=(2, 3))) for _ in range(draw(st.integers(1, 3)))])


def ends_before_front(call):
    """Whether Shape gets negative axes that end before the first one, even after adding the rank."""
    places, end = range(call.inputs[0].ndim), call.attributes.get("end")
    counted = 0 if end is None else end + len(places)
    return counted < 0 and bool(places[call.attributes.get("start") or 0 : counted])


@cases(shape, gaps=[Gap("reference", "it does not clamp positions before the start", ends_before_front)])
def shape_cases(draw):
    end = draw(st.one_of(st.none(), st.integers(-5, 5)))
    return call(draw(tensors(ANY, min_side=0)), start=draw(st.integers(-5, 5)), end=end)


@cases(size)
def size_cases(draw):
    return call(draw(tensors(ANY, min_side=0)))


@cases(reshape)
def reshape_cases(draw):
    x = draw(tensors(ANY, min_rank=1))
    wanted = list(draw(st.permutations(x.shape)))
    if len(wanted) > 1 and draw(st.booleans()):
        wanted[-2:] = [wanted[-2] * wanted[-1]]
    copied = draw(st.sampled_from(range(len(wanted))))
    if wanted[copied] == x.shape[copied] and draw(st.booleans()):
        wanted[copied] = 0
    if draw(st.booleans()):
        wanted[draw(st.sampled_from(range(len(wanted))))] = -1
    return call(x, integers(*wanted))


@cases(reshape)
def reshape_cases_2(draw):
    sides = draw(st.permutations([0, *draw(shapes(1, 2))]))
    wanted = draw(st.permutations([0, *draw(shapes(0, 2))]))
    return call(draw(tensors(ANY, shape=sides)), integers(*wanted), allowzero=1)


@cases(transpose)
def transpose_cases(draw):
    x = draw(tensors(ANY))
    return call(x, perm=draw(st.one_of(st.none(), st.permutations(range(x.ndim)))) or None)


@cases(squeeze)
def squeeze_cases(draw):
    x = draw(tensors(ANY, max_side=2))
    ones = [axis for axis, side in enumerate(x.shape) if side == 1]
    chosen = draw(st.lists(st.sampled_from(ones), unique=True, min_size=1)) if ones and draw(st.booleans()) else None
    return call(x, chosen and integers(*(axis - draw(st.sampled_from([0, x.ndim])) for axis in chosen)))


def order_matters(call):
    """Whether axes given as an attribute end up elsewhere when they are inserted one by one."""
    x, axes = call.inputs
    if call.version >= 13:
        return False
    rank, one_by_one = x.ndim + len(axes), x
    for axis in axes:
        if not -one_by_one.ndim - 1 <= axis <= one_by_one.ndim:
            return False
        one_by_one = np.expand_dims(one_by_one, axis)
    return one_by_one.shape != np.expand_dims(x, tuple(axis % rank for axis in axes)).shape


@cases(unsqueeze, gaps=[Gap("reference", "it inserts the axes one after the other", order_matters)])
def unsqueeze_cases(draw):
    x = draw(tensors(ANY, max_rank=3))
    rank = x.ndim + draw(st.integers(1, 2))
    axes = draw(st.lists(st.integers(0, rank - 1), unique=True, min_size=rank - x.ndim, max_size=rank - x.ndim))
    return call(x, integers(*(axis - draw(st.sampled_from([0, rank])) for axis in axes)))


@cases(squeeze_from_front)
def squeeze_from_front_cases(draw):
    x = draw(tensors(ANY, max_side=2))
    ones = [axis for axis, side in enumerate(x.shape) if side == 1]
    return call(x, axes=draw(st.lists(st.sampled_from(ones), unique=True, min_size=1)) if ones else None)


@cases(unsqueeze_from_front)
def unsqueeze_from_front_cases(draw):
    x = draw(tensors(ANY, max_rank=3))
    return call(x, axes=draw(st.lists(st.integers(0, x.ndim), unique=True, min_size=1, max_size=1)))


@cases(flatten)
def flatten_cases(draw):
    x = draw(tensors(ANY, min_rank=1))
    return call(x, axis=draw(st.integers(-x.ndim, x.ndim)))


@cases(expand)
def expand_cases(draw):
    whole = draw(shapes())
    x = draw(
        tensors(ANY, shape=[draw(st.sampled_from([1, side])) for side in whole[draw(st.integers(0, len(whole))) :]])
    )
    wanted = [1 if x.ndim > k and side == x.shape[x.ndim - 1 - k] else side for k, side in enumerate(reversed(whole))]
    return call(x, integers(*reversed(wanted)))


@cases(tile)
def tile_cases(draw):
    x = draw(tensors(ANY, min_rank=1, max_rank=3))
    return call(x, integers(*(draw(st.integers(0 if k == 0 else 1, 3)) for k in range(x.ndim))))


@cases(tile_along, gradient=["input"])
def tile_along_cases(draw):
    x = draw(tensors(["float32", "float64"], min_rank=1, max_rank=3))
    axis = draw(axis_of(x)) % x.ndim
    return call(x, np.asarray([draw(st.integers(1, 3))], x.dtype), np.asarray([axis], x.dtype))
