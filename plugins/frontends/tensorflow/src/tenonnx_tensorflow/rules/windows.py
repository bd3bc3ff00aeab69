"""Convolutions and pooling, converted from TensorFlow's default channels-last layout to channels-first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, NotRepresentable, Value, constant, static
from tenonnx.extend import symbolic as symbols
from tenonnx_tensorflow.attributes import dtype_of
from tenonnx_tensorflow.rules import rule
from tenonnx_tensorflow.tracked_values import as_dtype, int64, integers, number


def channels_first(x: Value) -> Value:
    return ops.transpose(x, perm=[0, x.ndim - 1, *range(1, x.ndim - 1)])


def channels_last(x: Value) -> Value:
    return ops.transpose(x, perm=[0, *range(2, x.ndim), 1])


@dataclass(frozen=True)
class Layout:
    """Positions of the axes of images of a node."""

    is_last: bool
    rank: int

    @classmethod
    def of(cls, node: Any, rank: int) -> Layout:
        name = node.get("data_format", "NHWC")
        if "VECT" in name:
            raise NotRepresentable("channels lie neither first nor last", given=name)
        return cls(not name.startswith("NC"), rank)

    def inner(self, listed: Sequence[int]) -> list[int]:
        """Select the entries of image axes from a list for all axes."""
        if len(listed) == 1:
            return list(listed) * (self.rank - 2)
        return [int(n) for n in (listed[1:-1] if self.is_last else listed[2:])]

    def first(self, x: Value) -> Value:
        return channels_first(x) if self.is_last else x

    def back(self, x: Value) -> Value:
        return channels_last(x) if self.is_last else x


@dataclass(frozen=True)
class Window:
    """A window over channels-first images."""

    kernel: Sequence[int]
    strides: Sequence[int]
    dilations: Sequence[int]
    padding: str
    explicit: Sequence[int] = ()

    def pads(self, x: Value) -> dict[str, Any]:
        """ONNX attributes of the padding; explicit numbers where sizes are static."""
        if self.padding == "VALID":
            return {}
        if self.padding == "EXPLICIT":
            pairs = np.asarray(self.explicit).reshape(-1, 2)
            return {"pads": [int(n) for n in (*pairs[:, 0], *pairs[:, 1])]}
        sizes = [n for n in x.shape[2:] if isinstance(n, int)] if x.shape is not None else []
        if len(sizes) < len(self.kernel):
            if all(s == 1 for s in self.strides):
                whole = [(k - 1) * d for k, d in zip(self.kernel, self.dilations, strict=True)]
                return {"pads": [n // 2 for n in whole] + [n - n // 2 for n in whole]}
            return {"auto_pad": "SAME_UPPER"}
        before, after = [], []
        for n, k, s, d in zip(sizes, self.kernel, self.strides, self.dilations, strict=True):
            total = max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
            before.append(total // 2)
            after.append(total - total // 2)
        return {"pads": [*before, *after]} if any(before + after) else {}

    def attributes(self, x: Value) -> dict[str, Any]:
        result: dict[str, Any] = {"strides": list(self.strides), **self.pads(x)}
        if any(d != 1 for d in self.dilations):
            result["dilations"] = list(self.dilations)
        return result


def window_of(node: Any, layout: Layout, kernel: Sequence[int], dilations: str = "dilations") -> Window:
    explicit = node.get("explicit_paddings", [])
    if explicit:
        pairs = np.asarray(explicit).reshape(-1, 2)
        explicit = (pairs[1:-1] if layout.is_last else pairs[2:]).reshape(-1).tolist()
    ones = [1] * len(kernel)
    apart = layout.inner(node.get(dilations)) if node.get(dilations) else ones
    return Window(kernel, layout.inner(node["strides"]), apart, node["padding"], explicit)


def _sizes(kernel: Value, count: int) -> list[int]:
    shape = kernel.shape
    if shape is None or not all(isinstance(n, int) for n in shape):
        raise NotRepresentable("the sizes of a kernel are not known", given=f'"{kernel.name}" is {kernel.type}')
    return [int(n) for n in shape[:count]]  # type: ignore[arg-type]


@rule("Conv2D", "Conv3D", "Conv")
def conv(node: Any, x: Value, kernel: Value) -> Value:
    rank = x.ndim
    layout = Layout.of(node, rank)
    image = layout.first(x)
    window = window_of(node, layout, _sizes(kernel, rank - 2))
    weights = ops.transpose(kernel, perm=[rank - 1, rank - 2, *range(rank - 2)])
    channels = image.shape[1] if image.shape is not None else None
    depth = kernel.shape[rank - 2]
    if not isinstance(channels, int) or not isinstance(depth, int):
        raise NotRepresentable("the number of channels is not known", given=f"{x.type}")
    return layout.back(ops.conv(image, weights, group=channels // depth, **window.attributes(image)))


@rule("DepthwiseConv2dNative")
def depthwise(node: Any, x: Value, kernel: Value) -> Value:
    layout = Layout.of(node, 4)
    image = layout.first(x)
    height, width, channels, times = _sizes(kernel, 4)
    window = window_of(node, layout, [height, width])
    weights = ops.reshape(ops.transpose(kernel, perm=[2, 3, 0, 1]), [channels * times, 1, height, width])
    return layout.back(ops.conv(image, weights, group=channels, **window.attributes(image)))


@rule("Conv2DBackpropInput", "Conv3DBackpropInputV2", "Conv3DBackpropInput")
def conv_transpose(node: Any, sizes: Value, kernel: Value, y: Value) -> Value:
    """Transposed convolution with the gradient op's argument order."""
    rank = y.ndim
    layout = Layout.of(node, rank)
    image = layout.first(y)
    window = window_of(node, layout, _sizes(kernel, rank - 2))
    weights = ops.transpose(kernel, perm=[rank - 1, rank - 2, *range(rank - 2)])
    depth, channels = kernel.shape[rank - 1], image.shape[1] if image.shape is not None else None
    group = channels // depth if isinstance(channels, int) and isinstance(depth, int) else 1
    return layout.back(transposed(image, weights, int64(sizes), window, layout, group))


