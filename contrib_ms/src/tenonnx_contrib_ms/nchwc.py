"""The domain com.microsoft.nchwc: images with blocked channels (NCHWc) and unblocked declared shapes.

onnxruntime's optimizer emits these ops for the CPU it runs on, and files do not contain the block size. It is inferred
from the channels of all convolutions of the graph or, if these are ambiguous, from this CPU, as in onnxruntime.
Channels are padded with zeros to full blocks.
"""

from __future__ import annotations

import functools
import platform
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Dim, DType, Graph, TypeMismatch, Value, constant, dims, op
from tenonnx_contrib_ms.activations import listed
from tenonnx_contrib_ms.layouts import channels_first, channels_last_again

NCHWC = "com.microsoft.nchwc"

#: Channels per block: on CPUs with AVX-512 or NEON, and on others.
WIDE, NARROW = 16, 8


# ----- blocks ---------------------------------------------------------------------------------------------------------


@functools.cache
def block_of_this_machine() -> int:
    if platform.machine().lower() in ("aarch64", "arm64"):
        return WIDE
    found = np.show_config(mode="dicts")["SIMD Extensions"]["found"]  # type: ignore[call-overload]
    return WIDE if any(name.startswith(("AVX512", "X86_V4")) for name in found) else NARROW


def _block(graph: Graph | None, *channels: Dim) -> int:
    """Block size of a graph: divides the number of channels of every blocked tensor.

    Uses the channels of the call itself and, if its graph is known, of all convolution kernels there.
    """
    counts = {count for count in channels if isinstance(count, int)}
    for node in () if graph is None else graph.nodes:
        if node.domain == NCHWC and node.op_type == "Conv" and node.inputs[1] is not None:
            kernels = node.inputs[1].tensor.shape
            counts.update(kernels[:1] if kernels and isinstance(kernels[0], int) else ())
    fitting = [size for size in (WIDE, NARROW) if all(count % size == 0 for count in counts)]
    if not fitting:
        raise TypeMismatch(
            f"{NCHWC}: number of channels is not a multiple of {NARROW} or {WIDE}", given=f"{sorted(counts)} channels"
        )
    return fitting[0] if len(fitting) == 1 else block_of_this_machine()


def _check_images(x: Value) -> None:
    if x.ndim != 4:
        raise TypeMismatch(f"{NCHWC}: images do not have 4 axes", given=repr(x))


