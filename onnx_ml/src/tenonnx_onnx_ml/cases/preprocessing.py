"""Cases of Scaler and Normalizer."""

from __future__ import annotations

from hypothesis import strategies as st

from tenonnx.testing import Gap, call, cases, tensors
from tenonnx_onnx_ml.preprocessing import normalizer, scaler

NUMBERS = ["float32", "float64", "int64", "int32"]


@cases(
    scaler,
    gradient=False,
    gaps=[
        Gap("reference", "onnx.reference gives the type of the input", when=lambda c: c.inputs[0].dtype != "float32"),
    ],
)
def _(draw):
    x = draw(tensors(NUMBERS, min_rank=1, max_rank=2))
    size = draw(st.sampled_from([1, x.shape[-1]]))
    offset, scale = (draw(tensors("float32", shape=(size,))).tolist() for _ in range(2))
    return call(x, offset=offset, scale=scale)


@cases(
    normalizer,
    gradient=False,
    gaps=[
        Gap(
            "reference",
            "onnx.reference gives the type of the input, and the maximum of magnitudes",
            when=lambda c: c.inputs[0].dtype != "float32" or c.attributes["norm"] == "MAX",
        ),
    ],
)
def _(draw):
    x = draw(tensors(NUMBERS, min_rank=1, max_rank=2, exclude_near=(0.0,)))
    if draw(st.booleans()):
        x = x * 0
    return call(x, norm=draw(st.sampled_from(["MAX", "L1", "L2"])))
