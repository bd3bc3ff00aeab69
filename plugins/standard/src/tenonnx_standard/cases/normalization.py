"""Cases of normalization."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_standard.local_normalization import lrn
from tenonnx_standard.normalization import (
    channel_normalization_before_onnx,
    group_normalization,
    group_normalization_by_group,
    instance_normalization,
    layer_normalization,
    layer_normalization_before_onnx,
    lp_normalization,
    mean_variance_normalization,
    rms_normalization,
    simplified_layer_normalization,
)
from tenonnx_testing import Gap, axis_of, call, cases, shapes, tensors

FLOATS = ["float32", "float64", "float16", "bfloat16"]
epsilons = st.sampled_from([1e-5, 1e-2])


def spread(draw, dtypes, shape):
    """An array that varies along every axis, so that the variance by a difference of means is accurate."""
    x = draw(tensors(dtypes, shape=shape, min_value=-2, max_value=2))
    sign = 1 - 2 * (np.indices(x.shape).sum(axis=0) % 2)
    return x + (4 * sign).astype(x.dtype)


def parameters(draw, x, count, size):
    return [draw(tensors(x.dtype.name, shape=(size,))) for _ in range(count)]


@cases(instance_normalization)
def instance_normalization_cases(draw):
    x = spread(draw, FLOATS, shapes(3, 4, 2))
    return call(x, *parameters(draw, x, 2, x.shape[1]), epsilon=draw(epsilons))


def grouped(draw, dtypes):
    groups, size = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    sides = (draw(st.integers(1, 3)), groups * size, *draw(shapes(1, 2, 2)))
    return spread(draw, dtypes, sides), groups


def normalized_groups(draw, dtypes, stash):
    x, groups = grouped(draw, dtypes)
    given = parameters(draw, x, 2, x.shape[1])
    return call(x, *given, num_groups=groups, epsilon=draw(epsilons), stash_type=stash)


IN_HALF = Gap(
    "other attributes",
    "statistics in half floats are rounded at every step, and older versions have other steps",
    when=lambda call: call.attributes["stash_type"] in (10, 16),
)


@cases(group_normalization, gradient=False, gaps=[IN_HALF])
def group_normalization_cases(draw):
    return normalized_groups(draw, ["float32", "float16", "bfloat16"], 1)


@cases(group_normalization, gaps=[IN_HALF])
def group_normalization_cases_2(draw):
    """Statistics in float64, so that finite differences are accurate enough to check the gradient."""
    return normalized_groups(draw, "float64", 11)


@cases(
    group_normalization_by_group, gaps=[Gap("export", "onnx.checker treats this version as deprecated from the start")]
)
def group_normalization_by_group_cases(draw):
    x, groups = grouped(draw, ["float32", "float64"])
    return call(x, *parameters(draw, x, 2, groups), num_groups=groups, epsilon=draw(epsilons))


def trailing(draw, dtypes, stash, *, scales=None):
    """``x``, parameters that broadcast to it, and attributes."""
    x = spread(draw, dtypes, shapes(1, 4, 2))
    axis = draw(axis_of(x))
    sides = x.shape[axis:] if draw(st.booleans()) else tuple(draw(st.sampled_from([1, side])) for side in x.shape)
    scale, bias = (draw(tensors(scales or x.dtype.name, shape=sides)) for _ in range(2))
    return x, scale, bias, {"axis": axis, "epsilon": draw(epsilons), "stash_type": draw(stash)}


STATISTICS_AS_DATA = Gap(
    "reference",
    "Mean and InvStdDev have the dtype of X, not of stash_type",
    when=lambda call: call.inputs[0].dtype != np.float32,
)


@cases(layer_normalization, gaps=[STATISTICS_AS_DATA], gradient=False)
def layer_normalization_cases(draw):
    x, scale, bias, attributes = trailing(draw, ["float32", "float16", "bfloat16"], st.just(1))
    return call(x, scale, draw(st.sampled_from([None, bias])), **attributes)


@cases(layer_normalization)
def layer_normalization_cases_2(draw):
    x, scale, bias, attributes = trailing(draw, "float64", st.just(11))
    return call(x, scale, draw(st.sampled_from([None, bias])), _outputs=draw(st.sampled_from([1, 3])), **attributes)


@cases(layer_normalization_before_onnx, gradient=False)
def layer_normalization_before_onnx_cases(draw):
    floats = ["float32", "float16", "bfloat16"]
    x, scale, bias, attributes = trailing(draw, floats, st.just(1), scales=draw(st.sampled_from(floats)))
    return call(x, scale, draw(st.sampled_from([None, bias])), **attributes)


@cases(layer_normalization_before_onnx)
def layer_normalization_before_onnx_cases_2(draw):
    x, scale, bias, attributes = trailing(draw, "float64", st.just(11))
    return call(x, scale, draw(st.sampled_from([None, bias])), _outputs=draw(st.sampled_from([1, 3])), **attributes)


@cases(rms_normalization, gradient=False)
def rms_normalization_cases(draw):
    x, scale, _, attributes = trailing(draw, ["float32", "float16", "bfloat16"], st.just(1))
    return call(x, scale, **attributes)


@cases(rms_normalization)
def rms_normalization_cases_2(draw):
    x, scale, _, attributes = trailing(draw, "float64", st.just(11))
    return call(x, scale, **attributes)


WIDER_SCALE = Gap(
    "variations",
    "a scale of float64 multiplies what was rounded to float32, where the order of a sum counts",
    when=lambda c: c.inputs[1].dtype == np.float64 != c.inputs[0].dtype,
)


@cases(simplified_layer_normalization, gaps=[WIDER_SCALE], gradient=False)
def simplified_layer_normalization_cases(draw):
    x, scale, _, attributes = trailing(draw, ["float32", "float16"], st.just(1), scales=["float32", "float16"])
    return call(x, scale, **attributes)


@cases(simplified_layer_normalization)
def simplified_layer_normalization_cases_2(draw):
    x, scale, _, attributes = trailing(draw, "float64", st.just(11))
    return call(x, scale, **attributes)


@cases(mean_variance_normalization)
def mean_variance_normalization_cases(draw):
    x = spread(draw, ["float32", "float64", "float16"], shapes(2, 4, 2))
    axes = draw(st.lists(st.integers(0, x.ndim - 1), min_size=1, unique=True))
    return call(x, axes=axes)


@cases(
    mean_variance_normalization,
    gaps=[Gap("export", "onnx.checker does not know the default of axes in the body that the schema has")],
)
def mean_variance_normalization_cases_2(draw):
    return call(spread(draw, "float32", shapes(4, 4, 2)))


@cases(channel_normalization_before_onnx)
def channel_normalization_before_onnx_cases(draw):
    x = spread(draw, ["float32", "float64", "float16"], shapes(4, 4, 2))
    return call(x, across_channels=draw(st.integers(0, 1)), normalize_variance=draw(st.integers(0, 1)))


SIGNED_SUM = Gap(
    "reference",
    "with p=1 it divides by the sum instead of the sum of magnitudes",
    when=lambda call: call.attributes["p"] == 1,
)


@cases(lp_normalization, gaps=[SIGNED_SUM])
def lp_normalization_cases(draw):
    x = draw(tensors(FLOATS, min_rank=1, exclude_near=(0.0,)))
    return call(x, axis=draw(axis_of(x)), p=draw(st.integers(1, 2)))


@cases(
    lrn,
    gaps=[
        Gap("special values", "squares overflow in the body's half floats, and the rule uses float32"),
        Gap("other attributes", "powers of negative sums are NaN or infinite in half floats"),
        Gap("reference", "it uses the batch size as the number of channels"),
    ],
)
def lrn_cases(draw):
    x = draw(tensors(FLOATS, shape=st.one_of(shapes(4, 4), shapes(2, 4))))  # runtimes take images and odd sizes alone
    alpha, beta = draw(st.sampled_from([1e-4, 0.5])), draw(st.sampled_from([0.5, 0.75]))
    size, bias = draw(st.sampled_from([3, 5, 1, 7, 2, 4, 6])), draw(st.sampled_from([1.0, 2.0]))
    return call(x, size=size, alpha=alpha, beta=beta, bias=bias)
