"""Calls for which OpenVINO deviates from ONNX, found by running the cases of all ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tenonnx_standard as ops
from tenonnx.extend import DType, Graph, UnsupportedOp, Value, elements, static
from tenonnx.extend.transforms import Call, Rewriter


def without_unlike(graph: Graph) -> Graph | None:
    """``graph`` with other calls in place of those that OpenVINO computes otherwise, None where it has none of them.

    Raises ``UnsupportedOp`` for a call that none can replace.
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
    """An output shape, said or automatic, and padding beside it."""
    fixed = call.attributes.get("output_shape") or call.attributes["auto_pad"].startswith("SAME")
    return bool(fixed) and any(call.attributes.get("output_padding") or ())


def _broadcasts(call: Call) -> bool:
    """A scale of another shape than what is normalized."""
    x, scale = (value.tensor.shape for value in call.inputs[:2])
    return x is None or scale is None or scale != x[call.attributes["axis"] :]


def _rounds_up(call: Call) -> bool:
    """The last window counts where it begins in the padding; and there is one order of indices."""
    return bool(call.attributes["ceil_mode"] or call.attributes.get("storage_order"))


def _crops(call: Call) -> bool:
    """Padding by a number that is not known beforehand, and by less than nothing."""
    pads, number = static(call.inputs[1]), call.inputs[2]
    return pads is None or bool((pads < 0).any()) or (number is not None and static(number) is None)


def _is_peculiar(call: Call) -> bool:
    """Some axes in an order of their own, other weights than those between neighbors, corners that meet."""
    chosen = any(call.attributes.get(name) for name in ("axes", "exclude_outside", "antialias"))
    return chosen or call.attributes["coordinate_transformation_mode"] == "align_corners"


def _is_float(call: Call) -> bool:
    return call.inputs[0].dtype.is_float


def _is_rare(call: Call) -> bool:
    """Batches first, or peepholes."""
    peepholes = call.inputs[7] if len(call.inputs) > 7 else None
    return bool(call.attributes.get("layout")) or peepholes is not None


def _has_16_bits(call: Call) -> bool:
    return any(value is not None and value.dtype in (DType.int16, DType.uint16) for value in call.inputs)


def _is_unchecked(call: Call) -> bool:
    """A shape that nobody knows beforehand: one that does not fit is not noticed, and memory read beyond the tensor."""
    return static(call.inputs[1]) is None and elements(call.inputs[1]) is None


def _has_64_bits(call: Call) -> bool:
    """Of which the upper half would be lost."""
    return call.inputs[0].dtype in (DType.int64, DType.uint64)


def _shifted(call: Call) -> Value | None:
    """In 16 bits: eight are shifted by dividing and multiplying, which rounds, and loses nothing on the left."""
    if call.inputs[0].dtype is not DType.uint8:
        return None
    x, count = (ops.cast(value, to=DType.uint16) for value in call.inputs)
    wide = ops.bitshift(x, count, direction=call.attributes["direction"])
    return ops.cast(ops.bitwise_and(wide, 0xFF), to=DType.uint8)


#: What is computed in place of a call, or None.
_INSTEAD: dict[str, Callable[[Any], Value | None]] = {"BitShift": _shifted}

#: Ops whose bodies lose the upper half of 64 bits, too.
_NO_BETTER = ("BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor")

_UNLIKE: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(_NO_BETTER, _has_64_bits),
    "Col2Im": _always,
    "Compress": _always,  # ends the process on an empty tensor
    "ConvTranspose": _has_two_shapes,
    "DFT": _always,
    "Dropout": _always,  # a scalar comes out as what lay in its memory
    "DynamicQuantizeLinear": _always,
    "GRU": _is_rare,
    "HardSigmoid": _always,  # a beta of 0 is taken for none
    "LSTM": _is_rare,
    "LayerNormalization": _broadcasts,
    "MaxPool": _rounds_up,
    "NonMaxSuppression": _always,  # at most so many boxes, of each class or of all
    "Pad": _crops,
    "Mod": _is_float,  # the rest of a division by infinity
    "QuantizeLinear": _has_16_bits,
    "RNN": _is_rare,
    "Reshape": _is_unchecked,
    "Resize": _is_peculiar,
    "RoiAlign": _always,  # output_half_pixel
    "Shrink": _is_integer,  # the bias is made an integer first
}
