"""Cases of Scaler, Normalizer, Binarizer and Imputer."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_onnx_ml.preprocessing import binarizer, imputer, normalizer, scaler
from tenonnx_testing import Gap, call, cases, tensors

NUMBERS = ["float32", "float64", "int64", "int32"]


@cases(
    scaler,
    gaps=[
        Gap("reference", "onnx.reference gives the type of the input", when=lambda c: c.inputs[0].dtype != "float32"),
    ],
)
def scaler_cases(draw):
    x = draw(tensors(NUMBERS, min_rank=1, max_rank=2))
    size = draw(st.sampled_from([1, x.shape[-1]]))
    offset, scale = (draw(tensors("float32", shape=(size,))).tolist() for _ in range(2))
    return call(x, offset=offset, scale=scale)


@cases(
    normalizer,
    gaps=[
        Gap(
            "reference",
            "onnx.reference returns the type of the input, and uses the maximum of magnitudes",
            when=lambda c: c.inputs[0].dtype != "float32" or c.attributes["norm"] == "MAX",
        ),
    ],
)
def normalizer_cases(draw):
    x = draw(tensors(NUMBERS, min_rank=1, max_rank=2, exclude_near=(0.0,)))
    if draw(st.booleans()):
        x = x * 0
    return call(x, norm=draw(st.sampled_from(["MAX", "L1", "L2"])))


@cases(binarizer, gradient=False)
def binarizer_cases(draw):
    threshold = draw(st.sampled_from([0.0, 0.5, -1.5, 2.0, 1e30, -1e30]))
    x = draw(tensors(NUMBERS, exclude_near=(threshold,)))
    return call(x, threshold=threshold)


BEYOND = Gap(
    "onnxruntime",
    "for more than two axes onnxruntime uses axis 1 as the features",
    when=lambda c: c.inputs[0].ndim > 2 and len(c.attributes["imputed_value_floats"]) > 1,
)


def imputation(draw, replaced):
    """Floats, some of which are to be replaced."""
    x = draw(tensors(["float32", "float64"], min_rank=1, max_rank=3, exclude_near=(2.0,)))
    x = np.where(draw(tensors("bool", shape=x.shape)), np.asarray(replaced, x.dtype), x)
    size = draw(st.sampled_from([1, x.shape[-1]]))
    imputed = draw(tensors("float32", shape=(size,))).tolist()
    return call(x, imputed_value_floats=imputed, replaced_value_float=replaced)


@cases(imputer, gaps=[BEYOND])
def imputer_cases(draw):
    return imputation(draw, np.nan)


@cases(imputer, gaps=[BEYOND], gradient=False)
def imputer_cases_2(draw):
    return imputation(draw, 2.0)


@cases(imputer, gradient=False)
def imputer_cases_3(draw):
    """Integers."""
    x = draw(tensors(["int64", "int32"], min_rank=1, max_rank=2, min_value=-2, max_value=2))
    imputed = draw(tensors("int64", shape=(draw(st.sampled_from([1, x.shape[-1]])),))).tolist()
    return call(x, imputed_value_int64s=imputed, replaced_value_int64=draw(st.sampled_from([-1, 0, 2, 2**40])))
