"""Dropout fused with a bias and a residual connection, and with bit masks."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Value, constant, op


@op("BiasDropout", domain="com.microsoft", pure=False)
def bias_dropout(data, bias, residual=None, ratio=None, training_mode=None, *, seed: int | None = None, _outputs=None):
    """Dropout of ``data + bias``, plus ``residual``; also returns the mask."""
    return _dropped(data + bias, residual, ratio, training_mode, seed, _outputs)


@op("BitmaskDropout", domain="com.microsoft", pure=False)
def bitmask_dropout(data, ratio=None, training_mode=None, *, seed: int | None = None, _outputs=None):
    """Dropout with a mask packed into uint32, lowest bit first."""
    return _with_bits(_dropped(data, None, ratio, training_mode, seed, _outputs))


@op("BitmaskBiasDropout", domain="com.microsoft", pure=False)
def bitmask_bias_dropout(
    data, bias, residual=None, ratio=None, training_mode=None, *, seed: int | None = None, _outputs=None
):
    """BiasDropout with a mask packed into uint32, lowest bit first."""
    return _with_bits(_dropped(data + bias, residual, ratio, training_mode, seed, _outputs))


def _dropped(
    data: Value,
    residual: Value | None,
    ratio: Value | None,
    training_mode: Value | None,
    seed: int | None,
    outputs: Any,
) -> Any:
    found = ops.dropout(data, ratio, training_mode, seed=None if seed is None else int(seed), _outputs=outputs)
    y, *mask = found if isinstance(found, tuple) else (found,)
    y = y if residual is None else y + residual
    return (y, *mask) if mask else y


def _with_bits(found: Any) -> Any:
    if not isinstance(found, tuple):
        return found
    y, mask = found
    flat = ops.cast(ops.reshape(mask, [-1]), to=DType.int64)
    filled = ops.pad(flat, ops.concat([0], -ops.shape(flat) % 32, axis=0))
    bits = ops.reshape(filled, [-1, 32]) * constant(1 << np.arange(32))
    return y, ops.cast(ops.reduce_sum(bits, [1], keepdims=0), to=DType.uint32)
