"""Cases of ArrayFeatureExtractor and FeatureVectorizer."""

from __future__ import annotations

from hypothesis import strategies as st

from tenonnx_onnx_ml.features import array_feature_extractor, feature_vectorizer
from tenonnx_testing import Gap, call, cases, shapes, tensors

NUMBERS = ["float32", "float64", "int64", "int32"]


@cases(array_feature_extractor)
def array_feature_extractor_cases(draw):
    x = draw(tensors([*NUMBERS, "string"], min_rank=1, max_rank=3))
    y = draw(tensors("int64", shape=shapes(0, 2), min_value=0, max_value=x.shape[-1] - 1))
    return call(x, y)


@cases(
    feature_vectorizer,
    gaps=[
        Gap(
            "reference",
            "onnx.reference returns the type of the inputs, and treats a vector as a column",
            when=lambda c: c.inputs[0].dtype != "float32" or c.inputs[0].ndim == 1,
        )
    ],
)
def feature_vectorizer_cases(draw):
    dtype, count = draw(st.sampled_from(NUMBERS)), draw(st.integers(1, 3))
    rows = [] if draw(st.booleans()) else [draw(st.integers(1, 3))]
    inputs = [draw(tensors(dtype, shape=(*rows, draw(st.integers(1, 4))))) for _ in range(count)]
    return call(*inputs, inputdimensions=[draw(st.integers(1, 5)) for _ in inputs])


@cases(feature_vectorizer)
def feature_vectorizer_cases_2(draw):
    """All features of the inputs, which may have more than two axes."""
    rows = draw(st.integers(1, 3))
    inputs = [draw(tensors("float32", shape=(rows, *draw(shapes(1, 2, max_side=3))))) for _ in range(2)]
    return call(*inputs)