def transposed(x: Value, weights: Value, sizes: Value, window: Window, layout: Layout, group: int = 1) -> Value:
    """A transposed convolution with the result ``sizes``, of all axes or of image axes only."""
    rank = x.ndim
    count = sizes.shape[0] if sizes.shape is not None else rank
    place = 0 if count == rank - 2 else 1 if layout.is_last else 2
    given: dict[str, Any] = {"strides": list(window.strides), "group": group}
    if any(d != 1 for d in window.dilations):
        given["dilations"] = list(window.dilations)
    before, after, more = [], [], []
    for k in range(rank - 2):
        extent = (window.kernel[k] - 1) * window.dilations[k] + 1
        beyond = _beyond(x, sizes, k, place, window.strides[k])  # output size minus stride times input size
        if beyond is None:
            return _cut(x, weights, sizes, window, place, given)
        total = extent - window.strides[k] - beyond  # full size minus output size
        first, last = 0, total
        if window.padding == "SAME":
            first = max(total, 0) // 2
            last = total - first
        elif window.padding == "EXPLICIT":
            first = int(window.explicit[2 * k])
            last = total - first
        before.append(first)
        after.append(max(last, 0))
        more.append(max(-last, 0))
    if any(m >= max(s, d) for m, s, d in zip(more, window.strides, window.dilations, strict=True)):
        return _cut(x, weights, sizes, window, place, given)
    if any(more):
        given["output_padding"] = more
    return ops.conv_transpose(x, weights, pads=[*before, *after], **given)


def _beyond(x: Value, sizes: Value, axis: int, place: int, stride: int) -> int | None:
    """Output size minus ``stride`` times the input size along an axis, if that is a constant."""
    known = static(sizes)
    contents = sizes.symbolic_contents if known is None else known
    length = x.shape[2 + axis] if x.shape is not None else None
    if contents is None or length is None:
        return None
    wanted = np.asarray(contents).reshape(-1)[place + axis]
    wanted = int(wanted) if isinstance(wanted, int | np.integer) else wanted
    if wanted is None:
        return None
    difference = symbols.subtract(wanted, symbols.multiply(length, stride))
    return difference if isinstance(difference, int) else None


def _cut(x: Value, weights: Value, sizes: Value, window: Window, place: int, given: dict[str, Any]) -> Value:
    """Compute the full result, and crop it to dynamic sizes."""
    if window.padding == "EXPLICIT":
        raise NotRepresentable("the sizes of the result are not known, with explicit paddings", given=f"{x.type}")
    rank = x.ndim
    full = ops.conv_transpose(x, weights, **given)
    wanted = ops.slice_(sizes, [place], [place + rank - 2], [0])
    reached = ops.slice_(ops.shape(full), [2], [rank], [0])
    zero, two = constant(np.asarray([0])), constant(np.asarray([2]))
    missing = ops.maximum(ops.sub(wanted, reached), zero)
    start = (
        ops.div(ops.maximum(ops.sub(reached, wanted), zero), two) if window.padding == "SAME" else ops.mul(wanted, zero)
    )
    padded = ops.pad(full, ops.concat(constant(np.zeros(rank + 2, np.int64)), missing, axis=0))
    return ops.slice_(padded, start, ops.add(start, wanted), list(range(2, rank)))


