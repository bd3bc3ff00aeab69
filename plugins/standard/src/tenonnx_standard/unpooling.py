"""The partial inverse of max pooling."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tenonnx.extend import Index, TensorType, TypeMismatch, constant, dims, elements, limits, op
from tenonnx_standard.checking import check_shape
from tenonnx_standard.joining import concat
from tenonnx_standard.padding import pad
from tenonnx_standard.scattering import scatter_elements
from tenonnx_standard.shapes import expand, reshape, shape
from tenonnx_standard.windows import Length, Windows, spatial, windows

if TYPE_CHECKING:
    from collections.abc import Sequence


@op("MaxUnpool", since=9, data_movement=True)
def max_unpool(
    X,
    I,  # noqa: E741
    output_shape: Index = None,
    *,
    kernel_shape: list[int],
    pads: list[int] | None = None,
    strides: list[int] | None = None,
):
    """Scatter the elements of ``X`` to the positions ``I`` at which MaxPool found them, in a tensor of zeros.

    ``I`` are flat indices of the tensor covered by the windows; ``output_shape`` appends zeros to it.
    """
    window = windows(max_unpool.title, kernel_shape, strides=strides, pads=pads)
    lengths = [*dims(X)[:2], *_unpooled(window, dims(X)[2:])]
    count = lengths[0]
    for length in lengths[1:]:
        count = count * length
    zeros = expand(constant(np.zeros(1), X.dtype), [count])
    flat = scatter_elements(zeros, reshape(I, [-1]), reshape(X, [-1]), axis=0)
    result = reshape(flat, lengths)
    if output_shape is None:
        return result
    return pad(result, concat(constant(np.zeros(X.ndim, np.int64)), output_shape - shape(result), axis=0))


def _unpooled(window: Windows, sizes: Sequence[Length]) -> list[Length]:
    begins, ends = window.pads[: window.rank], window.pads[window.rank :]
    return [
        None if n is None else (n - 1) * s + (e - b - f)
        for n, s, e, b, f in zip(sizes, window.strides, window.extents, begins, ends, strict=True)
    ]


@max_unpool.type
def max_unpool_type(X, I, output_shape=None, *, kernel_shape, **attributes):  # noqa: E741
    window = windows(max_unpool.title, kernel_shape, **attributes)
    if not I.dtype.is_integer:
        raise TypeMismatch(f"{max_unpool.title}: I does not hold int64 indices", given=repr(I))
    sizes = spatial(max_unpool.title, X)
    if sizes is None:
        return X.tensor
    check_shape(max_unpool, "I", I, X.shape)
    if len(sizes) != window.rank:
        raise TypeMismatch(
            f"{max_unpool.title}: kernel_shape does not have one size for each spatial axis of X",
            given=f"{list(kernel_shape)}, {X!r}",
        )
    if output_shape is not None:
        check_shape(max_unpool, "output_shape", output_shape, (X.ndim,))
        contents = elements(output_shape)
        return TensorType(X.dtype, (None,) * X.ndim if contents is None else tuple(contents))
    return TensorType(X.dtype, (*X.shape[:2], *_unpooled(window, sizes)))


@max_unpool.numpy
def max_unpool_numpy(X, I, output_shape=None, *, kernel_shape, **attributes):  # noqa: E741
    window = windows(max_unpool.title, kernel_shape, **attributes)
    lengths = (*X.shape[:2], *_unpooled(window, X.shape[2:]))
    result = np.zeros(math.prod(limits.sized(lengths, max_unpool.title)), X.dtype)
    if I.size and not (-result.size <= I.min() and I.max() < result.size):
        raise TypeMismatch(
            f"{max_unpool.title}: I holds an index outside the unpooled tensor", given=f"{I.max()} of {lengths}"
        )
    result[I.reshape(-1)] = X.reshape(-1)
    result = result.reshape(lengths)
    if output_shape is None:
        return result
    whole = np.zeros(limits.sized(output_shape, max_unpool.title), X.dtype)
    inside = tuple(slice(0, min(a, b)) for a, b in zip(whole.shape, lengths, strict=True))
    whole[inside] = result[inside]
    return whole