def _unblocked(x: Value, size: Any) -> Value:
    """Convert ``x`` from blocked to plain channels."""
    _check_images(x)
    if (source := _put_in_blocks(x)) is not None:
        return source
    blocks = ops.reshape(x, [0, dims(x)[1] // size, -1, size])
    return ops.reshape(ops.transpose(blocks, perm=[0, 1, 3, 2]), ops.shape(x))


def _in_blocks(x: Value, size: int) -> Value:
    blocks = ops.reshape(x, [0, dims(x)[1] // size, size, -1])
    return ops.reshape(ops.transpose(blocks, perm=[0, 1, 3, 2]), ops.shape(x))


def _put_in_blocks(x: Value) -> Value | None:
    """Input of the node that blocked ``x``, so that no reordering is needed; None for another node."""
    given: Value | None = x
    for name in ("Reshape", "Transpose", "Reshape"):
        node = None if given is None else given.producer
        if node is None or node.op_type != name:
            return None
        given = node.inputs[0]
        if name == "Transpose" and (given is None or given.rank != 4 or given.shape[2] not in (WIDE, NARROW)):
            return None
    return given if given is not None and given.type == x.type else None


# ----- the ops --------------------------------------------------------------------------------------------------------


@op("ReorderInput", domain=NCHWC)
def reorder_input(X, *, channels_last=0, _graph: Graph | None = None):
    """Pad the channels of ``X`` with zeros to full blocks, and reorder them into blocks."""
    _check_images(X)
    x, size = channels_first(X) if channels_last else X, _block(_graph)
    missing = -dims(x)[1] % size
    return _in_blocks(x if isinstance(missing, int) and not missing else ops.pad(x, [0, missing], axes=[1]), size)


@op("ReorderOutput", domain=NCHWC)
def reorder_output(X, *, channels=0, channels_last=0, _graph: Graph | None = None):
    """Reorder blocks back, and crop to the first ``channels``."""
    given = X.shape[1] if X.ndim > 1 else None
    if channels < 1 or (isinstance(given, int) and channels > given):
        raise TypeMismatch(
            f"{reorder_output.title}: channels lies outside 1 to the channels of X",
            given=f"channels={channels}, X {X!r}",
        )
    y = _unblocked(X, _block(_graph, given))
    y = y if channels == given else y[:, :channels]
    return channels_last_again(y) if channels_last else y


@op("Conv", domain=NCHWC)
def conv(
    X,
    W,
    B=None,
    Sum=None,
    *,
    activation: str | None = None,
    activation_params: list[float] | None = None,
    auto_pad="NOTSET",
    dilations: list[int] | None = None,
    group=1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
    _graph: Graph | None = None,
):
    """Conv plus ``Sum``, then an activation.

    Results are blocked, and so are the images unless they have fewer channels than a block. Kernels are blocked by
    output channels and, within these, by input channels unless these are fewer than a block.
    """
    if W.ndim != 4:
        raise TypeMismatch(f"{conv.title}: W does not have 4 axes", given=repr(W))
    size = _block(_graph, W.shape[0])
    results, channels, height, width = dims(W)
    depth = _block_size(channels, size)
    kernels = ops.reshape(W, [results // size, channels // depth, height, width, depth, size])
    w = ops.reshape(ops.transpose(kernels, perm=[0, 5, 1, 4, 2, 3]), ops.shape(W))
    x = _unblocked(X, _block_size(channels * group, size))
    y = ops.conv(
        x,
        w,
        B,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    y = y if Sum is None else y + _unblocked(Sum, size)
    return _in_blocks(listed(conv, y, activation, activation_params), size)


def _block_size(channels: Any, size: int) -> Any:
    """Return ``size``, or 1 if there are fewer channels, which are not blocked."""
    if isinstance(channels, int):
        return size if channels >= size else 1
    return ops.where(channels >= size, size, constant(1, DType.int64))


@op("MaxPool", domain=NCHWC)
def max_pool(
    X,
    *,
    auto_pad="NOTSET",
    ceil_mode=0,
    dilations: list[int] | None = None,
    kernel_shape: list[int],
    pads: list[int] | None = None,
    storage_order=0,
    strides: list[int] | None = None,
    _graph: Graph | None = None,
):
    """MaxPool of blocked images."""
    size = _block(_graph, *X.shape[1:2])
    y = ops.max_pool(
        _unblocked(X, size),
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
        dilations=dilations,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
        _outputs=1,
    )
    return _in_blocks(y, size)


@op("AveragePool", domain=NCHWC)
def average_pool(
    X,
    *,
    auto_pad="NOTSET",
    ceil_mode=0,
    count_include_pad=0,
    dilations: list[int] | None = None,
    kernel_shape: list[int],
    pads: list[int] | None = None,
    strides: list[int] | None = None,
    _graph: Graph | None = None,
):
    """AveragePool of blocked images."""
    size = _block(_graph, *X.shape[1:2])
    y = ops.average_pool(
        _unblocked(X, size),
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
        count_include_pad=count_include_pad,
        dilations=dilations,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    return _in_blocks(y, size)


@op("GlobalMaxPool", domain=NCHWC)
def global_max_pool(X, *, _graph: Graph | None = None):
    """GlobalMaxPool of blocked images."""
    size = _block(_graph, *X.shape[1:2])
    return _in_blocks(ops.global_max_pool(_unblocked(X, size)), size)


@op("GlobalAveragePool", domain=NCHWC)
def global_average_pool(X, *, _graph: Graph | None = None):
    """GlobalAveragePool of blocked images."""
    size = _block(_graph, *X.shape[1:2])
    return _in_blocks(ops.global_average_pool(_unblocked(X, size)), size)


@op("Upsample", domain=NCHWC)
def upsample(
    X,
    *,
    coordinate_transformation_mode="asymmetric",
    mode="nearest",
    scales: list[int] | None = None,
    _graph: Graph | None = None,
):
    """Resize blocked images by integer ``scales``."""
    if len(scales or ()) != 4 or min(scales) < 1 or scales[:2] != [1, 1]:
        raise TypeMismatch(
            f"{upsample.title}: scales are not positive, or not 1 for batch and channels", given=f"scales={scales}"
        )
    size = _block(_graph, *X.shape[1:2])
    y = ops.resize(
        _unblocked(X, size),
        None,
        constant(np.float32(scales)),
        mode=mode,
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric" if mode == "nearest" else coordinate_transformation_mode,
    )
    return _in_blocks(y, size)