# ----- pools ----------------------------------------------------------------------------------------------------------


def _pooled(node: Any, x: Value, sizes: Sequence[int], op: Callable[..., Value]) -> Value:
    layout = Layout.of(node, x.ndim)
    kernel = layout.inner(sizes)
    outer = list(sizes)
    over = [outer[0], outer[-1] if layout.is_last else outer[1]] if len(outer) > 1 else []
    if any(n != 1 for n in over):
        raise NotRepresentable("a window covers axes other than those of the image", given=f"ksize {outer}")
    image = layout.first(x)
    window = window_of(node, layout, kernel, dilations="-")
    return layout.back(op(image, kernel_shape=kernel, **window.attributes(image)))


@rule("MaxPool", "MaxPool3D")
def max_pool(node: Any, x: Value) -> Value:
    return _pooled(node, x, node["ksize"], ops.max_pool)


@rule("MaxPoolV2")
def max_pool_by_inputs(node: Any, x: Value, sizes: Value, strides: Value) -> Value:
    attributes = {"strides": integers(strides, "strides"), "padding": node["padding"]}
    layout = Layout.of(node, x.ndim)
    kernel = layout.inner(integers(sizes, "the sizes of a window"))
    window = Window(kernel, layout.inner(attributes["strides"]), [1] * len(kernel), attributes["padding"])
    first = layout.first(x)
    return layout.back(ops.max_pool(first, kernel_shape=kernel, **window.attributes(first)))


@rule("AvgPool", "AvgPool3D")
def average_pool(node: Any, x: Value) -> Value:
    return _pooled(node, x, node["ksize"], ops.average_pool)


@rule("MaxPoolWithArgmax", outputs="output argmax")
def max_pool_with_places(node: Any, x: Value) -> list[Value]:
    """Indices are flat, in channels-last order, within an image or within the batch."""
    layout = Layout.of(node, 4)
    kernel = layout.inner(node["ksize"])
    x_first = layout.first(x)
    window = window_of(node, layout, kernel, dilations="-")
    found, places = ops.max_pool(x_first, kernel_shape=kernel, _outputs=2, **window.attributes(x_first))
    sizes = ops.shape(x_first)
    channels, plane = ops.gather(sizes, [1]), ops.mul(ops.gather(sizes, [2]), ops.gather(sizes, [3]))
    inner = ops.mod(places, plane)
    rest = ops.div(places, plane)
    channel, image = ops.mod(rest, channels), ops.div(rest, channels)
    numbered = ops.add(ops.mul(inner, channels), channel)
    if node.get("include_batch_in_index", False):
        numbered = ops.add(numbered, ops.mul(image, ops.mul(plane, channels)))
    return [layout.back(found), as_dtype(layout.back(numbered), dtype_of(node.get("Targmax", 9)))]


@rule("Dilation2D", "Erosion2D")
def dilation(node: Any, x: Value, kernel: Value) -> Value:
    """Grayscale dilation: the maximum sum of window elements and kernel elements."""
    height, width, _ = _sizes(kernel, 3)
    layout = Layout(True, 4)
    strides, rates = layout.inner(node["strides"]), layout.inner(node["rates"])
    window = Window([height, width], strides, rates, node["padding"])
    image = channels_first(x)
    pads = window.pads(image)
    if "auto_pad" in pads:
        raise NotRepresentable("the sizes of images are not known, for SAME padding of a dilation", given=f"{x.type}")
    given = pads.get("pads", [0, 0, 0, 0])
    filled = ops.pad(image, [0, 0, given[0], given[1], 0, 0, given[2], given[3]], number(-np.inf, x))
    sizes = ops.shape(filled)
    found: Value | None = None
    for i in range(height):
        for j in range(width):
            ends = ops.sub(
                ops.slice_(sizes, [2], [4], [0]),
                constant(np.asarray([(height - 1 - i) * rates[0], (width - 1 - j) * rates[1]])),
            )
            part = ops.slice_(filled, [i * rates[0], j * rates[1]], ends, [2, 3], strides)
            weight = ops.reshape(ops.slice_(kernel, [i, j], [i + 1, j + 1], [0, 1]), [1, -1, 1, 1])
            total = ops.add(part, weight)
            found = total if found is None else ops.maximum(found, total)
    assert found is not None
    return channels_last(found)


