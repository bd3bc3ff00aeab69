"""Convolutions, their transposes and their gradients."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.extend import (
    Operand,
    TensorType,
    TypeMismatch,
    Value,
    constant,
    differ,
    dims,
    divides,
    floats,
    limits,
    op,
    shapes,
    symbolic,
)
from tenonnx_standard import convolution_tuning as tuning
from tenonnx_standard import costs
from tenonnx_standard.conv_kernels import Convolution, columns, convolution, transposed
from tenonnx_standard.joining import concat
from tenonnx_standard.linear_algebra import matmul, sum_of_first_axes
from tenonnx_standard.padding import pad
from tenonnx_standard.reduction import reduce_sum
from tenonnx_standard.shapes import expand, reshape, transpose, unsqueeze
from tenonnx_standard.slicing import gather
from tenonnx_standard.windows import (
    Array,
    Length,
    Windows,
    floored,
    not_negative,
    of_no_products,
    one_float_dtype,
    padded_with,
    spatial,
    tap,
    through_float32,
    widened,
    windows,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def kernel_of(title: str, W: Value | Array, kernel_shape: Sequence[int] | None) -> tuple[int, ...]:
    """Size of the kernel. Raises ``TypeMismatch`` if the shape of the weights and the attribute disagree."""
    known = tuple(W.shape[2:])
    if kernel_shape is None:
        if not all(isinstance(k, int) for k in known):
            raise TypeMismatch(f"{title}: the shape of the kernel is unknown", given=_shown(W), do="write kernel_shape")
        return known
    if len(kernel_shape) != len(known) or any(map(differ, known, kernel_shape)):
        given = f"kernel_shape={list(kernel_shape)}, W {_shown(W)}"
        raise TypeMismatch(f"{title}: kernel_shape differs from the spatial shape of W", given=given)
    return tuple(kernel_shape)


def check_channels(title: str, X: Any, W: Any, B: Any, group: int, channels: Any, results: Any) -> None:
    """Check the shapes of values or arrays for ``channels`` channels of ``X`` and ``results`` of the output."""
    given = f"X {_shown(X)}, W {_shown(W)}, group={group}"
    if W.ndim != X.ndim:
        raise TypeMismatch(f"{title}: ranks of X and W differ", given=given)
    if group < 1 or (isinstance(W.shape[0], int) and W.shape[0] % group):
        raise TypeMismatch(f"{title}: first axis of W is not a multiple of group", given=given)
    if differ(X.shape[1], channels):
        raise TypeMismatch(f"{title}: channels of W are not those of X divided by group", given=given)
    known = B is not None and not (isinstance(B, Value) and B.rank is None)
    if known and (B.ndim != 1 or differ(B.shape[0], results)):
        raise TypeMismatch(f"{title}: B does not hold one number for each of {results} channels", given=_shown(B))


def _shown(tensor: Any) -> str:
    return repr(tensor) if isinstance(tensor, Value) else f"{tensor.dtype}{list(tensor.shape)}"


# ----- Conv -----------------------------------------------------------------------------------------------------------


@op("Conv")
def conv(
    X,
    W,
    B=None,
    *,
    auto_pad="NOTSET",
    dilations: list[int] | None = None,
    group=1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
):
    """Cross-correlate the images ``X`` with the kernels ``W``, group by group of channels, and add ``B``."""
    window = windows(
        conv.title,
        kernel_of(conv.title, W, kernel_shape),
        strides=strides,
        dilations=dilations,
        pads=pads,
        auto_pad=auto_pad,
    )
    if 0 in (*X.shape, W.shape[0]):
        return of_no_products(X, B, [*dims(X)[:1], *dims(W)[:1], *window.outputs(dims(X)[2:])])
    if window.auto_pad != "NOTSET":
        x, explicit = X, window.explicit(X.shape[2:])
        if explicit is None:
            x = padded_with(X, *window.padding(dims(X)[2:]))
            explicit = floored(window, [0] * (2 * window.rank))
        return conv(x, W, B, group=group, **explicit.attributes)
    batch, channels, *sizes = dims(X)
    outputs = window.outputs(sizes)
    x = padded_with(X, *window.padding(sizes))
    taps = [
        reshape(tap(x, window, offset, outputs), [batch, group, channels // group, -1]) for offset in window.offsets
    ]
    results, depth, *_ = dims(W)
    weights = transpose(reshape(W, [group, results // group, depth, len(taps)]), perm=[0, 1, 3, 2])
    columns = concat(*taps, axis=2) if len(taps) > 1 else taps[0]
    product = matmul(reshape(weights, [group, results // group, depth * len(taps)]), columns)
    y = reshape(product, [batch, results, *outputs])
    return y if B is None else y + reshape(B, [-1, *(1,) * window.rank])


through_float32(conv)


@conv.type
def conv_type(X, W, B=None, *, group, kernel_shape, **attributes):
    title, dtype = conv.title, one_float_dtype(conv.title, X, W, B)
    shape, weights = X.tensor.shape, W.tensor.shape
    sizes = spatial(title, X)
    if shape is None or weights is None:
        rank = len(shape or weights or ())
        return TensorType(dtype, (None,) * rank if rank else None)
    check_channels(title, X, W, B, group, symbolic.multiply(weights[1], group), weights[0])
    if kernel_shape is None and not all(isinstance(k, int) for k in weights[2:]):
        return TensorType(dtype, (shape[0], weights[0], *(None,) * len(sizes)))
    window = windows(title, kernel_of(title, W, kernel_shape), **attributes)
    return TensorType(dtype, (shape[0], weights[0], *window.outputs(sizes)))


@conv.numpy
def conv_numpy(X, W, B=None, *, group, kernel_shape, **attributes):
    check_channels(conv.title, X, W, B, group, W.shape[1] * group, W.shape[0])
    window = windows(conv.title, kernel_of(conv.title, W, kernel_shape), **attributes)
    return _convolution_kernel(X, W, None, window, group)(X, W, B)


@conv.specialize
def conv_specialize(X, W, B, *, group, kernel_shape, **attributes):
    window = windows(conv.title, kernel_of(conv.title, W, kernel_shape), **attributes)
    return _convolution_kernel(X, W, W.contents, window, group)


def _convolution_kernel(
    X: Operand | Array, W: Operand | Array, known: Array | None, window: Windows, group: int
) -> Callable[..., Array]:
    """A function that convolves arrays like these and adds a bias; ``known`` is a constant kernel or None."""
    whole = limits.sized((X.shape[0], W.shape[0], *window.outputs(X.shape[2:])), "a convolution")
    return _kernel(X, W, known, whole, lambda dtype: convolution(X.shape, W.shape, dtype, window, group))


def _kernel(
    X: Operand | Array,
    W: Operand | Array,
    known: Array | None,
    whole: tuple[int, ...],
    make_kernel: Callable[..., Convolution],
) -> Callable[..., Array]:
    """A function that ``make_kernel`` makes, in a dtype that BLAS supports, followed by adding a bias."""
    narrow, wide = X.dtype, np.dtype(np.float32) if X.dtype.itemsize < 4 else X.dtype
    bias = (-1, *(1,) * (len(whole) - 2))
    empty = not (X.size and W.size and all(whole))
    if not empty:
        arrange, run = make_kernel(wide)
        arranged = None if known is None else arrange(known.astype(wide, copy=False))

    def compute(X: Array, W: Array, B: Array | None = None) -> Array:
        if empty:
            y = np.zeros(whole, wide)
        else:
            weights = arrange(W.astype(wide, copy=False)) if arranged is None else arranged
            y = run(X.astype(wide, copy=False), weights)
        if B is not None:
            y += B.reshape(bias)
        return y if narrow is wide else y.astype(narrow)

    return compute


@conv.vjp
def conv_vjp(g, y, X, W, B=None, *, group, kernel_shape, **attributes):
    window = windows(conv.title, kernel_of(conv.title, W, kernel_shape), **attributes)
    window = window.explicit(X.shape[2:]) or window
    weights = conv_weight_gradient(X, g, group=group, **window.attributes)
    bias = None if B is None else reduce_sum(g, [0, *range(2, X.ndim)], keepdims=0)
    if group == 1 and tuning.takes_images_at_once(X, g, W, window):
        return _images_at_once(X, g, W, window), weights, bias
    return transposed_to(X, g, W, window, group), weights, bias


def _images_at_once(X: Value, g: Value, W: Value, window: Windows) -> Value:
    """Result of ``transposed_to``, by one product of the weights and the positions of all images.

    A second product, with a table of zeros and ones, adds the contribution of each position of ``g`` and place of the
    kernel to the position of ``X`` that it reads.
    """
    batch, channels, *sizes = dims(X)
    _, results, *outputs = dims(g)
    begins, _ = window.padding(sizes)
    read = np.zeros((*outputs, *window.kernel, *sizes), np.float32)
    for output in np.ndindex(*outputs):
        for place in np.ndindex(*window.kernel):
            terms = zip(output, window.strides, place, window.dilations, begins, strict=True)
            found = tuple(o * stride + k * dilation - begin for o, stride, k, dilation, begin in terms)
            if all(0 <= n < size for n, size in zip(found, sizes, strict=True)):
                read[(*output, *place, *found)] = 1
    positions, places = math.prod(outputs), math.prod(window.kernel)
    rows = reshape(transpose(reshape(g, [batch, results, positions]), perm=[0, 2, 1]), [-1, results])
    given = reshape(matmul(rows, reshape(W, [results, -1])), [batch, positions, channels, places])
    columns_of_images = reshape(transpose(given, perm=[0, 2, 1, 3]), [-1, positions * places])
    table = constant(read.reshape(positions * places, -1), X.dtype)
    return reshape(matmul(columns_of_images, table), [batch, channels, *sizes])


def transposed_to(X: Value, g: Value, W: Value, window: Windows, group: int) -> Value:
    """The transpose of a convolution of ``X`` with ``W``, applied to ``g``: a tensor with the shape of ``X``."""
    sizes, outputs = X.shape[2:], g.shape[2:]
    window = window.explicit(sizes) or window
    attributes = {"group": group, "dilations": list(window.dilations), "strides": list(window.strides)}
    attributes["kernel_shape"] = list(window.kernel)
    if window.auto_pad == "NOTSET":
        begins, ends = window.padding(sizes)
        uncovered = []
        for k, (size, n) in enumerate(zip(sizes, outputs, strict=True)):
            covered = symbolic.add(symbolic.multiply(symbolic.subtract(n, 1), window.strides[k]), window.extents[k])
            exact = 0 if window.strides[k] == 1 else symbolic.subtract(symbolic.add(size, begins[k] + ends[k]), covered)
            uncovered.append(exact)
        if all(isinstance(n, int) for n in uncovered):
            ends = [end + max(0, -n) for end, n in zip(ends, uncovered, strict=True)]
            beyond = [max(0, n) for n in uncovered] if any(n > 0 for n in uncovered) else None
            return conv_transpose(g, W, pads=[*begins, *ends], output_padding=beyond, **attributes)
    beyond = [s - 1 for s in window.strides] if any(s > 1 for s in window.strides) else None
    widest = conv_transpose(g, W, output_padding=beyond, **attributes)
    known = dims(X)[2:]
    begins, _ = window.padding(known)
    return widest[(..., *(slice(b, b + n) for b, n in zip(begins, known, strict=True)))]


@op("ConvWeightGradient", domain="tenonnx")
def conv_weight_gradient(
    X,
    dY,
    *,
    kernel_shape: list[int],
    auto_pad="NOTSET",
    dilations: list[int] | None = None,
    group=1,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
):
    """The gradient of a convolution of ``X`` with respect to its kernels, where ``dY`` is its output's cotangent."""
    window = windows(conv.title, kernel_shape, auto_pad=auto_pad, dilations=dilations, pads=pads, strides=strides)
    batch, channels, *sizes = dims(X)
    _, results, *outputs = dims(dY)
    places = math.prod(window.kernel)
    if 0 in (batch, channels, results):
        return expand(constant(np.zeros(()), X.dtype), [results, channels // group, *window.kernel])
    if tuning.convolves_weights(X, dY, window, group):
        return _weights_convolved(X, dY, window, group)
    x = padded_with(X, *window.padding(sizes))
    g = transpose(reshape(dY, [batch, group, results // group, -1]), perm=[0, 1, 3, 2])
    taps = [
        reshape(tap(x, window, offset, outputs), [batch, group, channels // group, -1]) for offset in window.offsets
    ]
    if tuning.multiplies_columns_at_once(channels, group, len(taps)):
        taps = [concat(*taps, axis=2)]
    products = [matmul(t, g) for t in taps]
    flat = sum_of_first_axes(products[0] if len(products) == 1 else concat(*products, axis=2), 1)
    weights = transpose(reshape(flat, [group, places, channels // group, results // group]), perm=[0, 3, 2, 1])
    return reshape(weights, [results, channels // group, *window.kernel])


def _weights_convolved(X: Value, dY: Value, window: Windows, group: int) -> Value:
    """The gradient as a convolution that swaps images with channels and strides with dilations.

    Channels are concatenated along the last axis, so that an image has a window for each of them at every place.
    """
    batch, channels, *sizes = dims(X)
    _, _, *outputs = dims(dY)
    depth, rank = channels // group, window.rank
    if group == 1:
        beside = transpose(X, perm=[0, *range(2, rank + 2), 1])
    else:
        beside = transpose(reshape(X, [batch, group, depth, *sizes]), perm=[1, 0, *range(3, rank + 3), 2])
    images = reshape(beside, [1, group * batch, *sizes[:-1], sizes[-1] * depth])
    kernels = transpose(dY, perm=[1, 0, *range(2, rank + 2)])
    begins, ends = window.padding(sizes)
    pads = [*begins[:-1], begins[-1] * depth, *ends[:-1], ends[-1] * depth]
    if not all(isinstance(p, int) for p in pads):
        images, pads = padded_with(images, pads[:rank], pads[rank:]), None
    strides, dilations = [*window.dilations[:-1], 1], [*window.strides[:-1], window.strides[-1] * depth]
    found = conv(images, kernels, group=group, kernel_shape=outputs, pads=pads, strides=strides, dilations=dilations)
    extent, step = window.extents[-1], window.dilations[-1]
    found = found[(..., *(slice(k) for k in window.kernel[:-1]), slice(extent * depth))]
    by_place = reshape(found, [-1, *window.kernel[:-1], extent, depth])[..., ::step, :]
    return transpose(by_place, perm=[0, rank + 1, *range(1, rank + 1)])


conv_weight_gradient.requires(
    floats("X", "dY"),
    shapes(X="batch channels sizes...", dY="batch results outputs..."),
    divides("group", "channels"),
    divides("group", "results"),
)


@conv_weight_gradient.type
def conv_weight_gradient_type(X, dY, *, kernel_shape, group, **_):
    if not X.ndim == dY.ndim == len(kernel_shape) + 2:
        given = f"{X!r}, {dY!r}, kernel_shape={list(kernel_shape)}"
        raise TypeMismatch(f"{conv_weight_gradient.title}: X, dY and the kernel have other axes", given=given)
    per_group = symbolic.floor_div(X.shape[1], group)
    return TensorType(X.dtype, (dY.shape[1], per_group, *kernel_shape))


@conv_weight_gradient.numpy
def conv_weight_gradient_numpy(X, dY, *, kernel_shape, group, **attributes):
    window = windows(conv.title, kernel_shape, **attributes)
    x, g = widened(X, dY)
    batch, results, *outputs = g.shape
    if (batch, *outputs) != (x.shape[0], *window.outputs(x.shape[2:])):
        given = f"X {list(x.shape)}, dY {list(g.shape)}"
        raise TypeMismatch(f"{conv_weight_gradient.title}: dY does not have the shape of the convolution", given=given)
    rest = int(np.prod(outputs[1:]))
    g = g.reshape(batch, group, results // group, math.prod(outputs))
    per_group = x.shape[1] // group
    shape = group, results // group, per_group * math.prod(window.kernel)
    total = np.zeros(limits.sized(shape, "the gradient of a kernel"), x.dtype)
    if not total.size or not g.size:
        return total.reshape(results, per_group, *window.kernel).astype(X.dtype, copy=False)
    for images, rows, block in columns(x.shape, x.dtype, window, joined=True)(x):
        part = g[images, ..., rows.start * rest : rows.stop * rest].transpose(1, 2, 0, 3).reshape(*total.shape[:2], -1)
        total += np.matmul(part, block.reshape(group, total.shape[2], -1).swapaxes(1, 2))
    return total.reshape(results, per_group, *window.kernel).astype(X.dtype, copy=False)


@conv_weight_gradient.vjp
def conv_weight_gradient_vjp(g, y, X, dY, *, group, **attributes):
    window = windows(conv.title, attributes.pop("kernel_shape"), **attributes)
    window = window.explicit(X.shape[2:]) or window
    return transposed_to(X, dY, g, window, group), conv(X, g, group=group, **window.attributes)


# ----- ConvTranspose --------------------------------------------------------------------------------------------------


@op("ConvTranspose")
def conv_transpose(
    X,
    W,
    B=None,
    *,
    auto_pad="NOTSET",
    dilations: list[int] | None = None,
    group=1,
    kernel_shape: list[int] | None = None,
    output_padding: list[int] | None = None,
    output_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
):
    """The transpose (and gradient) of a convolution: every input position adds its multiple of ``W`` to a window.

    Zeros are inserted between the elements of ``X`` for strides; the rest is a convolution with flipped kernels.
    """
    window = windows(
        conv_transpose.title,
        kernel_of(conv_transpose.title, W, kernel_shape),
        strides=strides,
        dilations=dilations,
        pads=pads,
        auto_pad=auto_pad,
    )
    sizes = dims(X)[2:]
    begins, outputs = _cropping(window, sizes, output_padding, output_shape)
    channels, per_group, *_ = dims(W)
    if 0 in (*X.shape, *W.shape):
        return of_no_products(X, B, [dims(X)[0], per_group * group, *outputs])
    x = X
    for k, stride in enumerate(window.strides):
        if stride > 1:
            pads = np.zeros((2, x.ndim + 1), np.int64)
            pads[1, k + 3] = stride - 1
            reshaped = pad(unsqueeze(x, [k + 3]), constant(pads.reshape(-1)))
            x = reshape(reshaped, [*dims(x)[: k + 2], sizes[k] * stride, *dims(x)[k + 3 :]])
    before = [e - 1 - b for e, b in zip(window.extents, begins, strict=True)]
    after = [m - n * s + b for m, n, s, b in zip(outputs, sizes, window.strides, begins, strict=True)]
    places = int(np.prod(window.kernel))
    weights = reshape(W, [group, channels // group, per_group, places])
    turned = transpose(gather(weights, list(reversed(range(places))), axis=3), perm=[0, 2, 1, 3])
    turned = reshape(turned, [per_group * group, channels // group, *window.kernel])
    return conv(padded_with(x, before, after), turned, B, dilations=list(window.dilations), group=group)


def _cropping(
    window: Windows, sizes: Sequence[Length], output_padding: Sequence[int] | None, output_shape: Sequence[int] | None
) -> tuple[list[Length], list[Length]]:
    """Number of elements to crop before each axis of the full transpose, and the remaining lengths."""
    extra = list(output_padding or [0] * window.rank)
    if len(extra) != window.rank or any(e < 0 for e in extra):
        raise TypeMismatch(f"{window.title}: output_padding is not {window.rank} sizes of at least 0", given=str(extra))
    if output_shape is not None and len(output_shape) not in (window.rank, window.rank + 2):
        what = f"{window.title}: output_shape does not have {window.rank} sizes"
        raise TypeMismatch(what, given=str(list(output_shape)))
    begins: list[Length] = []
    outputs: list[Length] = []
    for k, size in enumerate(sizes):
        full = None if size is None else size * window.strides[k] + (extra[k] + window.extents[k] - window.strides[k])
        same = window.auto_pad.startswith("SAME")
        if output_shape or same:
            by_stride = None if size is None else size * window.strides[k]
            wanted = output_shape[k - window.rank] if output_shape else by_stride
            total = None if full is None or wanted is None else not_negative(full - wanted)
            upper = None if total is None else total // 2
            begins.append(upper if window.auto_pad == "SAME_UPPER" or total is None else total - upper)
            outputs.append(wanted)
        else:
            begin, end = (0, 0) if window.auto_pad == "VALID" else window.pads[k :: window.rank]
            begins.append(begin)
            outputs.append(None if full is None else full - (begin + end))
            if isinstance(outputs[-1], int) and outputs[-1] < 1:
                raise TypeMismatch(f"{window.title}: pads remove the whole output", given=f"{begin} + {end} of {full}")
    return begins, outputs


through_float32(conv_transpose)


@conv_transpose.type
def conv_transpose_type(X, W, B=None, *, group, kernel_shape, output_padding, output_shape, **attributes):
    title = conv_transpose.title
    dtype = one_float_dtype(title, X, W, B)
    shape, weights = X.tensor.shape, W.tensor.shape
    sizes = spatial(title, X)
    if shape is None or weights is None:
        rank = len(shape or weights or ())
        return TensorType(dtype, (None,) * rank if rank else None)
    results = symbolic.multiply(weights[1], group)
    check_channels(title, X, W, B, group, weights[0], results)
    if kernel_shape is None and not all(isinstance(k, int) for k in weights[2:]):
        return TensorType(dtype, (shape[0], results, *(None,) * len(sizes)))
    window = windows(title, kernel_of(title, W, kernel_shape), **attributes)
    return TensorType(dtype, (shape[0], results, *_cropping(window, sizes, output_padding, output_shape)[1]))


@conv_transpose.numpy
def conv_transpose_numpy(X, W, B=None, *, group, kernel_shape, output_padding, output_shape, **attributes):
    check_channels(conv_transpose.title, X, W, B, group, W.shape[0], W.shape[1] * group)
    window = windows(conv_transpose.title, kernel_of(conv_transpose.title, W, kernel_shape), **attributes)
    return _transposed_kernel(X, W, None, window, group, output_padding, output_shape)(X, W, B)


@conv_transpose.specialize
def conv_transpose_specialize(X, W, B, *, group, kernel_shape, output_padding, output_shape, **attributes):
    window = windows(conv_transpose.title, kernel_of(conv_transpose.title, W, kernel_shape), **attributes)
    return _transposed_kernel(X, W, W.contents, window, group, output_padding, output_shape)


def _transposed_kernel(
    X: Operand | Array, W: Operand | Array, known: Array | None, window: Windows, group: int, *sizes: Any
) -> Callable[..., Array]:
    """A function that scatters arrays like these into windows and adds a bias; ``known`` is a constant kernel."""
    begins, outputs = _cropping(window, X.shape[2:], *sizes)
    whole = limits.sized((X.shape[0], group * W.shape[1], *outputs), "a transposed convolution")
    return _kernel(
        X, W, known, whole, lambda dtype: transposed(X.shape, W.shape, dtype, window, begins, outputs, group)
    )


@conv_transpose.vjp
def conv_transpose_vjp(g, y, X, W, B=None, *, group, kernel_shape, output_padding, output_shape, **attributes):
    window = windows(conv_transpose.title, kernel_of(conv_transpose.title, W, kernel_shape), **attributes)
    sizes = dims(X)[2:]
    begins, outputs = _cropping(window, sizes, output_padding, output_shape)
    ends = [
        n * s + (e - s) - b - m
        for n, s, e, b, m in zip(sizes, window.strides, window.extents, begins, outputs, strict=True)
    ]
    bias = None if B is None else reduce_sum(g, [0, *range(2, X.ndim)], keepdims=0)
    pads = [*begins, *ends]
    if not all(isinstance(p, int) and p >= 0 for p in pads):
        g = pad(g, [0, 0, *begins, 0, 0, *ends])
        pads = [0] * (2 * window.rank)
    attributes = {"dilations": list(window.dilations), "strides": list(window.strides), "pads": pads, "group": group}
    weights = conv_weight_gradient(g, X, kernel_shape=list(window.kernel), **attributes)
    return conv(g, W, kernel_shape=list(window.kernel), **attributes), weights, bias


for _convolution, count in ((conv, costs.convolution), (conv_transpose, costs.transposed_convolution)):
    costs.count(_convolution, count)
    _convolution.requires(shapes(W="_ _ ..."))
