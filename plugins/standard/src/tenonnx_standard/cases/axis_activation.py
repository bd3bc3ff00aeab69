"""Cases of activations along an axis."""

from __future__ import annotations

import numpy as np

from tenonnx_standard.axis_activation import hardmax, hardmax_2d, log_softmax, log_softmax_2d, softmax, softmax_2d
from tenonnx_standard.cases.activation import FLOATS
from tenonnx_testing import Gap, axis_of, call, cases, tensors

NOT_A_MATRIX = Gap("reference", "it has the meaning of version 13 at every version")


def along_axis(draw, **drawn):
    x = draw(tensors(FLOATS, min_rank=1, **drawn))
    return call(x, axis=draw(axis_of(x)))


@cases(softmax)
def softmax_cases(draw):
    return along_axis(draw)


@cases(softmax_2d, gaps=[NOT_A_MATRIX])
def softmax_2d_cases(draw):
    return along_axis(draw)


@cases(log_softmax)
def log_softmax_cases(draw):
    return along_axis(draw)


@cases(log_softmax_2d, gaps=[NOT_A_MATRIX])
def log_softmax_2d_cases(draw):
    return along_axis(draw)


@cases(
    hardmax,
    gradient="it is constant but for jumps",
    gaps=[Gap("empty axes", "the body takes the maximum of no elements, and the rule returns an empty result")],
)
def hardmax_cases(draw):
    return along_axis(draw, max_rank=3)


@cases(hardmax_2d, gaps=[NOT_A_MATRIX], gradient="it is constant but for jumps")
def hardmax_2d_cases(draw):
    return along_axis(draw, max_rank=3)


@cases(
    hardmax,
    gradient="it is constant but for jumps",
    gaps=[Gap("empty axes", "the body takes the maximum of no elements, and the rule returns an empty result")],
)
def hardmax_cases_2(draw):
    ties = draw(tensors("int32", min_rank=1, max_rank=3, min_value=0, max_value=2))
    return call(ties.astype(np.float32), axis=draw(axis_of(ties)))
