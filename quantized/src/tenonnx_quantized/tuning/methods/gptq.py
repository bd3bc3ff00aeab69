"""GPTQ: rounding row by row, with each error compensated in the rows that follow."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_quantized.tuning.methods.layer import Layer
from tenonnx_quantized.tuning.quantized_tensor import round_units

Array = np.ndarray[Any, Any]

#: Rows in a block, whose updates of later rows are applied at once.
_BLOCK = 128


def gptq(layer: Layer) -> Array:
    """Round by GPTQ (Frantar et al. 2022, arXiv:2210.17323): the rows of greatest second moment come first ("act
    order"), by the Cholesky factor of the inverse moment; scales of groups are those of the original weights, so that
    the result needs no index of groups. Columns for which rounding to nearest has a smaller error keep that."""
    rows = len(layer.weights)
    order = np.argsort(-np.diagonal(layer.moment), kind="stable")
    moment = layer.damped()[np.ix_(order, order)].astype(np.float64)
    factor = _upper_factor_of_inverse(moment)
    weights = layer.weights[order].astype(np.float64)
    scale, zero = (layer.spread(each)[order].astype(np.float64) for each in (layer.scale, layer.zero_point))
    quantized = np.empty_like(weights)
    for start in range(0, rows, _BLOCK):
        stop = min(start + _BLOCK, rows)
        errors = np.empty((stop - start, weights.shape[1]))
        for row in range(start, stop):
            near = round_units(weights[row] / scale[row], zero[row], layer.dtype)
            error = (weights[row] - (near - zero[row]) * scale[row]) / factor[row, row]
            weights[row + 1 : stop] -= factor[row, row + 1 : stop, None] * error
            quantized[row], errors[row - start] = near, error
        weights[stop:] -= factor[start:stop, stop:].T @ errors
    result = np.empty_like(quantized)
    result[order] = quantized
    return better_of(layer, result, layer.nearest())


def _upper_factor_of_inverse(moment: Array) -> Array:
    """The upper triangular U with Uᵀ U = M⁻¹, for a positive definite matrix M."""
    return _inverse_of_upper(np.linalg.cholesky(moment[::-1, ::-1])[::-1, ::-1])


def _inverse_of_upper(matrix: Array) -> Array:
    """The inverse of an upper triangular matrix, by recursive halving, so that most work is matrix products."""
    if len(matrix) <= 64:
        return np.linalg.inv(matrix)
    half = len(matrix) // 2
    inverse = np.zeros_like(matrix)
    first = inverse[:half, :half] = _inverse_of_upper(matrix[:half, :half])
    second = inverse[half:, half:] = _inverse_of_upper(matrix[half:, half:])
    inverse[:half, half:] = -first @ (matrix[:half, half:] @ second)
    return inverse


def better_of(layer: Layer, one: Array, other: Array) -> Array:
    """For each column, the one with the smaller error of the layer's output."""
    return np.where(layer.errors(one) <= layer.errors(other), one, other)
