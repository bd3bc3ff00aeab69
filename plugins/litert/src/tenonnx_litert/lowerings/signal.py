"""Fourier transforms of known lengths, as products with constant matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Value, constant, static
from tenonnx_litert.lowerings.registry import as_floats, lowers, sizes, unless

#: Maximum number of elements of a matrix in the file.
_LARGEST = 1 << 24


def _matrix(length: int, parts: int, *, onesided: int, inverse: int = 0) -> Any:
    """The matrix of the discrete Fourier transform, of shape (length times parts, bins, 2)."""
    unless((length * parts) ** 2 > _LARGEST, "the transform is too long for a matrix")
    unless(bool(onesided and inverse), "the inverse of half a spectrum is not supported")
    waves = (np.fft.ifft if inverse else np.fft.fft)(np.eye(length))
    if onesided:
        waves = waves[:, : length // 2 + 1]
    units = np.stack([waves, 1j * waves], 1)[:, :parts].reshape(length * parts, -1)
    return np.stack([units.real, units.imag], -1)


@lowers(ops.dft)
def dft(x: Value, dft_length: Value | None, axis: Value | None, *, inverse: int, onesided: int) -> Any:
    as_floats(x)
    place = -2 if axis is None else static(axis)
    unless(place is None, "the axis is computed")
    at = int(np.reshape(place, -1)[0]) % x.ndim
    known = sizes(x)
    length, parts = known[at], known[-1]
    unless(dft_length is not None or length is None or parts is None, "the length is given or dynamic")
    matrix = _matrix(length, parts, inverse=inverse, onesided=onesided)
    others = [k for k in range(x.ndim - 1) if k != at]
    order = [*others, at, x.ndim - 1]
    leading = [ops.gather(ops.shape(x), constant(np.asarray([k]))) for k in others]
    rows = ops.reshape(ops.transpose(x, perm=order), [-1, length * parts])
    y = ops.matmul(rows, constant(matrix.reshape(len(matrix), -1).astype(np.float32)))
    shape = ops.concat(*leading, constant(np.asarray(matrix.shape[1:])), axis=0)
    return ops.transpose(ops.reshape(y, shape), perm=[order.index(k) for k in range(x.ndim)])


@lowers(ops.stft)
def stft(signal: Value, frame_step: Value, window: Value | None, frame_length: Value | None, *, onesided: int) -> Any:
    """STFT as a convolution with the windowed basis functions of the DFT."""
    as_floats(signal)
    unless(sizes(signal)[-1] != 1, "the signal is not real")
    step, factors = static(frame_step), None if window is None else static(window)
    unless(step is None or (window is not None and factors is None), "the step or the window is computed")
    length = None if frame_length is None else static(frame_length)
    if length is None:
        length = sizes(signal)[1] if factors is None else len(factors)
    unless(length is None, "the length of frames is dynamic")
    length = int(np.reshape(length, -1)[0])
    matrix = _matrix(length, 1, onesided=onesided)
    waves = matrix if factors is None else matrix * factors[:, None, None]
    kernels = constant(np.ascontiguousarray(waves.reshape(length, -1).T[:, None]).astype(np.float32))
    y = ops.conv(ops.transpose(signal, perm=[0, 2, 1]), kernels, strides=[int(np.reshape(step, -1)[0])])
    batch = ops.gather(ops.shape(y), constant(np.asarray([0])))
    shape = ops.concat(batch, constant(np.asarray([-1, *matrix.shape[1:]])), axis=0)
    return ops.reshape(ops.transpose(y, perm=[0, 2, 1]), shape)
