"""Lowerings of convolutions and pooling to each other, to slices and to matrix products."""

from __future__ import annotations

from functools import partial, reduce
from itertools import product
from typing import Any, NamedTuple

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Value, constant
from tenonnx_standard.lowerings.registry import (
    count,
    cut,
    integers,
    joined,
    like,
    lowering,
    not_of_half,
    numbers,
    of_floats,
    reshaped,
    sizes,
    unless,
)


class _Window(NamedTuple):
    """Window parameters per spatial axis, the pads at both ends and the output sizes."""

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    begin: list[int]
    end: list[int]
    out: list[int]


def _window(spatial: Any, kernel: Any, *, auto_pad: str, dilations: Any, pads: Any, strides: Any, **_: Any) -> _Window:
    rank = len(spatial)
    strides, dilations = list(strides or [1] * rank), list(dilations or [1] * rank)
    extent = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        whole = [
            max((-(-size // stride) - 1) * stride + wide - size, 0)
            for size, stride, wide in zip(spatial, strides, extent, strict=True)
        ]
        less = [each // 2 for each in whole]
        more = [each - half for each, half in zip(whole, less, strict=True)]
        begin, end = (less, more) if auto_pad == "SAME_UPPER" else (more, less)
    else:
        given = list(pads or [0] * 2 * rank) if auto_pad != "VALID" else [0] * 2 * rank
        begin, end = given[:rank], given[rank:]
    out = [
        (size + b + e - wide) // stride + 1
        for size, b, e, wide, stride in zip(spatial, begin, end, extent, strides, strict=True)
    ]
    return _Window(list(kernel), strides, dilations, begin, end, out)


def _padded(x: Value, window: _Window, filling: float = 0.0) -> Value:
    pads = [0, 0, *window.begin, 0, 0, *window.end]
    return ops.pad(x, integers(pads), like(x, filling)) if any(pads) else x  # type: ignore[no-any-return]


def _slices(x: Value, window: _Window) -> list[Value]:
    """Slices of the padded input, one for each place of the kernel."""
    count(window.kernel)
    result = []
    for place in product(*map(range, window.kernel)):
        starts = [p * d for p, d in zip(place, window.dilations, strict=True)]
        ends = [s + (n - 1) * t + 1 for s, n, t in zip(starts, window.out, window.strides, strict=True)]
        piece = x
        for axis, (start, end, step) in enumerate(zip(starts, ends, window.strides, strict=True), 2):
            if (start, end, step) != (0, (x.shape or ())[axis], 1):
                piece = cut(piece, axis, start, end, step)
        result.append(piece)
    return result


@lowering(ops.conv)
def conv_1d_by_2d(X, W, B, *, auto_pad, dilations, group, kernel_shape, pads, strides):
    unless(X.rank != 3)
    more = {"dilations": [1, *(dilations or [1])], "strides": [1, *(strides or [1])]}
    if auto_pad == "NOTSET":
        begin, end = pads or (0, 0)
        more["pads"] = [0, begin, 0, end]
    n, channels, length = X.shape
    x, w = reshaped(X, (n, channels, 1, length)), reshaped(W, (*W.shape[:2], 1, *W.shape[2:]))
    result = ops.conv(x, w, B, auto_pad=auto_pad, group=group, **more)
    return ops.squeeze(result, [2])


@lowering(ops.conv)
def conv_of_padded(X, W, B, *, auto_pad, dilations, group, kernel_shape, pads, strides):
    window = _window(sizes(X)[2:], sizes(W)[2:], auto_pad=auto_pad, dilations=dilations, pads=pads, strides=strides)
    unless(not any(window.begin + window.end))
    return ops.conv(_padded(X, window), W, B, group=group, dilations=window.dilations, strides=window.strides)


@lowering(ops.conv, "rounding")
def conv_and_bias(X, W, B, **attributes):
    unless(B is None)
    return ops.add(ops.conv(X, W, **attributes), reshaped(B, (*B.shape, *[1] * (X.rank - 2))))


@lowering(ops.conv, "rounding")
def conv_by_matmul(X, W, B, *, auto_pad, dilations, group, kernel_shape, pads, strides):
    """The product of the weights and the input at each place of the kernel."""
    of_floats(X)
    (n, _, *spatial), (filters, own, *kernel) = sizes(X), sizes(W)
    window = _window(spatial, kernel, auto_pad=auto_pad, dilations=dilations, pads=pads, strides=strides)
    pieces = _slices(_padded(X, window), window)
    points, rows = int(np.prod(window.out)), filters // group
    groups = []
    for each in range(group):
        parts = [piece if group == 1 else cut(piece, 1, each * own, (each + 1) * own) for piece in pieces]
        seen = reshaped(joined(parts, 1), (n, len(parts) * own, points))
        weights = W if group == 1 else cut(W, 0, each * rows, (each + 1) * rows)
        flat = reshaped(weights, (rows, own, len(parts)))
        if len(parts) > 1 and own > 1:
            flat = ops.transpose(flat, perm=[0, 2, 1])
        groups.append(ops.matmul(reshaped(flat, (rows, own * len(parts))), seen))
    whole = reshaped(joined(groups, 1), (n, filters, *window.out))
    return whole if B is None else ops.add(whole, reshaped(B, (filters, *[1] * len(spatial))))


@lowering(ops.conv, "rounding")
def conv_of_channels_by_products(X, W, B, *, auto_pad, dilations, group, kernel_shape, pads, strides):
    """Depthwise convolution as the sum of slices times weights."""
    of_floats(X)
    (_, channels, *spatial), (filters, own, *kernel) = sizes(X), sizes(W)
    unless(not group == channels == filters or own != 1)
    window = _window(spatial, kernel, auto_pad=auto_pad, dilations=dilations, pads=pads, strides=strides)
    flat, ones = reshaped(W, (filters, -1)), [1] * len(spatial)
    products = [
        ops.mul(piece, reshaped(cut(flat, 1, place, place + 1), (filters, *ones)))
        for place, piece in enumerate(_slices(_padded(X, window), window))
    ]
    return reduce(ops.add, products if B is None else [*products, reshaped(B, (filters, *ones))])


# ----- pools ----------------------------------------------------------------------------------------------------------


def _averages(x: Value, attributes: Any) -> _Window:
    """The window of an average over the same number of elements everywhere."""
    of_floats(x)
    window = _window(sizes(x)[2:], attributes["kernel_shape"], **attributes)
    unless(attributes["ceil_mode"] != 0 or (any(window.begin + window.end) and not attributes["count_include_pad"]))
    return window


@lowering(ops.average_pool, "rounding")
def average_pool_by_conv(X, **attributes):
    window, channels = _averages(X, attributes), sizes(X)[1]
    weights = like(X, np.full((channels, 1, *window.kernel), 1 / np.prod(window.kernel)))
    pads = [*window.begin, *window.end]
    return ops.conv(X, weights, group=channels, strides=window.strides, dilations=window.dilations, pads=pads)


@lowering(ops.average_pool, "rounding")
def average_pool_by_sums(X, **attributes):
    window = _averages(X, attributes)
    total = reduce(ops.add, _slices(_padded(X, window), window))
    return ops.mul(total, like(X, 1 / np.prod(window.kernel)))


@lowering(ops.average_pool, "rounding")
def average_pool_without_pads(X, **attributes):
    """The sums by a convolution with ones, divided by the number of elements in each window."""
    of_floats(X)
    unless(attributes["ceil_mode"] != 0 or attributes["count_include_pad"] != 0)
    _, channels, *spatial = sizes(X)
    window = _window(spatial, attributes["kernel_shape"], **attributes)
    unless(not any(window.begin + window.end))
    ones = like(X, np.ones((channels, 1, *window.kernel)))
    seen = constant(np.ones((1, 1, *spatial), np.float32))
    shares = numbers(ops.average_pool(seen, **{**attributes, "count_include_pad": 1}))
    pads = [*window.begin, *window.end]
    sums = ops.conv(X, ones, group=channels, strides=window.strides, dilations=window.dilations, pads=pads)
    return ops.mul(sums, like(X, 1 / (shares.astype(np.float64) * np.prod(window.kernel))))


def _pool_of_blocks(reduction: Any, x: Value, _outputs: int | None = None, **attributes: Any) -> Any:
    """Pool windows that tile the input exactly, as separate axes."""
    of_floats(x)
    n, channels, *spatial = sizes(x)
    kernel = list(attributes["kernel_shape"])
    window = _window(spatial, kernel, **attributes)
    unless(_outputs not in (None, 1) or window.strides != kernel or any(window.begin + window.end))
    unless(any(d != 1 for d in window.dilations) or any(size % k for size, k in zip(spatial, kernel, strict=True)))
    split_shape = [part for size, k in zip(spatial, kernel, strict=True) for part in (size // k, k)]
    axes = [3 + 2 * place for place in range(len(spatial))]
    return reduction(reshaped(x, (n, channels, *split_shape)), integers(axes), keepdims=0)


lowering(ops.average_pool, "rounding")(partial(_pool_of_blocks, ops.reduce_mean))
lowering(ops.max_pool)(partial(_pool_of_blocks, ops.reduce_max))


@lowering(ops.average_pool, "rounding")
def average_pool_of_all(X, **attributes):
    window = _averages(X, attributes)
    unless(window.out != [1] * len(window.out) or window.kernel != list(sizes(X)[2:]))
    return ops.global_average_pool(X)


@lowering(ops.global_average_pool, "rounding")
def global_average_pool_by_average_pool(X):
    unless(X.rank < 3)
    return ops.average_pool(X, kernel_shape=list(sizes(X)[2:]))


@lowering(ops.global_max_pool)
def global_max_pool_by_max_pool(X):
    unless(X.rank < 3)
    return ops.max_pool(X, kernel_shape=list(sizes(X)[2:]))


@lowering(ops.max_pool)
def max_pool_by_maximum(X, *, _outputs=None, **attributes):
    of_floats(X)
    unless(_outputs not in (None, 1) or attributes["ceil_mode"] != 0)
    window = _window(sizes(X)[2:], attributes["kernel_shape"], **attributes)
    return reduce(ops.maximum, _slices(_padded(X, window, -np.inf), window))


@lowering(ops.max_pool)
def max_pool_of_all(X, *, _outputs=None, **attributes):
    unless(_outputs not in (None, 1) or attributes["ceil_mode"] != 0)
    window = _window(sizes(X)[2:], attributes["kernel_shape"], **attributes)
    unless(window.out != [1] * len(window.out) or window.kernel != list(sizes(X)[2:]))
    return ops.global_max_pool(X)


def _normalized_locally(x: Value, mean: Any, *, alpha: float, beta: float, bias: float) -> Any:
    """``x`` divided by a power of the mean squares of neighboring channels."""
    return ops.div(x, ops.pow_(ops.add(ops.mul(mean, like(x, alpha)), like(x, bias)), like(x, beta)))


@lowering(ops.lrn, "rounding")
def lrn_by_average_pool(X, *, size, **attributes):
    """Off by 16 ulps. The channels become the height of a single image."""
    not_of_half(X)
    n, channels, *spatial = sizes(X)
    before, behind = (size - 1) // 2, size // 2
    image = reshaped(ops.mul(X, X), (n, 1, channels, int(np.prod(spatial))))
    mean = ops.average_pool(image, kernel_shape=[size, 1], pads=[before, 0, behind, 0], count_include_pad=1)
    return _normalized_locally(X, reshaped(mean, (n, channels, *spatial)), **attributes)


@lowering(ops.lrn, "finite")
def lrn_by_conv(X, *, size, **attributes):
    """The weights are a band matrix."""
    not_of_half(X)
    unless(X.rank not in (4, 5))
    channels = sizes(X)[1]
    apart = np.arange(channels) - np.arange(channels)[:, None]
    band = ((apart >= -((size - 1) // 2)) & (apart <= size // 2)) / size
    mean = ops.conv(ops.mul(X, X), like(X, band.reshape(channels, channels, *[1] * (X.rank - 2))))
    return _normalized_locally(X, mean, **attributes)


@lowering(ops.pad)
def pad_by_conv(data, pads, constant_value, axes, *, mode):
    """Pad images with zeros by a convolution with a kernel of ones."""
    from tenonnx_standard.lowerings.movement import constant_pads

    of_floats(data)
    begin, end, filling = constant_pads(data, pads, constant_value, axes, mode)
    unless(data.rank not in (4, 5) or filling != 0 or any(begin[:2]) or any(end[:2]) or min(begin + end) < 0)
    channels = sizes(data)[1]
    ones = like(data, np.ones((channels, 1, *[1] * (data.rank - 2))))
    return ops.conv(data, ones, group=channels, pads=[*begin[2:], *end[2:]])
