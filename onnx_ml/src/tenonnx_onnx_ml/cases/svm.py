"""Cases of SVMClassifier and SVMRegressor."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_onnx_ml.cases.linear import NUMBERS, TRANSFORMS, labels_of, rows
from tenonnx_onnx_ml.svm import svm_classifier, svm_regressor
from tenonnx_testing import Gap, call, cases, tensors

KERNELS = ["LINEAR", "POLY", "RBF", "SIGMOID"]


def numbers(draw, *shape, low=-1, high=1):
    return (
        draw(tensors("float32", shape=shape, min_value=low, max_value=high, exclude_near=(0.0,))).reshape(-1).tolist()
    )


def kernel_of(draw, features, count):
    """A kernel and its support vectors."""
    name = draw(st.sampled_from(KERNELS))
    params = [draw(st.sampled_from([0.25, 0.5])), draw(st.sampled_from([0.0, 0.5])), float(draw(st.integers(2, 3)))]
    return {"kernel_type": name, "kernel_params": params, "support_vectors": numbers(draw, count, features)}


def pairwise(draw, classes, features):
    """A one-against-one machine for ``classes`` classes."""
    vectors = [draw(st.integers(1, 3)) for _ in range(classes)]
    count, pairs = sum(vectors), classes * (classes - 1) // 2
    return {
        "vectors_per_class": vectors,
        "coefficients": numbers(draw, classes - 1, count),
        "rho": numbers(draw, pairs, low=0.3, high=0.9),
        **kernel_of(draw, features, count),
        **labels_of(draw, classes),
    }


def classes_of(c):
    return len(c.attributes["classlabels_ints"] or c.attributes["classlabels_strings"])


OTHERS = Gap(
    "reference",
    "onnx.reference returns the type of the input, and transforms the two scores of two classes",
    when=lambda c: c.inputs[0].dtype != "float32" or classes_of(c) == 2,
)


@cases(svm_classifier, gaps=[OTHERS])
def svm_classifier_cases(draw):
    """Scores of pairs of classes."""
    x = rows(draw)
    attributes = pairwise(draw, draw(st.integers(2, 4)), x.shape[1])
    return call(x, post_transform=draw(st.sampled_from(TRANSFORMS)), **attributes)


@cases(
    svm_classifier,
    gradient=False,
    gaps=[
        Gap(
            "reference",
            "onnx.reference is wrong for probabilities of three or more classes",
            when=lambda c: c.inputs[0].dtype != np.float32 or classes_of(c) > 2,
        )
    ],
)
def svm_classifier_cases_2(draw):
    """Class probabilities."""
    x = rows(draw)
    classes = draw(st.integers(2, 4))
    attributes = pairwise(draw, classes, x.shape[1])
    pairs = classes * (classes - 1) // 2
    platt = {"prob_a": numbers(draw, pairs, low=-2, high=-0.5), "prob_b": numbers(draw, pairs, low=-0.5, high=0.5)}
    return call(x, post_transform=draw(st.sampled_from(TRANSFORMS)), **attributes, **platt)


SIGN = Gap("reference", "with one number in rho, onnx.reference returns the sign of the score instead of the label")


@cases(svm_classifier, gaps=[SIGN])
def svm_classifier_cases_3(draw):
    """A linear machine, without support vectors."""
    x = rows(draw)
    classes = draw(st.integers(1, 4))
    attributes = {"coefficients": numbers(draw, classes, x.shape[1], low=draw(st.sampled_from([-1, 0.1])))}
    attributes |= {"rho": numbers(draw, 1), "kernel_params": [0.5, 0.5, 2.0], **labels_of(draw, classes)}
    return call(x, post_transform=draw(st.sampled_from(TRANSFORMS)), **attributes)


WIDE = Gap("reference", "onnx.reference gives the type of the input", when=lambda c: c.inputs[0].dtype != np.float32)


@cases(svm_regressor, gaps=[WIDE])
def svm_regressor_cases(draw):
    x = draw(tensors(NUMBERS, min_rank=2, max_rank=2, max_side=3))
    count = draw(st.integers(1, 4))
    attributes = {"coefficients": numbers(draw, count), "rho": numbers(draw, 1), **kernel_of(draw, x.shape[1], count)}
    return call(x, n_supports=count, post_transform=draw(st.sampled_from(TRANSFORMS)), **attributes)


@cases(svm_regressor, gaps=[WIDE], gradient=False)
def svm_regressor_cases_2(draw):
    """Outlier detection, and a linear machine."""
    x = draw(tensors(NUMBERS, min_rank=1, max_rank=2, max_side=3))
    attributes = {"coefficients": numbers(draw, x.shape[-1]), "kernel_params": [0.5, 0.5, 2.0]}
    return call(x, rho=numbers(draw, 1), one_class=draw(st.integers(0, 1)), **attributes)
