"""Cases of dropout."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_standard.regularization import dropout, dropout_off, dropout_off_masked_by_number, dropout_unless_test
from tenonnx_testing import Gap, Law, call, cases, tensors

FLOATS = ["float32", "float64", "float16", "bfloat16"]

MASK_OF_ZEROS = [
    Gap(
        check,
        "onnxruntime's mask of a dropout that drops nothing is all zeros below version 12, and all ones from there on",
        when=lambda call: call.outputs == 2,
    )
    for check in ("onnxruntime", "export")
]
BOOLEAN_MASK = Gap(
    "reference", "the mask is of bools, not of the dtype of the data", when=lambda call: call.outputs == 2
)


@cases(dropout)
def dropout_cases(draw):
    """In inference mode, which is deterministic."""
    ratio = draw(st.sampled_from([None, np.float32(0.25)]))
    training = draw(st.sampled_from([None, np.asarray(False)]))
    outputs = draw(st.sampled_from([1, 2]))
    return call(draw(tensors(FLOATS)), None if ratio is None else np.asarray(ratio), training, _outputs=outputs)


@cases(dropout)
def dropout_cases_2(draw):
    """In training mode with ratio 0."""
    return call(draw(tensors(FLOATS)), np.asarray(0, np.float32), np.asarray(True), seed=3, _outputs=2)


def kept_or_dropped(call):
    x, ratio = (v.astype(np.float64) for v in call.inputs[:2])
    return Law(x, abs(x) * np.sqrt(ratio / (1 - ratio)))


@cases(dropout, law=kept_or_dropped, gradient=False)
def dropout_cases_3(draw):
    """In training mode."""
    ratio = np.asarray(draw(st.sampled_from([0.25, 0.5])), np.float32)
    return call(draw(tensors(FLOATS[:2])), ratio, np.asarray(True), seed=3, _outputs=draw(st.sampled_from([1, 2])))


@cases(dropout_off, gaps=MASK_OF_ZEROS)
def dropout_off_cases(draw):
    return call(draw(tensors(FLOATS)), ratio=draw(st.sampled_from([0.25, 0.5])), _outputs=draw(st.sampled_from([1, 2])))


@cases(dropout_off_masked_by_number, gaps=[*MASK_OF_ZEROS, BOOLEAN_MASK])
def dropout_off_masked_by_number_cases(draw):
    return call(draw(tensors(FLOATS)), ratio=draw(st.sampled_from([0.25, 0.5])), _outputs=draw(st.sampled_from([1, 2])))


@cases(dropout_unless_test)
def dropout_unless_test_cases(draw):
    return call(draw(tensors(FLOATS)), is_test=1, _outputs=1)


@cases(dropout_unless_test)
def dropout_unless_test_cases_2(draw):
    return call(draw(tensors(FLOATS)), ratio=0.0, _outputs=2)
