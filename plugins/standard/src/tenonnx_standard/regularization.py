"""Dropout: random in training mode, the identity otherwise."""

from __future__ import annotations

from tenonnx.extend import DType, Value, constant, op, shapes, static
from tenonnx_standard.casting import cast, cast_like
from tenonnx_standard.logic import not_, or_, where
from tenonnx_standard.random import random_uniform_like
from tenonnx_standard.shapes import expand, shape


def _known(training_mode: Value | None) -> bool | None:
    """Whether this is training mode; None if only known at run time."""
    if training_mode is None:
        return False
    contents = static(training_mode)
    return None if contents is None else bool(contents.any())


@op("Dropout", pure=False)
def dropout(data, ratio=None, training_mode=None, *, seed: int | None = None, _outputs=None):
    """In training mode, elements are zeroed with probability ``ratio``, and the rest scaled to preserve the mean.

    Otherwise returns ``data``. The mask is True for kept elements.
    """
    masked = _outputs is None or _outputs > 1
    known = _known(training_mode)
    if known is False:
        return (data, expand(constant(True), shape(data))) if masked else data
    lost = constant(0.5, DType.float32) if ratio is None else cast(ratio, to=DType.float32)
    noise = random_uniform_like(data, dtype=DType.float32, seed=None if seed is None else float(seed))
    share = 1.0 - lost
    keep, scale = noise <= share, 1.0 / share
    if known is None:
        keep = or_(keep, not_(training_mode))
        scale = where(training_mode, scale, 1.0)
    wide = cast(data, to=DType.float32) if data.dtype.bits < 16 else data
    output = cast_like(where(keep, wide * cast_like(scale, wide), 0.0), data)
    return (output, keep) if masked else output


dropout.requires(shapes(ratio="", training_mode=""))


@dropout.until(12)
def dropout_off(data, *, ratio=0.5, _outputs=None):
    """``data`` itself, and a mask that keeps everything."""
    return dropout(data, _outputs=_outputs)


dropout_off.pure = True


@dropout_off.until(10)
def dropout_off_masked_by_number(data, *, ratio=0.5, _outputs=None):
    """``data`` itself, and a mask of ones in its dtype."""
    if _outputs == 1:
        return dropout_off(data, ratio=ratio, _outputs=1)
    output, mask = dropout_off(data, ratio=ratio)
    return output, cast_like(mask, data)


@dropout_off_masked_by_number.until(7)
def dropout_unless_test(data, *, is_test=0, ratio=0.5, _outputs=None):
    """Dropout in training mode, when ``is_test`` is 0; the mask has the dtype of ``data``."""
    if is_test:
        return (data, None) if _outputs and _outputs > 1 else data
    if _outputs == 1:
        return dropout(data, constant(ratio, data.dtype), constant(True), _outputs=1)
    output, mask = dropout(data, constant(ratio, data.dtype), constant(True))
    return output, cast_like(mask, data)


dropout_unless_test.pure = False
dropout_unless_test.until(6, ignored=["consumed_inputs"])


@dropout.lower(to=dropout_off)
def dropout_to_dropout_off(data, ratio, training_mode, *, seed, _outputs=None):
    """Only without the mask, which onnxruntime fills with zeros at those versions."""
    if _outputs == 1 and _known(training_mode) is False:
        return dropout_off(data, ratio=_number(ratio), _outputs=1)
    return None


@dropout_off.lower(to=dropout_off_masked_by_number)
def dropout_off_to_dropout_off_masked_by_number(data, *, ratio, _outputs=None):
    return dropout_off_masked_by_number(data, ratio=ratio, _outputs=1) if _outputs == 1 else None


@dropout_off_masked_by_number.lower(to=dropout_unless_test)
def dropout_off_masked_by_number_to_dropout_unless_test(data, *, ratio, _outputs=None):
    return dropout_unless_test(data, is_test=1, ratio=ratio, _outputs=1) if _outputs == 1 else None


def _number(ratio: Value | None) -> float:
    contents = static(ratio)
    return 0.5 if contents is None else float(contents.reshape(()))
