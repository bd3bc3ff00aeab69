"""Deformable convolution and Col2Im."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from tenonnx.extend import (
    DType,
    Index,
    TensorType,
    TypeMismatch,
    Value,
    constant,
    dims,
    dtypes,
    elements,
    limits,
    op,
    shapes,
    symbolic,
)
from tenonnx_standard.casting import cast
from tenonnx_standard.checking import dim_of, length
from tenonnx_standard.composites import as_shape
from tenonnx_standard.constants import range_
from tenonnx_standard.convolution import check_channels, conv, conv_transpose, kernel_of
from tenonnx_standard.image import sample, sample_array
from tenonnx_standard.linear_algebra import matmul
from tenonnx_standard.padding import pad
from tenonnx_standard.reduction import reduce_prod
from tenonnx_standard.scattering import scatter_nd
from tenonnx_standard.shapes import expand, reshape, size, transpose, unsqueeze
from tenonnx_standard.slicing import slice_
from tenonnx_standard.windows import (
    Length,
    Windows,
    of_no_products,
    one_float_dtype,
    spatial,
    tap_slices,
    widened,
    windows,
)

# ----- DeformConv -----------------------------------------------------------------------------------------------------


@op("DeformConv", since=19)
def deform_conv(
    X,
    W,
    offset,
    B=None,
    mask=None,
    *,
    dilations: list[int] | None = None,
    group=1,
    kernel_shape: list[int] | None = None,
    offset_group=1,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
):
    """A convolution that reads between the pixels, moved by ``offset`` and scaled by ``mask`` (Dai et al., 2017)."""
    title = deform_conv.title
    window = windows(title, kernel_of(title, W, kernel_shape), strides=strides, dilations=dilations, pads=pads)
    rank, places = window.rank, int(np.prod(window.kernel))
    batch, channels, *sizes = dims(X)
    outputs = dims(offset)[2:]
    if 0 in (*X.shape, *W.shape, *offset.shape):
        return of_no_products(X, B, [batch, dims(W)[0], *outputs])
    moved = reshape(offset, [batch * offset_group, places, rank, *outputs])
    positions = []
    for k in range(rank):
        start = cast(range_(0, outputs[k], 1) * window.strides[k] - window.pads[k], to=X.dtype)
        place = np.asarray([o[k] * window.dilations[k] for o in window.offsets]).reshape(1, -1, *(1,) * rank)
        grid = constant(place, X.dtype) + reshape(start, [-1, *(1,) * (rank - 1 - k)])
        positions.append(reshape(moved[:, :, k] + grid, [batch * offset_group, -1]))
    images = reshape(X, [batch * offset_group, channels // offset_group, *sizes])
    columns = reshape(sample(images, positions, "linear", "zeros", True), [batch, channels, places, -1])
    if mask is not None:
        scales = reshape(mask, [batch, offset_group, 1, places, -1])
        columns = reshape(columns, [batch, offset_group, channels // offset_group, places, -1]) * scales
    results, depth, *_ = dims(W)
    columns = reshape(columns, [batch, group, depth * places, -1])
    product = matmul(reshape(W, [group, results // group, depth * places]), columns)
    y = reshape(product, [batch, results, *outputs])
    return y if B is None else y + reshape(B, [-1, *(1,) * rank])


deform_conv.requires(shapes(W="_ _ ...", offset="_ _ ..."))


@deform_conv.type
def deform_conv_type(X, W, offset, B=None, mask=None, *, group, kernel_shape, offset_group, **attributes):
    title = deform_conv.title
    dtype = one_float_dtype(title, X, W, offset, B, mask)
    sizes = spatial(title, X)
    if sizes is None or W.rank is None:
        return TensorType(dtype, (None,) * X.ndim if sizes is not None else None)
    check_channels(title, X, W, B, group, symbolic.multiply(W.shape[1], group), W.shape[0])
    window = windows(title, kernel_of(title, W, kernel_shape), **attributes)
    outputs = tuple(window.outputs(sizes))
    count = offset_group * int(np.prod(window.kernel))
    for name, value, wanted in (("offset", offset, count * window.rank), ("mask", mask, count)):
        if value is None or value.rank is None:
            continue
        lengths = value.shape
        expected = (X.shape[0], wanted, *outputs)
        if len(lengths) != len(expected) or any(
            isinstance(a, int) and isinstance(b, int) and a != b for a, b in zip(lengths, expected, strict=True)
        ):
            shown = ", ".join("?" if n is None else str(n) for n in expected)
            raise TypeMismatch(f"{title}: {name} does not have the shape ({shown})", given=repr(value))
    return TensorType(dtype, (X.shape[0], W.shape[0], *outputs))


@deform_conv.numpy
def deform_conv_numpy(X, W, offset, B=None, mask=None, *, group, kernel_shape, offset_group, **attributes):
    window = windows(deform_conv.title, kernel_of(deform_conv.title, W, kernel_shape), **attributes)
    x, w, moved, b, scales = widened(X, W, offset, B, mask)
    rank, places = window.rank, int(np.prod(window.kernel))
    batch, channels, *sizes = x.shape
    outputs = offset.shape[2:]
    if 0 in (*x.shape, *w.shape, *offset.shape):
        y = np.zeros((batch, w.shape[0], *outputs), X.dtype)
        return y if B is None else y + B.reshape(-1, *(1,) * rank)
    moved = moved.reshape(batch * offset_group, places, rank, *outputs)
    positions = []
    for k in range(rank):
        start = (np.arange(outputs[k]) * window.strides[k] - window.pads[k]).astype(x.dtype)
        place = np.asarray([o[k] * window.dilations[k] for o in window.offsets], x.dtype).reshape(-1, *(1,) * rank)
        grid = place + start.reshape(-1, *(1,) * (rank - 1 - k))
        positions.append((moved[:, :, k] + grid).reshape(batch * offset_group, -1))
    images = x.reshape(batch * offset_group, channels // offset_group, *sizes)
    columns = sample_array(images, positions, "linear", "zeros", True)
    if scales is not None:
        columns = columns.reshape(batch, offset_group, channels // offset_group, -1)
        columns *= scales.reshape(batch, offset_group, 1, -1)
    weights = w.reshape(group, w.shape[0] // group, -1)
    y = np.matmul(weights, columns.reshape(batch, group, weights.shape[2], -1))
    y = y.reshape(batch, w.shape[0], *outputs)
    if b is not None:
        y += b.reshape(-1, *(1,) * rank)
    return y.astype(X.dtype, copy=False)


# ----- Col2Im ---------------------------------------------------------------------------------------------------------


@op("Col2Im", since=18)
def col2im(
    input,
    image_shape: Index,
    block_shape: Index,
    *,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
):
    """Sum overlapping blocks into images; each column of ``input`` contains one block of every channel."""
    rank = length(block_shape)
    if rank is not None and elements(block_shape) is None:
        window = windows(col2im.title, [1] * rank, strides=strides, dilations=dilations, pads=pads)
        return _scattered(input, image_shape, block_shape, window)
    window = _blocks(block_shape, strides=strides, dilations=dilations, pads=pads)
    image = _image(image_shape, window.rank)
    batch, depth, _ = dims(input)
    counts = window.outputs(image)
    places = math.prod(window.kernel)
    if input.dtype.is_float:
        eye = _each_place(window, input.dtype)
        blocks = as_shape(input, [batch * (depth // places), places, *counts])
        begins, _ends = window.padding(image)
        whole = conv_transpose(blocks, eye, strides=list(window.strides), dilations=list(window.dilations))
        return as_shape(_cut(whole, window, begins, image), [batch, depth // places, *image])
    blocks = as_shape(input, [batch, depth // places, places, *counts])
    lengths = [n + b + e for n, b, e in zip(image, *window.padding(image), strict=True)]
    total = None
    for place, offset in enumerate(window.offsets):
        part = _spread(blocks[:, :, place], window, offset, counts, lengths)
        total = part if total is None else total + part
    return _cut(total, window, window.padding(image)[0], image)


def _scattered(x: Value, image_shape: Value, block_shape: Value, window: Windows) -> Value:
    """Col2Im for block sizes known only at run time: scatter every element into the padded images."""
    rank = window.rank
    begins = window.pads[:rank]
    image, block = [image_shape[k] for k in range(rank)], [block_shape[k] for k in range(rank)]
    lengths = [n + (b + e) for n, b, e in zip(image, begins, window.pads[rank:], strict=True)]
    places: Any = None
    for k, (step, apart) in enumerate(zip(window.strides, window.dilations, strict=True)):
        count = (lengths[k] - (block[k] - 1) * apart - 1) / step + 1
        taps = reshape(range_(0, block[k], 1) * apart, [-1, *(1,) * (2 * rank - 1 - k)])
        place = taps + reshape(range_(0, count, 1) * step, [-1, *(1,) * (rank - 1 - k)])
        places = place if places is None else places * lengths[k] + place
    whole = functools.reduce(operator.mul, lengths)
    batch, depth, _ = dims(x)
    rows = reshape(x, [-1, size(places)])
    zeros = expand(constant(0, x.dtype), [whole, dim_of(rows, 0)])
    sums = transpose(scatter_nd(zeros, reshape(places, [-1, 1]), transpose(rows), reduction="add"))
    padded = reshape(sums, [batch, depth / reduce_prod(block_shape, keepdims=0), *lengths])
    ends = [b + n for b, n in zip(begins, image, strict=True)]
    return slice_(padded, list(begins), ends, list(range(2, rank + 2)))


def _blocks(block_shape: Any, **attributes: Any) -> Windows:
    contents = elements(block_shape) if isinstance(block_shape, Value) else [int(n) for n in block_shape]
    if contents is None or not all(isinstance(n, int) for n in contents):
        raise TypeMismatch(
            f"{col2im.title}: block_shape is not known", given=repr(block_shape), do="make it a constant"
        )
    return windows(col2im.title, contents, **attributes)


def _each_place(window: Windows, dtype: DType) -> Value:
    """A one-hot kernel for each place of a block."""
    places = math.prod(window.kernel)
    eye = np.eye(*limits.sized((places, places), col2im.title))
    return constant(eye.reshape(places, 1, *window.kernel), dtype)


def _image(image_shape: Value, rank: int) -> list[Length]:
    contents = elements(image_shape)
    return [
        contents[k] if contents is not None and isinstance(contents[k], int) else image_shape[k] for k in range(rank)
    ]


def _cut(x: Value, window: Windows, begins: Sequence[int], image: Sequence[Length]) -> Value:
    """Crop the padded sums to the image, which may extend beyond the last block."""
    missing = [b + n - m for b, n, m in zip(begins, image, dims(x)[2:], strict=True)]
    return pad(x, [0, 0, *(-b for b in begins), 0, 0, *missing])


def _spread(
    x: Value, window: Windows, offset: Sequence[int], counts: Sequence[Length], lengths: Sequence[Length]
) -> Value:
    """Contribution of one place of every block to the padded image."""
    before, after = [], []
    for k, stride in enumerate(window.strides):
        if stride > 1:
            apart = np.zeros((2, x.ndim + 1), np.int64)
            apart[1, k + 3] = stride - 1
            x = pad(unsqueeze(x, [k + 3]), constant(apart.reshape(-1)))
            x = reshape(x, [*dims(x)[: k + 2], counts[k] * stride, *dims(x)[k + 4 :]])
        before.append(offset[k] * window.dilations[k])
        after.append(lengths[k] - before[k] - counts[k] * stride)
    return pad(x, [0, 0, *before, 0, 0, *after])


col2im.requires(shapes(image_shape="_", block_shape="_"), dtypes(input="bool number"))


@col2im.type
def col2im_type(input, image_shape, block_shape, **attributes):
    title = col2im.title
    if elements(block_shape) is None:
        rank = block_shape.shape[0] if block_shape.rank == 1 else None
        batch = input.shape[0] if input.rank else None
        return TensorType(input.dtype, (batch, *(None,) * (rank + 1)) if isinstance(rank, int) else None)
    window = _blocks(block_shape, **attributes)
    contents = elements(image_shape)
    lengths = (None,) * window.rank if contents is None else tuple(contents)
    if len(lengths) != window.rank:
        raise TypeMismatch(
            f"{title}: image_shape and block_shape have different lengths", given=f"{lengths}, {window.kernel}"
        )
    if input.tensor.shape is None:
        return TensorType(input.dtype, (None, None, *lengths))
    if input.ndim != 3:
        raise TypeMismatch(f"{title}: shape of input is not (batch, channels times block, blocks)", given=repr(input))
    places = int(np.prod(window.kernel))
    batch, depth, count = input.shape
    if isinstance(depth, int) and depth % places:
        raise TypeMismatch(f"{title}: second axis is not a multiple of the block size {places}", given=repr(input))
    expected = symbolic.product(window.outputs(lengths))
    if isinstance(count, int) and isinstance(expected, int) and count != expected:
        raise TypeMismatch(
            f"{title}: last axis is not {expected}, the number of blocks in the image", given=repr(input)
        )
    return TensorType(input.dtype, (batch, symbolic.floor_div(depth, places), *lengths))


@col2im.numpy
def col2im_numpy(input, image_shape, block_shape, **attributes):
    window = _blocks(block_shape, **attributes)
    image = [int(n) for n in image_shape]
    counts, (begins, ends) = window.outputs(image), window.padding(image)
    channels = input.shape[1] // math.prod(window.kernel)
    blocks = input.reshape(len(input), channels, *window.kernel, *counts)
    (wide,) = widened(blocks[:1, :1]) if input.dtype.kind not in "iubOSU" else (blocks,)
    sums = np.zeros((*blocks.shape[:2], *(n + b + e for n, b, e in zip(image, begins, ends, strict=True))), wide.dtype)
    for offset in window.offsets:
        sums[(..., *tap_slices(window, offset, counts))] += blocks[(slice(None), slice(None), *offset)]
    inside = tuple(slice(b, b + n) for b, n in zip(begins, image, strict=True))
    return np.ascontiguousarray(sums[(..., *inside)]).astype(input.dtype, copy=False)


@col2im.vjp
def col2im_vjp(g, y, input, image_shape, block_shape, **attributes):
    window = _blocks(block_shape, **attributes)
    places = math.prod(window.kernel)
    images = reshape(g, [-1, 1, *dims(g)[2:]])
    columns = conv(images, _each_place(window, input.dtype), **window.attributes)
    return reshape(columns, [dims(g)[0], dims(g)[1] * places, -1]), None, None
