"""Cases of batch normalization."""

from __future__ import annotations

from hypothesis import strategies as st

from tenonnx_standard.batch_norm import (
    batch_normalization,
    batch_normalization_by_outputs,
    batch_normalization_consuming,
    batch_normalization_is_test,
    batch_normalization_spatial,
)
from tenonnx_standard.cases.normalization import spread
from tenonnx_testing import Gap, call, cases, shapes, tensors

FLOATS = ["float32", "float64", "float16", "bfloat16"]

SAVED_VARIANCE = [
    Gap(
        check,
        "onnxruntime's last output is the inverse of the standard deviation, not the variance",
        when=lambda call: call.outputs == 5,
    )
    for check in ("onnxruntime", "export")
]


def inputs(draw, dtypes, *, min_rank=1, by_position=False):
    """``X`` and its four parameters, with one element for each channel or for each position."""
    x = spread(draw, dtypes, shapes(min_rank, 4, 2, 4))
    sides = x.shape[1:] if by_position else x.shape[1:2] or (1,)
    named = x.dtype.name
    scale, shift, mean = (draw(tensors(named, shape=sides)) for _ in range(3))
    return x, scale, shift, mean, draw(tensors(named, shape=sides, min_value=0.5, max_value=2))


def attributes(draw):
    return {"epsilon": draw(st.sampled_from([1e-5, 1e-2])), "momentum": draw(st.sampled_from([0.9, 0.25]))}


@cases(batch_normalization)
def batch_normalization_cases(draw):
    training = draw(st.integers(0, 1))
    return call(*inputs(draw, FLOATS), training_mode=training, _outputs=3 if training else 1, **attributes(draw))


RUNNING_AS_DATA = Gap(
    "reference", "the running statistics have the dtype of X, not their own", when=lambda call: call.outputs == 3
)


@cases(batch_normalization, gaps=[RUNNING_AS_DATA])
def batch_normalization_cases_2(draw):
    """Data with fewer bits than the parameters."""
    x, scale, shift, mean, variance = inputs(draw, "float32")
    training = draw(st.integers(0, 1))
    outputs = 3 if training else 1
    x = x.astype("float16")
    return call(x, scale, shift, mean, variance, training_mode=training, _outputs=outputs, **attributes(draw))


ALWAYS_TRAINS = Gap("reference", "it normalizes by the batch even if only one output is requested")


@cases(batch_normalization_by_outputs, gaps=[*SAVED_VARIANCE, ALWAYS_TRAINS])
def batch_normalization_by_outputs_cases(draw):
    outputs = draw(st.sampled_from([1, 5]))
    return call(*inputs(draw, ["float32", "float64", "float16"], min_rank=2), _outputs=outputs, **attributes(draw))


@cases(batch_normalization_spatial, gaps=SAVED_VARIANCE)
def batch_normalization_spatial_cases(draw):
    spatial, outputs = draw(st.integers(0, 1)), draw(st.sampled_from([1, 5]))
    given = inputs(draw, ["float32", "float64"], min_rank=2, by_position=not spatial)
    return call(*given, spatial=spatial, _outputs=outputs, **attributes(draw))


def older(draw, **more):
    spatial, is_test = draw(st.integers(0, 1)), draw(st.integers(0, 1))
    given = inputs(draw, ["float32", "float64"], min_rank=2, by_position=not spatial)
    return call(*given, spatial=spatial, is_test=is_test, _outputs=1 if is_test else 5, **more, **attributes(draw))


@cases(batch_normalization_is_test)
def batch_normalization_is_test_cases(draw):
    return older(draw)


@cases(batch_normalization_consuming)
def batch_normalization_consuming_cases(draw):
    return older(draw, consumed_inputs=[0, 0, 0, 1, 1])
