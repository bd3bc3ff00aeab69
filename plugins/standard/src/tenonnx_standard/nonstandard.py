"""Ops of the default domain that occur in models but not in the specification.

The first ones are former experimental ops of ONNX, which onnxruntime still runs. Exporters emit the others. An export
to an opset leaves none of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx.extend import (
    DType,
    Index,
    Op,
    TypeMismatch,
    Value,
    at_least,
    constant,
    differ,
    dims,
    floats,
    holds,
    limits,
    op,
    shapes,
    vector,
)
from tenonnx_standard.activation import softplus
from tenonnx_standard.casting import cast, cast_like
from tenonnx_standard.constants import range_
from tenonnx_standard.cumulative import cumsum
from tenonnx_standard.deformable import deform_conv
from tenonnx_standard.joining import concat
from tenonnx_standard.logic import bitshift, equal, less, where
from tenonnx_standard.math import minimum
from tenonnx_standard.padding import pad
from tenonnx_standard.reduction import reduce_max, reduce_sum
from tenonnx_standard.selection import argmax
from tenonnx_standard.shapes import expand, identity, reshape, squeeze, transpose, unsqueeze
from tenonnx_standard.slicing import gather, gather_nd, non_zero, slice_
from tenonnx_standard.trigonometry import tanh
from tenonnx_standard.windows import windows

# ----- former experimental ops ----------------------------------------------------------------------------------------


@op("Affine", specified=False)
def affine(X, *, alpha=1.0, beta=0.0):
    """``alpha * X + beta``."""
    return X * alpha + beta


@op("Scale", specified=False)
def scale(input, *, scale=1.0):
    """``input`` times a constant."""
    return input * scale


@op("ScaledTanh", specified=False)
def scaled_tanh(input, *, alpha=1.0, beta=1.0):
    """``alpha * tanh(beta * input)``."""
    return tanh(input * beta) * alpha


@op("ParametricSoftplus", specified=False)
def parametric_softplus(X, *, alpha=1.0, beta=1.0):
    """``alpha * ln(1 + exp(beta * X))``."""
    return softplus(X * beta) * alpha


@op("ImageScaler", specified=False)
def image_scaler(input, *, bias, scale=1.0):
    """Scale images and add a ``bias`` per channel."""
    return input * scale + constant(np.asarray(bias).reshape(-1, 1, 1), input.dtype)


image_scaler.requires(
    shapes(input="batch channels height width"),
    holds(
        lambda bias, channels: "bias does not have one number for each channel" if differ(channels, len(bias)) else None
    ),
)


@op("Crop", specified=False, data_movement=True)
def crop(input, *, border, scale=None):
    """Crop a ``border`` (left, top, right, bottom) off images.

    With ``scale``, the result has that height and width, starting at the left and top border.
    """
    left, top, right, bottom = border
    height, width = dims(input)[2:]
    ends = [top + scale[0], left + scale[1]] if scale else [height - bottom, width - right]
    for begin, end, size in zip((top, left), ends, (height, width), strict=True):
        if isinstance(end, int) and not (0 <= begin <= end and (not isinstance(size, int) or end <= size)):
            given = f"{input!r}, border={border}, scale={scale}"
            raise TypeMismatch(f"{crop.title}: cropped region lies outside the image", given=given)
    return slice_(input, [top, left], ends, [2, 3])


crop.requires(
    shapes(input="batch channels height width"),
    holds(lambda border: None if len(border) == 4 else "border does not have four numbers"),
    holds(lambda scale: None if len(scale or (1, 1)) == 2 else "scale does not have two numbers"),
)


@op("DynamicSlice", specified=False, data_movement=True)
def dynamic_slice(data, starts: Index, ends: Index, axes: Index = None):
    """Slice without steps, a former experimental op."""
    return slice_(data, starts, ends, axes)


@op("MemcpyFromHost", specified=False, data_movement=True)
def memcpy_from_host(X):
    """Copy ``X`` from host to device memory, inserted by onnxruntime into optimized models; the identity here."""
    return identity(X)


@op("MemcpyToHost", specified=False, data_movement=True)
def memcpy_to_host(X):
    """Copy ``X`` from device to host memory; the identity here. See MemcpyFromHost."""
    return identity(X)


# ----- alternative names ----------------------------------------------------------------------------------------------


@op("Bitshift", broadcasts=True, specified=False)
def bitshift_alias(X, Y, *, direction):
    """BitShift under another name."""
    return bitshift(X, Y, direction=direction)


@op("DeformableConv", specified=False)
def deformable_conv(
    X,
    W,
    offset,
    B=None,
    mask=None,
    *,
    dilations=None,
    group=1,
    kernel_shape=None,
    offset_group=1,
    pads=None,
    strides=None,
):
    """DeformConv under another name."""
    return deform_conv(
        X,
        W,
        offset,
        B,
        mask,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        offset_group=offset_group,
        pads=pads,
        strides=strides,
    )


# ----- windows --------------------------------------------------------------------------------------------------------


@op("AdaptiveAvgPool", specified=False)
def adaptive_average_pool(X, *, output_size):
    """The means over ``output_size`` windows per spatial axis, which cover it and may overlap by one element."""
    return _adaptive(X, output_size, 0.0, reduce_sum)


@op("AdaptiveMaxPool", specified=False)
def adaptive_max_pool(X, *, output_size):
    """The maxima over the windows of AdaptiveAvgPool."""
    return _adaptive(X, output_size, -np.inf, reduce_max)


def _adaptive(x: Value, output_size: Any, neutral: float, reduce: Op) -> Value:
    """Window ``k`` of ``n`` on an axis of length ``L`` is from ``floor(k L / n)`` to ``ceil((k + 1) L / n)``."""
    rank = x.ndim - 2
    counts = [output_size] * rank if isinstance(output_size, int) else list(output_size)
    limits.check_elements(counts, "a pool")
    for axis, count in enumerate(counts, 2):
        size = dims(x)[axis]
        begins, ends = (constant(np.arange(count)[:, None] + k, DType.int64) * size for k in (0, 1))
        begins, ends = begins / count, (ends + (count - 1)) / count
        places = begins + range_(0, (size + (count - 1)) // count + 1, 1)
        taken = gather(x, minimum(places, size - 1), axis=axis)
        later = list(range(2, x.ndim - axis + 1))
        x = reduce(where(unsqueeze(less(places, ends), later), taken, neutral), [axis + 1])
        if reduce is reduce_sum:
            x = x / cast_like(unsqueeze(ends - begins, later), x)
        x = squeeze(x, [axis + 1])
    return x


def _sizes_fit(X: Value, output_size: Any) -> str | None:
    fits = X.rank is None or isinstance(output_size, int) or len(output_size) == X.ndim - 2
    return None if fits else "output_size does not have one size for each spatial axis"


for _pool in (adaptive_average_pool, adaptive_max_pool):
    _pool.requires(shapes(X="batch channels _ ..."), floats("X"), at_least(output_size=1), holds(_sizes_fit))


@op("Im2Col", specified=False, data_movement=True)
def im2col(
    X,
    *,
    dilations: list[int] | None = None,
    kernel_shape: list[int],
    pads: list[int] | None = None,
    strides: list[int] | None = None,
):
    """The windows of ``X`` as columns: (batch, channels * kernel size, windows); the transpose of Col2Im."""
    window = windows(im2col.title, kernel_shape, strides=strides, dilations=dilations, pads=pads)
    batch, channels, *sizes = dims(X)
    counts = window.outputs(sizes)
    begins, ends = window.padding(sizes)
    padded = pad(X, [0, 0, *begins, 0, 0, *ends]) if any(window.pads) else X
    columns = []
    for offset in window.offsets:
        first = [place * d for place, d in zip(offset, window.dilations, strict=True)]
        last = [f + (n - 1) * s + 1 for f, n, s in zip(first, counts, window.strides, strict=True)]
        tap = slice_(padded, first, last, list(range(2, X.ndim)), list(window.strides))
        columns.append(unsqueeze(tap, [2]))
    count = counts[0]
    for n in counts[1:]:
        count = count * n
    return reshape(concat(*columns, axis=2), [batch, channels * len(columns), count])


def _kernel_fits(X: Value, kernel_shape: list[int]) -> str | None:
    fits = X.rank in (None, len(kernel_shape) + 2)
    return None if fits else "kernel_shape does not have one size for each spatial axis"


im2col.requires(holds(_kernel_fits))


# ----- decoding -------------------------------------------------------------------------------------------------------


@op("CTCGreedyDecoder", specified=False)
def ctc_greedy_decoder(inputs, sequence_length, *, blank_index=-1, merge_repeated=0):
    """The most likely class of each step, without blanks and optionally without repetitions (Graves et al., 2006).

    ``inputs`` are (steps, batch, classes). As in TensorFlow, the outputs are the indices, values and shape of a sparse
    matrix of classes, and for each sequence the negated sum of its maximum inputs.
    """
    steps, batch, classes = dims(inputs)
    step = unsqueeze(range_(0, steps, 1), [0])
    reached = less(step, unsqueeze(cast(sequence_length, to=DType.int64), [1]))
    best = transpose(argmax(inputs, axis=2, keepdims=0), perm=[1, 0])
    kept = reached & ~equal(best, blank_index if blank_index >= 0 else classes + blank_index)
    if merge_repeated:
        nothing = expand(constant(-1, DType.int64), [batch, 1])
        kept = kept & ~equal(best, concat(nothing, best, axis=1)[:, :-1])
    found = transpose(non_zero(kept), perm=[1, 0])
    counts = cumsum(cast(kept, to=DType.int64), 1)
    places = gather_nd(counts, found) - 1
    longest = reduce_max(concat(constant([0], DType.int64), reshape(counts, [-1]), axis=0), [0])
    greatest = transpose(reduce_max(inputs, [2], keepdims=0), perm=[1, 0])
    return (
        concat(found[:, :1], unsqueeze(places, [1]), axis=1),
        gather_nd(best, found),
        concat(vector([batch]), longest, axis=0),
        -reduce_sum(where(reached, greatest, 0.0), [1]),
    )


ctc_greedy_decoder.requires(shapes(inputs="steps batch classes", sequence_length="batch"))