@rule("ExtractImagePatches")
def patches(node: Any, x: Value) -> Value:
    """Each window as channels, by a convolution with one-hot kernels."""
    layout = Layout(True, 4)
    kernel, strides, rates = (layout.inner(node[name]) for name in ("ksizes", "strides", "rates"))
    image = channels_first(x)
    channels = image.shape[1] if image.shape is not None else None
    if not isinstance(channels, int):
        raise NotRepresentable("the number of channels is not known", given=f"{x.type}")
    places = int(np.prod(kernel))
    ones = np.zeros(
        (places * channels, channels, *kernel), image.dtype.numpy if image.dtype.numpy.kind == "f" else np.float32
    )
    for place in range(places):
        for c in range(channels):
            ones[place * channels + c, c, place // kernel[1], place % kernel[1]] = 1
    window = Window(kernel, strides, rates, node["padding"])
    floats = image if image.dtype.numpy.kind == "f" else ops.cast(image, to=DType.float32)
    found = ops.conv(floats, constant(ones), **window.attributes(image))
    return channels_last(as_dtype(found, x.dtype))


# ----- normalization --------------------------------------------------------------------------------------------------


@rule(
    "FusedBatchNorm",
    "FusedBatchNormV2",
    "FusedBatchNormV3",
    outputs="y batch_mean batch_variance reserve_space_1 reserve_space_2 reserve_space_3",
)
def batch_norm(node: Any, x: Value, scale: Value, offset: Value, mean: Value, variance: Value) -> list[Value]:
    epsilon = node.get("epsilon", 1e-4)
    layout = Layout.of(node, x.ndim)
    if not node.get("is_training", True):
        image = layout.first(x)
        kind = scale.dtype
        found = ops.batch_normalization(as_dtype(image, kind), scale, offset, mean, variance, epsilon=epsilon)
        return [layout.back(as_dtype(found, x.dtype)), mean, variance, mean, variance, mean]
    image = as_dtype(layout.first(x), scale.dtype)
    axes = [0, *range(2, x.ndim)]
    center = ops.reduce_mean(image, axes, keepdims=1)
    difference = ops.sub(image, center)
    spread = ops.reduce_mean(ops.mul(difference, difference), axes, keepdims=1)
    shape = [1, -1, *[1] * (x.ndim - 2)]
    y = ops.mul(difference, ops.div(ops.reshape(scale, shape), ops.sqrt(ops.add(spread, number(epsilon, spread)))))
    y = as_dtype(ops.add(y, ops.reshape(offset, shape)), x.dtype)
    sizes = ops.gather(ops.shape(image), constant(np.asarray(axes)))
    count = as_dtype(ops.reduce_prod(sizes, keepdims=0), scale.dtype)
    rest = ops.maximum(ops.sub(count, number(1, count)), number(1, count))
    mean_now, biased = ops.reshape(center, [-1]), ops.reshape(spread, [-1])
    unbiased = ops.mul(biased, ops.div(count, rest))
    share = node.get("exponential_avg_factor", 1.0)
    if share != 1.0:
        kept, new = number(1 - share, mean), number(share, mean)
        mean_now = ops.add(ops.mul(mean, kept), ops.mul(mean_now, new))
        unbiased = ops.add(ops.mul(variance, kept), ops.mul(unbiased, new))
    return [layout.back(y), mean_now, unbiased, mean_now, biased, mean_now]


@rule("LRN")
def lrn(node: Any, x: Value) -> Value:
    """TensorFlow's alpha multiplies a sum, ONNX's a mean."""
    radius = int(node.get("depth_radius", 5))
    size = 2 * radius + 1
    found = ops.lrn(
        channels_first(x),
        size=size,
        alpha=node.get("alpha", 1.0) * size,
        beta=node.get("beta", 0.5),
        bias=node.get("bias", 1.0),
    )
    return channels_last(found)


@rule("BatchNormWithGlobalNormalization")
def old_batch_norm(node: Any, x: Value, mean: Value, variance: Value, beta: Value, gamma: Value) -> Value:
    scale = ops.reciprocal(ops.sqrt(ops.add(variance, number(node["variance_epsilon"], variance))))
    scale = ops.mul(scale, gamma) if node.get("scale_after_normalization", False) else scale
    return ops.add(ops.mul(ops.sub(x, mean), scale), beta)
