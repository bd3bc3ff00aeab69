"""Cases of tensor ops that ai.onnx has, too, some under another name."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_contrib_ms.tensors import (
    expand_dims,
    gather_nd,
    pad,
    range_,
    sample_op,
    torch_embedding,
    trilu,
    unfold_tensor,
    unique,
)
from tenonnx_testing import axis_of, call, cases, shapes, tensors

FLOATS = ["float32", "float64", "float16"]


@cases(expand_dims)
def expand_dims_cases(draw):
    x = draw(tensors([*FLOATS, "int32"]))
    return call(x, np.array(draw(st.integers(-x.ndim - 1, x.ndim)), np.int32))


@cases(gather_nd)
def gather_nd_cases(draw):
    x = draw(tensors(["float32", "int64"], min_rank=1, max_rank=3))
    depth = draw(st.integers(1, x.ndim))
    places = draw(shapes(0, 2, 1, 3))
    parts = [draw(tensors("int64", shape=places, min_value=0, max_value=side - 1)) for side in x.shape[:depth]]
    return call(x, np.stack(parts, axis=-1).astype(draw(st.sampled_from(["int32", "int64"]))))


@cases(pad)
def pad_cases(draw):
    x = draw(tensors(["float32", "float64"], min_rank=1, max_rank=3, min_side=2))
    mode = draw(st.sampled_from(["constant", "edge", "reflect"]))
    pads = np.array([draw(st.integers(0, 1)) for _ in range(2 * x.ndim)])
    if draw(st.booleans()):
        pads = pads[None]
    value = np.full(draw(st.sampled_from([(), (1,)])), 1.5, x.dtype)
    return call(x, pads, value if mode == "constant" and draw(st.booleans()) else None, mode=mode)


@cases(range_, gradient=False)
def range_cases(draw):
    dtype = draw(st.sampled_from(["float32", "float64", "int16", "int32", "int64"]))
    shape = draw(st.sampled_from([(), (1,)]))
    start, limit, delta = (np.full(shape, number, dtype) for number in (draw(st.integers(-3, 3)), 5, 2))
    return call(start, limit, draw(st.sampled_from([None, delta])))


@cases(trilu)
def trilu_cases(draw):
    x = draw(tensors(["float32", "float64", "int64"], min_rank=2))
    k = draw(st.none() | st.integers(-2, 2))
    return call(x, None if k is None else np.array(k), upper=draw(st.integers(0, 1)))


@cases(unique, gradient=False)
def unique_cases(draw):
    return call(np.floor(draw(tensors(min_rank=1, max_rank=1, max_side=8))))


@cases(sample_op)
def sample_op_cases(draw):
    return call(draw(tensors(FLOATS)))


@cases(torch_embedding)
def torch_embedding_cases(draw):
    weight = draw(tensors(FLOATS, min_rank=2, max_rank=2))
    rows = draw(tensors("int64", max_rank=3, min_value=0, max_value=len(weight) - 1))
    frequent = draw(st.sampled_from([{}, {"scale_grad_by_freq": 1}]))
    return call(weight, rows, np.array(0) if draw(st.booleans()) else None, **frequent)


@cases(unfold_tensor)
def unfold_tensor_cases(draw):
    x = draw(tensors([*FLOATS, "int32"], min_rank=1, max_rank=3))
    dim = draw(axis_of(x))
    return call(x, dim=dim, size=draw(st.integers(1, x.shape[dim])), step=draw(st.integers(1, 2)))
