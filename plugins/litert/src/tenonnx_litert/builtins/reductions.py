"""Reductions, cumulative sums, ARG_MAX, ARG_MIN and TOPK_V2."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Value, static
from tenonnx_litert.builtins.builtin import as_int64, builtin


def _axis(value: Value) -> int:
    return int(np.reshape(static(value), -1)[0])


@builtin("MEAN", "ReducerOptions")
def mean(input, axis, *, keep_dims=0):
    return ops.reduce_mean(input, as_int64(axis), keepdims=keep_dims)


@builtin("SUM", "ReducerOptions")
def sum_(input, axis, *, keep_dims=0):
    return ops.reduce_sum(input, as_int64(axis), keepdims=keep_dims)


@builtin("REDUCE_PROD", "ReducerOptions")
def reduce_prod(input, axis, *, keep_dims=0):
    return ops.reduce_prod(input, as_int64(axis), keepdims=keep_dims)


@builtin("REDUCE_MAX", "ReducerOptions")
def reduce_max(input, axis, *, keep_dims=0):
    return ops.reduce_max(input, as_int64(axis), keepdims=keep_dims)


@builtin("REDUCE_MIN", "ReducerOptions")
def reduce_min(input, axis, *, keep_dims=0):
    return ops.reduce_min(input, as_int64(axis), keepdims=keep_dims)


@builtin("REDUCE_ANY", "ReducerOptions")
def reduce_any(input, axis, *, keep_dims=0):
    return ops.reduce_max(input, as_int64(axis), keepdims=keep_dims)


@builtin("REDUCE_ALL", "ReducerOptions")
def reduce_all(input, axis, *, keep_dims=0):
    return ops.reduce_min(input, as_int64(axis), keepdims=keep_dims)


@builtin("ARG_MAX", "ArgMaxOptions")
def arg_max(input, dimension, *, output_type="int32"):
    return _as(ops.argmax(input, axis=_axis(dimension), keepdims=0), output_type)


@builtin("ARG_MIN", "ArgMinOptions")
def arg_min(input, dimension, *, output_type="int32"):
    return _as(ops.argmin(input, axis=_axis(dimension), keepdims=0), output_type)


def _as(value: Value, kind: str) -> Any:
    return value if kind == "int64" else ops.cast(value, to=DType[kind])


@builtin("CUMSUM", "CumsumOptions")
def cumsum(input, axis, *, exclusive=0, reverse=0):
    return ops.cumsum(input, as_int64(axis), exclusive=exclusive, reverse=reverse)


@builtin("TOPK_V2", "TopKV2Options")
def topk_v2(input, k):
    """The ``k`` largest elements along the last axis in descending order, and their positions."""
    values, indices = ops.top_k(input, ops.reshape(as_int64(k), [1]), axis=-1)
    return values, ops.cast(indices, to=DType.int32)
