"""Cases of attention components and key-value caches."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_contrib_ms.caches import updated
from tenonnx_contrib_ms.scaled_dot_product import scaled_dot_product_attention
from tenonnx_testing import call, cases, tensors


@cases(scaled_dot_product_attention)
def scaled_dot_product_attention_cases(draw):
    dtype, batch, groups = (
        draw(st.sampled_from(["float32", "float16"])),
        draw(st.integers(1, 2)),
        draw(st.integers(1, 2)),
    )
    heads, length, total, size = groups * draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.integers(1, 4)), 4
    shapes = (heads, length, size), (groups, total, size), (groups, total, draw(st.integers(1, 3)))
    inputs = [draw(tensors(dtype, shape=(batch, *shape), min_value=-2, max_value=2)) for shape in shapes]
    sides = draw(st.sampled_from([1, batch])), draw(st.sampled_from([1, heads])), draw(st.sampled_from([1, length]))

    def small(*shape):
        return draw(st.none() | tensors(dtype, shape=shape, min_value=-1, max_value=1))

    bias, sink = small(*sides[draw(st.integers(0, 2)) :], total), small(draw(st.sampled_from([1, heads])))
    return call(*inputs, bias, sink, **draw(st.sampled_from([{}, {"scale": 0.3, "softcap": 1.5}])))


@cases(updated)
def updated_cases(draw):
    batch, heads, length, capacity = (draw(st.integers(low, 2)) for low in (1, 1, 1, 0))
    dtype = draw(st.sampled_from(["float32", "int8"]))
    sizes = [draw(st.integers(1, 2)) for _ in range(2)]
    past, new = ([draw(tensors(dtype, shape=(batch, heads, n, size))) for size in sizes] for n in (capacity, length))
    starts = np.array([[draw(st.integers(0, capacity))] for _ in range(batch)])
    return call(*past, *new, starts + np.arange(length), np.array([starts.max() + length]))
