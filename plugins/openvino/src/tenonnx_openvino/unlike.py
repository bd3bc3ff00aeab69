"""Calls that OpenVINO converts, but to other numbers than ONNX defines: found by the cases of all ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenonnx.extend import elements, static
from tenonnx.extend.transforms import Call


def is_unlike(call: Call) -> bool:
    """Whether the body of a call must stand for it, or another backend run it."""
    unlike = _UNLIKE.get(call.op.name) if call.op.domain == "ai.onnx" else None
    return unlike is not None and unlike(call)


def _always(call: Call) -> bool:
    return True


def _is_integer(call: Call) -> bool:
    return call.inputs[0].dtype.is_integer


def _has_two_shapes(call: Call) -> bool:
    """An output shape, said or automatic, and padding beside it."""
    fixed = call.attributes.get("output_shape") or call.attributes["auto_pad"].startswith("SAME")
    return bool(fixed) and any(call.attributes.get("output_padding") or ())


def _broadcasts(call: Call) -> bool:
    """A scale of another shape than what is normalised."""
    x, scale = (value.type.shape for value in call.inputs[:2])
    return x is None or scale is None or scale != x[call.attributes["axis"] :]


def _rounds_up(call: Call) -> bool:
    """The last window counts where it begins in the padding; and there is one order of indices."""
    automatic = call.attributes["auto_pad"] not in ("NOTSET", "VALID")
    return bool((call.attributes["ceil_mode"] and automatic) or call.attributes.get("storage_order"))


def _crops(call: Call) -> bool:
    """Padding by a number that is not known beforehand, and by less than nothing."""
    pads, number = static(call.inputs[1]), call.inputs[2]
    return pads is None or bool((pads < 0).any()) or (number is not None and static(number) is None)


def _is_peculiar(call: Call) -> bool:
    """Some axes in an order of their own, or cubic weights without those outside."""
    return bool(call.attributes.get("axes") or call.attributes.get("exclude_outside"))


def _is_unchecked(call: Call) -> bool:
    """A shape that nobody knows beforehand: one that does not fit is not noticed, and memory read beyond the tensor."""
    return static(call.inputs[1]) is None and elements(call.inputs[1]) is None


_UNLIKE: dict[str, Callable[[Any], bool]] = {
    "BitShift": _always,  # what is shifted out of 8 bits is not lost
    "Compress": _always,  # ends the process on an empty tensor
    "ConvTranspose": _has_two_shapes,
    "Dropout": _always,  # a scalar comes out as what lay in its memory
    "HardSigmoid": _always,  # a beta of 0 is taken for none
    "LayerNormalization": _broadcasts,
    "MaxPool": _rounds_up,
    "Pad": _crops,
    "NonMaxSuppression": _always,  # at most so many boxes, of each class or of all
    "Reshape": _is_unchecked,
    "Resize": _is_peculiar,
    "RoiAlign": _always,  # output_half_pixel
    "Shrink": _is_integer,  # the bias is made an integer first
}
