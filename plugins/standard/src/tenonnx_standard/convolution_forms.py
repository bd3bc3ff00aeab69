"""Normal form of convolutions: scales and shifts of their channels are folded into kernel and bias."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tenonnx.extend import Op, Value, constant, is_trainable
from tenonnx_standard.batch_norm import batch_normalization
from tenonnx_standard.convolution import conv, conv_transpose
from tenonnx_standard.math import add, mul
from tenonnx_standard.shapes import transpose
from tenonnx_standard.slicing import slice_


def by_channel(x: Value, channels: Any, axis: int) -> np.ndarray[Any, Any] | None:
    """The elements of a constant, one for each position of an axis, which is counted from the end; else None."""
    if x.data is None or not isinstance(channels, int) or x.data.type.dtype.bits > 64 or x.rank is None:
        return None
    wanted = (channels, *(1,) * (axis - 1))
    shape = x.data.type.shape
    return x.data.array().reshape(-1) if shape in (wanted, (1, *wanted)) else None


def folded(op: Op, A: Value, B: Value) -> Value | None:
    """Fold a per-channel constant factor or addend into the kernel and bias of a convolution."""
    for x, other in ((A, B), (B, A)):
        node = x.producer
        if node is None or node.op not in (conv, conv_transpose) or x.rank is None or x.rank < 3:
            continue
        image, kernel, bias = (*node.inputs, None)[:3]
        if image is None or kernel is None or kernel.data is None or (bias is not None and bias.data is None):
            continue
        if any(map(is_trainable, (kernel, bias, other))):  # training changes them and finds them by name
            continue
        numbers = by_channel(other, x.shape[1], x.rank - 1)
        if numbers is None:
            continue
        dtype = kernel.dtype
        weights, wide = kernel.data.array(), numbers.astype(np.float64)
        start: Any = np.zeros(len(wide)) if bias is None else bias.data.array().astype(np.float64)  # type: ignore[union-attr]
        if op is mul:
            spatial, groups = [1] * (x.rank - 2), node.attributes.get("group", 1)
            wanted = [-1, 1, *spatial] if node.op is conv else [groups, 1, -1, *spatial]
            parted = weights if node.op is conv else weights.reshape(groups, -1, *weights.shape[1:])
            scaled = (parted.astype(np.float64) * wide.reshape(wanted)).reshape(weights.shape)
            kernel = constant(scaled.astype(weights.dtype), dtype)
            bias = None if bias is None else constant((start * wide).astype(weights.dtype), dtype)
        elif op is add:
            bias = constant((start + wide).astype(weights.dtype), dtype)
        return node.op(image, kernel, bias, **node.attributes)  # type: ignore[no-any-return]
    return None


@batch_normalization.rule("normal")
def batch_normalization_normal(
    X: Value, scale: Value, B: Value, input_mean: Value, input_var: Value, *, training_mode: int, **attributes: Any
) -> Value | None:
    """After a convolution, the scale and shift that inference applies."""
    parameters = scale, B, input_mean, input_var
    is_convolution = X.producer is not None and X.producer.op in (conv, conv_transpose)
    if training_mode or not is_convolution or any(v.data is None for v in parameters):
        return None
    attributes.pop("_outputs", None)
    return batch_normalization.function(X, *parameters, **attributes)  # type: ignore[no-any-return]


@conv_transpose.rule("normal")
def conv_transpose_normal(
    X: Value,
    W: Value,
    B: Value | None,
    *,
    auto_pad: str,
    dilations: Sequence[int] | None,
    group: int,
    kernel_shape: Sequence[int] | None,
    output_padding: Sequence[int] | None,
    output_shape: Sequence[int] | None,
    pads: Sequence[int] | None,
    strides: Sequence[int] | None,
) -> Value | None:
    """Without strides, groups and output padding: a convolution with flipped kernels."""
    sizes = kernel_shape or (None if W.rank is None else W.shape[2:])
    plain = auto_pad == "NOTSET" and group == 1 and not output_shape and not any(output_padding or ())
    if not plain or not sizes or None in sizes or not set(strides or ()) <= {1}:
        return None
    axes, steps = list(range(2, 2 + len(sizes))), [-1] * len(sizes)
    reach = [d * (k - 1) for d, k in zip(dilations or [1] * len(sizes), sizes, strict=True)]
    cut = [r - p for r, p in zip(reach * 2, pads or [0] * 2 * len(sizes), strict=True)]
    if min(cut) < 0:
        return None
    turned = slice_(W, steps, [np.iinfo(np.int64).min] * len(sizes), axes, steps)
    return conv(X, transpose(turned, perm=[1, 0, *axes]), B, dilations=dilations, kernel_shape=list(sizes), pads=cut)  # type: ignore[no-any-return]


def _match_itself(op: Op) -> None:
    @op.pattern
    def op_pattern(y: Value) -> Iterator[tuple[tuple[Value | None, ...], dict[str, Any]]]:
        """Match convolutions that are already in normal form."""
        if y.producer is not None and y.producer.op is op:
            yield tuple(y.producer.inputs), dict(y.producer.attributes)


_match_itself(conv)
_match_itself(conv_transpose)
