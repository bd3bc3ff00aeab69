"""Calls for which OpenVINO deviates from ONNX, found by running the cases of all ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tenonnx_standard as ops
from tenonnx.extend import DType, Graph, UnsupportedOp, Value, elements, static
from tenonnx.extend.transforms import Call, Rewriter


def without_unlike(graph: Graph) -> Graph | None:
    """``graph`` without calls that OpenVINO computes incorrectly; None if it has none of them.

    Raises ``UnsupportedOp`` for a call that cannot be replaced.
    """
    found: list[Call] = []

    def decide(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
        name = call.op.name if call.op.domain == "ai.onnx" else ""
        if name in _INSTEAD and (replaced := _INSTEAD[name](call)) is not None:
            found.append(call)
            return [replaced]
        if name not in _UNLIKE or not _UNLIKE[name](call):
            return None
        if call.op.primitive or name in _NO_BETTER:
            raise UnsupportedOp(f"OpenVINO computes {call.op.title} differently from ONNX", do="use another backend")
        found.append(call)
        return rewriter.expand(call)

    rewritten = Rewriter(graph, decide, strict=True).run()
    return rewritten if found else None


def _always(call: Call) -> bool:
    return True


def _is_integer(call: Call) -> bool:
    return call.inputs[0].dtype.is_integer


def _has_two_shapes(call: Call) -> bool:
    """An output shape, explicit or automatic, together with padding."""
    fixed = call.attributes.get("output_shape") or call.attributes["auto_pad"].startswith("SAME")
    return bool(fixed) and any(call.attributes.get("output_padding") or ())


def _broadcasts(call: Call) -> bool:
    """A scale whose shape differs from that of the input."""
    x, scale = (value.tensor.shape for value in call.inputs[:2])
    return x is None or scale is None or scale != x[call.attributes["axis"] :]


def _rounds_up(call: Call) -> bool:
    """The last window counts even if it starts in the padding; and only one order of indices is supported."""
    return bool(call.attributes["ceil_mode"] or call.attributes.get("storage_order"))


def _crops(call: Call) -> bool:
    """Padding by unknown or negative numbers."""
    pads, number = static(call.inputs[1]), call.inputs[2]
    return pads is None or bool((pads < 0).any()) or (number is not None and static(number) is None)


def _is_peculiar(call: Call) -> bool:
    """Axes in unusual order, weights other than linear interpolation, or aligned corners."""
    chosen = any(call.attributes.get(name) for name in ("axes", "exclude_outside", "antialias"))
    return chosen or call.attributes["coordinate_transformation_mode"] == "align_corners"


def _is_float(call: Call) -> bool:
    return call.inputs[0].dtype.is_float


def _is_rare(call: Call) -> bool:
    """Batch first, or peepholes."""
    peepholes = call.inputs[7] if len(call.inputs) > 7 else None
    return bool(call.attributes.get("layout")) or peepholes is not None


def _has_16_bits(call: Call) -> bool:
    return any(value is not None and value.dtype in (DType.int16, DType.uint16) for value in call.inputs)


def _is_unchecked(call: Call) -> bool:
    """An unknown shape: a mismatch is not detected, and memory is read out of bounds."""
    return static(call.inputs[1]) is None and elements(call.inputs[1]) is None


def _has_64_bits(call: Call) -> bool:
    """64-bit integers, whose upper half would be lost."""
    return call.inputs[0].dtype in (DType.int64, DType.uint64)


def _shifted(call: Call) -> Value | None:
    """Shift uint8 as uint16: OpenVINO would divide or multiply, which rounds and keeps the bits shifted out."""
    if call.inputs[0].dtype is not DType.uint8:
        return None
    x, count = (ops.cast(value, to=DType.uint16) for value in call.inputs)
    wide = ops.bitshift(x, count, direction=call.attributes["direction"])
    return ops.cast(ops.bitwise_and(wide, 0xFF), to=DType.uint8)


#: Replacement of a call, or None.
_INSTEAD: dict[str, Callable[[Any], Value | None]] = {"BitShift": _shifted}

#: Ops whose bodies also lose the upper half of 64-bit integers.
_NO_BETTER = ("BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor")

_UNLIKE: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(_NO_BETTER, _has_64_bits),
    "Col2Im": _always,
    "Compress": _always,  # crashes on an empty tensor
    "ConvTranspose": _has_two_shapes,
    "DFT": _always,
    "Dropout": _always,  # a scalar comes out uninitialized
    "DynamicQuantizeLinear": _always,
    "GRU": _is_rare,
    "HardSigmoid": _always,  # treats a beta of 0 as absent
    "LSTM": _is_rare,
    "LayerNormalization": _broadcasts,
    "MaxPool": _rounds_up,
    "NonMaxSuppression": _always,  # limits boxes per class incorrectly
    "Pad": _crops,
    "Mod": _is_float,  # the remainder of a division by infinity
    "QuantizeLinear": _has_16_bits,
    "RNN": _is_rare,
    "Reshape": _is_unchecked,
    "Resize": _is_peculiar,
    "RoiAlign": _always,  # ignores output_half_pixel
    "Shrink": _is_integer,  # converts the bias to an integer first
}
