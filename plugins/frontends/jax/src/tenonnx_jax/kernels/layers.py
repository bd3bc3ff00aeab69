"""Layers: matrix products, convolutions, pooling, normalization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import tenonnx_standard as ops
from tenonnx.extend import Value
from tenonnx_jax.kernels import filled, rule


@rule(ops.matmul)
def matmul_rule(a: Any, b: Any) -> Any:
    return jnp.matmul(a, b, preferred_element_type=a.dtype)


@rule(ops.gemm, takes=lambda a, *others, **attributes: a.dtype.is_float)
def gemm_rule(a: Any, b: Any, c: Any, *, alpha: float, beta: float, transA: int, transB: int) -> Any:
    result = (a.T if transA else a) @ (b.T if transB else b)
    result = result * jnp.asarray(alpha, a.dtype) if alpha != 1.0 else result
    return result if c is None else result + (c * jnp.asarray(beta, a.dtype) if beta != 1.0 else c)


@rule(ops.einsum, takes=lambda *inputs, equation: inputs[0].dtype.is_float)
def einsum_rule(*inputs: Any, equation: str) -> Any:
    return jnp.einsum(equation, *inputs)


@rule(ops.softmax)
def softmax_rule(x: Any, *, axis: int) -> Any:
    return jax.nn.softmax(x, axis)


@rule(ops.log_softmax)
def log_softmax_rule(x: Any, *, axis: int) -> Any:
    return jax.nn.log_softmax(x, axis)


# ----- windows --------------------------------------------------------------------------------------------------------


def _is_image(x: Value) -> bool:
    return x.rank is not None and x.rank >= 3 and x.dtype.is_float


def _pads(
    sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], pads: Any, auto: str
) -> list[tuple[int, int]]:
    """Padding before and after each axis of an image."""
    rank = len(kernel)
    if auto not in ("SAME_UPPER", "SAME_LOWER"):
        numbers = filled(None if auto == "VALID" else pads, 0, 2 * rank)
        return list(zip(numbers[:rank], numbers[rank:], strict=True))
    both = []
    for size, k, s, d in zip(sizes, kernel, strides, dilations, strict=True):
        missing = max(0, (-(-size // s) - 1) * s + (k - 1) * d + 1 - size)
        less = missing // 2
        both.append((less, missing - less) if auto == "SAME_UPPER" else (missing - less, less))
    return both


@rule(ops.conv, takes=lambda x, w, b=None, **attributes: _is_image(x))
def conv_rule(x: Any, w: Any, b: Any, *, auto_pad: str, group: int, **given: Any) -> Any:
    rank = x.ndim - 2
    strides, dilations = filled(given["strides"], 1, rank), filled(given["dilations"], 1, rank)
    pads = _pads(x.shape[2:], w.shape[2:], strides, dilations, given["pads"], auto_pad)
    result = lax.conv_general_dilated(x, w, strides, pads, rhs_dilation=dilations, feature_group_count=group)
    return result if b is None else result + b.reshape(-1, *[1] * rank)


def _plain_transpose(x: Value, w: Value, b: Value | None = None, **given: Any) -> bool:
    return _is_image(x) and given["auto_pad"] in ("NOTSET", "VALID") and given["output_shape"] is None


@rule(ops.conv_transpose, takes=_plain_transpose)
def conv_transpose_rule(x: Any, w: Any, b: Any, *, group: int, **given: Any) -> Any:
    rank = x.ndim - 2
    strides, dilations = filled(given["strides"], 1, rank), filled(given["dilations"], 1, rank)
    extra, pads = filled(given["output_padding"], 0, rank), filled(given["pads"], 0, 2 * rank)
    spread = [(k - 1) * d for k, d in zip(w.shape[2:], dilations, strict=True)]
    both = [
        (s - before, s - behind + more)
        for s, before, behind, more in zip(spread, pads[:rank], pads[rank:], extra, strict=True)
    ]
    parts = w.reshape(group, w.shape[0] // group, *w.shape[1:])
    kernel = jnp.flip(jnp.swapaxes(parts, 1, 2), range(3, 3 + rank)).reshape(-1, w.shape[0] // group, *w.shape[2:])
    result = lax.conv_general_dilated(
        x, kernel, [1] * rank, both, lhs_dilation=strides, rhs_dilation=dilations, feature_group_count=group
    )
    return result if b is None else result + b.reshape(-1, *[1] * rank)


def _plain_pool(x: Value, *, ceil_mode: int, **given: Any) -> bool:
    return _is_image(x) and not ceil_mode and given.get("_outputs", 1) == 1


def _windows(x: Any, start: Any, function: Any, kernel: Sequence[int], given: Any, auto_pad: str) -> tuple[Any, Any]:
    """Result of ``function`` on each window, and the number of image elements in each."""
    rank = len(kernel)
    strides, dilations = filled(given["strides"], 1, rank), filled(given.get("dilations"), 1, rank)
    pads = _pads(x.shape[2:], kernel, strides, dilations, given["pads"], auto_pad)
    window = {"window_dilation": (1, 1, *dilations), "padding": ((0, 0), (0, 0), *pads)}
    result = lax.reduce_window(x, start, function, (1, 1, *kernel), (1, 1, *strides), **window)
    count = np.ones((), x.dtype)
    for size, length, k, stride, dilation, (before, _) in zip(
        x.shape[2:], result.shape[2:], kernel, strides, dilations, pads, strict=True
    ):
        places = np.arange(length)[:, None] * stride - before + np.arange(k) * dilation
        count = count[..., None] * ((places >= 0) & (places < size)).sum(1)
    return result, count.astype(x.dtype)


@rule(ops.max_pool, takes=_plain_pool)
def max_pool_rule(x: Any, *, kernel_shape: list[int], auto_pad: str, **given: Any) -> Any:
    return _windows(x, np.array(-np.inf, x.dtype), lax.max, kernel_shape, given, auto_pad)[0]


@rule(ops.average_pool, takes=_plain_pool)
def average_pool_rule(x: Any, *, kernel_shape: list[int], auto_pad: str, count_include_pad: int, **given: Any) -> Any:
    sums, count = _windows(x, np.array(0, x.dtype), lax.add, kernel_shape, given, auto_pad)
    return sums / (np.array(np.prod(kernel_shape), x.dtype) if count_include_pad else count)


@rule(ops.global_average_pool)
def global_average_pool_rule(x: Any) -> Any:
    return jnp.mean(x, tuple(range(2, x.ndim)), keepdims=True)


# ----- normalization --------------------------------------------------------------------------------------------------


def _evaluates(*inputs: Value, training_mode: int, **attributes: Any) -> bool:
    return not training_mode and len({v.dtype for v in inputs}) == 1


@rule(ops.batch_normalization, takes=_evaluates)
def batch_normalization_rule(x: Any, *parameters: Any, epsilon: float, **attributes: Any) -> Any:
    scale, bias, mean, variance = (p.reshape(-1, *[1] * (x.ndim - 2)) for p in parameters)
    return (x - mean) * (lax.rsqrt(variance + jnp.asarray(epsilon, x.dtype)) * scale) + bias
