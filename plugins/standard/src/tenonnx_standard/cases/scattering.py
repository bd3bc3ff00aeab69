"""Cases of ops that write elements at given indices."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_standard.cases.shapes import ANY
from tenonnx_standard.scattering import (
    scatter,
    scatter_elements,
    scatter_elements_arithmetic,
    scatter_elements_plain,
    scatter_nd,
    scatter_nd_arithmetic,
    tensor_scatter,
)
from tenonnx_testing import axis_of, call, cases, tensors

NUMBERS = ["float32", "float64", "float16", "int32", "int64"]


def different(draw, shape, axis, size):
    """Indices into an axis, distinct along it, some of them negative."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    order = random.permuted(np.broadcast_to(np.arange(size), [*np.delete(shape, axis), size]), axis=-1)
    chosen = np.moveaxis(order[..., : shape[axis]], -1, axis)
    return (chosen - size * random.integers(0, 2, chosen.shape)).astype(draw(st.sampled_from([np.int64, np.int32])))


def whole(draw, reduction):
    """The tensor to write into."""
    dtypes, distinct = (ANY if reduction == "none" else NUMBERS), reduction in ("max", "min")
    return draw(tensors(dtypes, min_rank=1, max_rank=3, distinct=distinct))


def by_element(draw, reductions):
    reduction = draw(st.sampled_from(reductions))
    x = draw(
        tensors(ANY if reduction == "none" else NUMBERS, min_rank=1, max_rank=3, distinct=reduction in ("max", "min"))
    )
    axis = draw(axis_of(x))
    sides = [draw(st.integers(1, side)) for side in x.shape]
    places = different(draw, sides, axis % x.ndim, x.shape[axis])
    if reduction != "none" and draw(st.booleans()):
        places = draw(tensors("int64", shape=sides, min_value=-x.shape[axis], max_value=x.shape[axis] - 1))
    return x, places, updates(draw, x, places.shape, reduction), axis, reduction


def updates(draw, x, shape, reduction):
    """Values to write into ``x``; never equal to an element of ``x`` where the gradient would be undefined."""
    dtype = "string" if x.dtype == object else x.dtype.name
    if reduction in ("max", "min"):
        result = draw(tensors(dtype, shape=shape, distinct=True))
        return result if "int" in dtype else (result + x.dtype.type(0.3)).astype(x.dtype)
    return draw(tensors(dtype, shape=shape, exclude_near=(0.0,) if reduction == "mul" else ()))


@cases(scatter_elements)
def scatter_elements_cases(draw):
    x, places, new, axis, reduction = by_element(draw, ["none", "add", "mul", "max", "min"])
    return call(x, places, new, axis=axis, reduction=reduction)


@cases(scatter_elements_arithmetic)
def scatter_elements_arithmetic_cases(draw):
    x, places, new, axis, reduction = by_element(draw, ["none", "add", "mul"])
    return call(x, places, new, axis=axis, reduction=reduction)


@cases(scatter)
def scatter_cases(draw):
    x, places, new, axis, _ = by_element(draw, ["none"])
    return call(x, places, new, axis=axis)


@cases(scatter_elements_plain)
def scatter_elements_plain_cases(draw):
    x, places, new, axis, _ = by_element(draw, ["none"])
    return call(x, places, new, axis=axis)


def by_tuple(draw, reductions):
    reduction = draw(st.sampled_from(reductions))
    x = draw(
        tensors(ANY if reduction == "none" else NUMBERS, min_rank=1, max_rank=3, distinct=reduction in ("max", "min"))
    )
    depth = draw(st.integers(1, x.ndim))
    count = int(np.prod(x.shape[:depth]))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    again = reduction != "none" and draw(st.booleans())
    chosen = random.choice(count, draw(st.integers(1, count)), replace=again)
    chosen = chosen.reshape(draw(st.sampled_from([(-1,), (1, -1)])))
    places = np.stack(np.unravel_index(chosen, x.shape[:depth]), -1).astype(np.int64)
    places -= np.asarray(x.shape[:depth]) * random.integers(0, 2, places.shape)
    return x, places, updates(draw, x, (*places.shape[:-1], *x.shape[depth:]), reduction), reduction


@cases(scatter_nd)
def scatter_nd_cases(draw):
    x, places, new, reduction = by_tuple(draw, ["none", "add", "mul", "max", "min"])
    return call(x, places, new, reduction=reduction)


@cases(scatter_nd_arithmetic)
def scatter_nd_arithmetic_cases(draw):
    x, places, new, reduction = by_tuple(draw, ["none", "add", "mul"])
    return call(x, places, new, reduction=reduction)


@cases(tensor_scatter)
def tensor_scatter_cases(draw):
    cache = draw(tensors(["float32", "float16", "int8", "bool"], min_rank=3))
    axis = draw(st.sampled_from([k for k in range(-cache.ndim, cache.ndim) if k % cache.ndim]))
    longest = cache.shape[axis]
    sides = list(cache.shape)
    sides[axis] = draw(st.integers(1, longest))
    mode = draw(st.sampled_from(["linear", "circular"]))
    highest = longest - sides[axis] if mode == "linear" else longest - 1
    starts = draw(st.one_of(st.none(), tensors("int64", shape=sides[:1], min_value=0, max_value=highest)))
    return call(cache, draw(tensors(cache.dtype.name, shape=sides)), starts, axis=axis, mode=mode)
