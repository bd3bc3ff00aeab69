"""Cases of LinearClassifier and LinearRegressor."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_onnx_ml.linear import linear_classifier, linear_regressor
from tenonnx_testing import Gap, call, cases, tensors

NUMBERS = ["float32", "float64", "int64", "int32"]
TRANSFORMS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"]


def labels_of(draw, count, integers="classlabels_ints", strings="classlabels_strings"):
    """This number of labels, as integers or strings."""
    if draw(st.booleans()):
        return {integers: draw(st.permutations(range(3, 3 + count)))}
    return {strings: draw(st.permutations(["a", "b", "c", "d"]))[:count]}


def rows(draw, dtypes=NUMBERS):
    return draw(tensors(dtypes, min_rank=2, max_rank=2, max_side=3))


def coefficients_of(draw, scores, features):
    weights = draw(tensors("float32", shape=(scores, features), min_value=-1, max_value=1, exclude_near=(0.0,)))
    return weights.reshape(-1).tolist(), draw(
        tensors("float32", shape=(scores,), min_value=0.25, max_value=0.95)
    ).tolist()


WIDE = Gap("reference", "onnx.reference returns float64 for float64", when=lambda c: c.inputs[0].dtype == np.float64)


@cases(linear_classifier, gaps=[WIDE])
def linear_classifier_cases(draw):
    """One score per label."""
    x = rows(draw)
    count = draw(st.integers(2, 4))
    coefficients, intercepts = coefficients_of(draw, count, x.shape[1])
    return call(
        x,
        coefficients=coefficients,
        intercepts=intercepts,
        post_transform=draw(st.sampled_from(TRANSFORMS)),
        multi_class=draw(st.integers(0, 1)),
        **labels_of(draw, count),
    )


@cases(
    linear_classifier,
    gaps=[
        Gap(
            "reference",
            "the first score is minus the second in onnx.reference, and one minus it in onnxruntime",
            when=lambda c: c.attributes["post_transform"] != "LOGISTIC" or c.inputs[0].dtype == np.float64,
        ),
    ],
)
def linear_classifier_cases_2(draw):
    """A single score for two labels."""
    x = rows(draw)
    coefficients, intercepts = coefficients_of(draw, 1, x.shape[1])
    transform = draw(st.sampled_from(TRANSFORMS))
    return call(x, coefficients=coefficients, intercepts=intercepts, post_transform=transform, **labels_of(draw, 2))


@cases(
    linear_classifier,
    gaps=[
        Gap("onnxruntime", "onnxruntime overwrites scores while it transforms them", when=lambda c: is_single(c)),
        Gap("reference", "onnx.reference takes the label from the transformed scores", when=lambda c: is_single(c)),
    ],
)
def linear_classifier_cases_3(draw):
    """Scores that are probabilities."""
    x = draw(tensors("float32", min_rank=2, max_rank=2, min_value=0.1, max_value=0.4))
    count = draw(st.integers(1, 3))
    intercepts = draw(tensors("float32", shape=(count,), min_value=0.1, max_value=0.5)).tolist()
    coefficients = draw(tensors("float32", shape=(count * x.shape[1],), min_value=0.01, max_value=0.2)).tolist()
    return call(
        x,
        coefficients=coefficients,
        intercepts=intercepts,
        post_transform="PROBIT",
        **labels_of(draw, max(count, 2)),
    )


def is_single(c):
    """Whether a single score is used for two labels."""
    return len(c.attributes["intercepts"]) == 1


OTHER_TYPE = Gap(
    "reference",
    "onnx.reference returns the type of the input, and a vector for a vector",
    when=lambda c: c.inputs[0].dtype != np.float32 or c.inputs[0].ndim == 1,
)


NO_INTERCEPT = Gap(
    "reference",
    "without intercepts onnx.reference returns NaN, and onnxruntime the product",
    when=lambda c: c.attributes["intercepts"] is None,
)


@cases(linear_regressor, gaps=[OTHER_TYPE, NO_INTERCEPT])
def linear_regressor_cases(draw):
    x = draw(tensors(NUMBERS, min_rank=1, max_rank=2))
    targets = draw(st.integers(1, 3))
    coefficients, intercepts = coefficients_of(draw, targets, x.shape[-1])
    transform = draw(st.sampled_from(TRANSFORMS))
    intercepts = intercepts if draw(st.booleans()) else None
    return call(x, coefficients=coefficients, intercepts=intercepts, targets=targets, post_transform=transform)


@cases(linear_regressor)
def linear_regressor_cases_2(draw):
    """Targets that are probabilities."""
    x = draw(tensors("float32", min_rank=2, max_rank=2, min_value=0.1, max_value=0.4))
    targets = draw(st.integers(1, 3))
    coefficients = draw(tensors("float32", shape=(targets * x.shape[1],), min_value=0.01, max_value=0.2)).tolist()
    return call(x, coefficients=coefficients, intercepts=[0.1] * targets, targets=targets, post_transform="PROBIT")
