"""Cases of TopK, OneHot and Unique."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_standard.selection import argmax, argmin, one_hot, one_hot_unsigned, top_k, unique
from tenonnx_testing import axis_of, call, cases, tensors

NUMBERS = ["float32", "float64", "float16", "int32", "int64", "int8", "uint8"]


def position(draw):
    x = draw(tensors([*NUMBERS, "bfloat16"], min_rank=1))
    return call(x, axis=draw(axis_of(x)), keepdims=draw(st.integers(0, 1)), select_last_index=draw(st.integers(0, 1)))


cases(argmax)(position)
cases(argmin)(position)


@cases(top_k)
def top_k_cases(draw):
    dtype = draw(st.sampled_from([*NUMBERS, "uint32", "bfloat16"]))
    x = draw(tensors(dtype, min_rank=1, max_rank=3, distinct="float" in dtype))
    axis = draw(axis_of(x))
    count = np.asarray([draw(st.integers(1, x.shape[axis]))], np.int64)
    return call(x, count, axis=axis, largest=draw(st.integers(0, 1)), sorted=1)


def one_hot_of(draw, lowest):
    size = draw(st.integers(1, 5))
    places = draw(
        tensors(
            ["int64", "int32", "float32", "uint8"],
            min_rank=1,
            max_rank=3,
            min_value=lowest * size - 1,
            max_value=size + 1,
        )
    )
    places = np.trunc(places).astype(places.dtype)
    if not lowest:
        places = np.where(places < 0, size, places).astype(places.dtype)
    depth = np.asarray(size, draw(st.sampled_from([np.int64, np.int32, np.float32])))
    values = draw(tensors(["float32", "int64", "bool", "string"], shape=(2,)))
    shape = draw(st.sampled_from([(), (1,)]))
    return call(places, depth.reshape(shape), values, axis=draw(st.integers(-places.ndim - 1, places.ndim)))


@cases(one_hot, gradient=["values"])
def one_hot_cases(draw):
    return one_hot_of(draw, -1)


@cases(one_hot_unsigned, gradient=["values"])
def one_hot_unsigned_cases(draw):
    return one_hot_of(draw, 0)


@cases(unique)
def unique_cases(draw):
    dtype = draw(st.sampled_from(["float32", "float64", "int64", "int8", "string", "float16", "bool"]))
    x = draw(tensors(dtype, min_rank=1, max_rank=3, distinct="float" in dtype, min_value=-1, max_value=1))
    return call(x, axis=draw(st.one_of(st.none(), axis_of(x))), sorted=draw(st.integers(0, 1)))
