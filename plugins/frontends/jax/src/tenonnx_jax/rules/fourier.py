"""Fourier transforms, as products with matrices of roots of unity."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import NotRepresentable, Value, constant
from tenonnx_jax.rules import of_parts
from tenonnx_jax.rules.shapes import transposed
from tenonnx_jax.types import Parts

#: Maximum length of a transform as one product; longer ones are factored.
_LONGEST = 4096


def _roots(rows: int, columns: int, length: int, sign: int, dtype: Any) -> tuple[Value, Value]:
    cosine, sine = _waves(rows, columns, length)
    return constant(cosine.astype(dtype)), constant((sign * sine + 0.0).astype(dtype))


def _waves(rows: int, columns: int, length: int) -> list[Any]:
    """Cosines and sines, exact at quarter turns: the spectrum of real numbers has zeros there, and angles their sign."""
    turns = np.outer(np.arange(rows), np.arange(columns)) % length
    angle, quarters = 2 * np.pi * turns / length, 4 * turns % length == 0
    return [np.where(quarters, np.round(wave), wave) + 0.0 for wave in (np.cos(angle), np.sin(angle))]


@of_parts("fft")
def fft_of_parts(equation: Any, x: Any, *, fft_type: Any, fft_lengths: Any, **_: Any) -> Any:
    kind = str(fft_type).rpartition(".")[2].upper()
    kind = {"0": "FFT", "1": "IFFT", "2": "RFFT", "3": "IRFFT"}.get(kind, kind)
    lengths = [int(n) for n in fft_lengths]
    if max(lengths, default=1) > _LONGEST:
        raise NotRepresentable(
            f"a Fourier transform has more than {_LONGEST} elements along an axis", given=str(lengths)
        )
    rank = len(equation.ins[0].shape)
    axes = list(range(rank - len(lengths), rank))
    if kind == "RFFT":
        result = _along(equation, Parts((x, None)), axes[-1], lengths[-1], lengths[-1] // 2 + 1, -1)
        axes, lengths = axes[:-1], lengths[:-1]
    else:
        result = x
    sign = 1 if kind.startswith("I") else -1
    last = kind == "IRFFT"
    for axis, length in list(zip(axes, lengths, strict=True))[: -1 if last else None]:
        result = _scaled(_along(equation, result, axis, length, length, sign), length if sign > 0 else 1)
    if not last:
        return result
    return _real_of_half(result, axes[-1], lengths[-1])


def _along(equation: Any, z: Any, axis: int, length: int, kept: int, sign: int) -> Parts:
    real, imaginary = z
    cosine, sine = _roots(length, kept, length, sign, real.dtype.numpy)
    parts = [_product(real, cosine, axis), _product(real, sine, axis)]
    if imaginary is not None:
        parts[0] = ops.sub(parts[0], _product(imaginary, sine, axis))
        parts[1] = ops.add(parts[1], _product(imaginary, cosine, axis))
    return Parts(parts)


def _product(x: Value, matrix: Value, axis: int) -> Value:
    last = x.ndim - 1
    if axis == last:
        return ops.matmul(x, matrix)
    swapped = list(range(x.ndim))
    swapped[axis], swapped[last] = last, axis
    return transposed(ops.matmul(transposed(x, swapped), matrix), swapped)


def _scaled(z: Parts, length: int) -> Parts:
    if length == 1:
        return z
    return Parts(ops.div(part, constant(np.asarray(length, part.dtype.numpy))) for part in z)


def _real_of_half(z: Any, axis: int, length: int) -> Value:
    """The inverse of a real transform from its nonredundant half, where all other bins count twice."""
    half = length // 2 + 1
    weight = np.full((half, 1), 2.0)
    weight[0] = 1
    if length % 2 == 0:
        weight[-1] = 1
    dtype = z[0].dtype.numpy
    cosine, sine = (constant((weight * wave / length).astype(dtype)) for wave in _waves(half, length, length))
    return ops.sub(_product(z[0], cosine, axis), _product(z[1], sine, axis))
