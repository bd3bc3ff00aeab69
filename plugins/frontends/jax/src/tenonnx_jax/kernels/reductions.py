"""Reductions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import tenonnx_standard as ops
from tenonnx_jax.kernels import axes_of, is_float, rule

Reduction = Callable[[Any, tuple[int, ...], bool], Any]


def _reducing(function: Reduction) -> Callable[..., Any]:
    def reduced(data: Any, axes: Any, *, keepdims: int, noop_with_empty_axes: int) -> Any:
        given = None if axes is None or not axes.size else axes
        if (given is None and noop_with_empty_axes) or not data.ndim:
            return data
        return function(data, axes_of(given, data.ndim), bool(keepdims))

    return reduced


def _bound(function: Any) -> Reduction:
    def found(x: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
        return function(x, axes, keepdims=keepdims) if x.size else NotImplemented

    return found


def _mean(x: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    return jnp.mean(x, axes, keepdims=keepdims) if is_float(x) else NotImplemented


rule(ops.reduce_sum)(_reducing(lambda x, axes, keepdims: jnp.sum(x, axes, keepdims=keepdims, dtype=x.dtype)))
rule(ops.reduce_prod)(_reducing(lambda x, axes, keepdims: jnp.prod(x, axes, keepdims=keepdims, dtype=x.dtype)))
rule(ops.reduce_mean)(_reducing(_mean))
rule(ops.reduce_max)(_reducing(_bound(jnp.max)))
rule(ops.reduce_min)(_reducing(_bound(jnp.min)))


def _extremum(function: Any) -> Callable[..., Any]:
    def position(x: Any, *, axis: int, keepdims: int, select_last_index: int) -> Any:
        if not x.ndim or not x.size or x.dtype == bool:
            return NotImplemented
        y = jnp.flip(x, axis) if select_last_index else x
        found = function(y, axis, keepdims=bool(keepdims))
        found = x.shape[axis] - 1 - found if select_last_index else found
        return found.astype(jax.dtypes.canonicalize_dtype(jnp.int64))

    return position


rule(ops.argmax)(_extremum(jnp.argmax))
rule(ops.argmin)(_extremum(jnp.argmin))
