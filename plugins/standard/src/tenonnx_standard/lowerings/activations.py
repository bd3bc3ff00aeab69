"""Lowerings of activations to others and to arithmetic."""

from __future__ import annotations

import numpy as np

import tenonnx_standard as ops
from tenonnx_standard.lowerings.registry import integers, like, lowering, not_of_half, numbers, of_floats, sizes, unless


@lowering(ops.relu)
def relu_by_clip(X):
    return ops.clip(X, like(X, 0))


@lowering(ops.relu)
def relu_by_minimum(X):
    return ops.neg(ops.minimum(ops.neg(X), like(X, 0)))


@lowering(ops.relu)
def relu_by_elu(X):
    of_floats(X)
    return ops.elu(X, alpha=0.0)


@lowering(ops.relu, "finite")
def relu_by_leaky_relu(X):
    of_floats(X)
    return ops.leaky_relu(X, alpha=0.0)


@lowering(ops.relu, "finite")
def relu_by_prelu(X):
    of_floats(X)
    return ops.prelu(X, like(X, 0))


@lowering(ops.relu, "finite")
def relu_by_thresholded_relu(X):
    of_floats(X)
    return ops.thresholded_relu(X, alpha=0.0)


@lowering(ops.relu, "finite")
def relu_by_absolute(X):
    of_floats(X)
    return ops.mul(ops.add(X, ops.absolute(X)), like(X, 0.5))


@lowering(ops.relu, "finite")
def relu_by_mask(X):
    of_floats(X)
    return ops.mul(X, ops.cast(ops.greater(X, like(X, 0)), to=X.dtype))


@lowering(ops.relu, "finite")
def relu_by_where(X):
    return ops.where(ops.greater(X, like(X, 0)), X, like(X, 0))


@lowering(ops.relu)
def relu_by_exact_where(X):
    return ops.where(ops.less(X, like(X, 0)), like(X, 0), X)


@lowering(ops.leaky_relu)
def leaky_relu_by_relu(X, *, alpha):
    unless(not np.isfinite(alpha))
    return ops.sub(ops.relu(X), ops.mul(ops.relu(ops.neg(X)), like(X, alpha)))


@lowering(ops.leaky_relu)
def leaky_relu_by_maximum(X, *, alpha):
    unless(not 0 < alpha <= 1)
    return ops.maximum(X, ops.mul(X, like(X, alpha)))


@lowering(ops.leaky_relu)
def leaky_relu_by_prelu(X, *, alpha):
    return ops.prelu(X, like(X, [alpha] if X.rank else alpha))


@lowering(ops.prelu)
def prelu_by_leaky_relu(X, slope):
    array = numbers(slope)
    unless(array.size != 1 or array.ndim > len(X.shape or ()))
    alpha = float(array.reshape(-1)[0])
    unless(alpha != float(np.float32(alpha)), "an attribute has 32 bits")
    return ops.leaky_relu(X, alpha=alpha)


@lowering(ops.prelu)
def prelu_by_relu(X, slope):
    of_floats(X)
    unless(not np.all(np.isfinite(numbers(slope))))
    return ops.sub(ops.relu(X), ops.mul(ops.relu(ops.neg(X)), slope))


@lowering(ops.prelu, "finite")
def prelu_by_relu_and_computed_slope(X, slope):
    of_floats(X)
    return ops.sub(ops.relu(X), ops.mul(ops.relu(ops.neg(X)), slope))


@lowering(ops.clip)
def clip_of_one_number_to_relu(input, min, max):
    array = numbers(min)
    unless(max is not None or array.size != 1 or array.reshape(-1)[0] != 0)
    return ops.relu(input)


@lowering(ops.clip)
def clip_by_hard_sigmoid(input, min, max):
    """For bounds 0 and 1."""
    of_floats(input)
    unless((numbers(min).reshape(-1), numbers(max).reshape(-1)) != ([0], [1]))
    return ops.hard_sigmoid(input, alpha=1.0, beta=0.0)


@lowering(ops.elu, "finite")
def elu_by_extremes(X, *, alpha):
    zero = like(X, 0)
    return ops.add(ops.maximum(X, zero), _scaled_exponential(ops.minimum(X, zero), alpha))


@lowering(ops.elu, "finite")
def elu_by_where(X, *, alpha):
    return ops.where(ops.less(X, like(X, 0)), _scaled_exponential(X, alpha), X)


def _scaled_exponential(x, alpha):
    """``alpha * (exp(x) - 1)``, without the factor if it is 1."""
    result = ops.sub(ops.exp(x), like(x, 1))
    return result if alpha == 1 else ops.mul(result, like(x, alpha))


@lowering(ops.celu, "finite")
def celu_by_elu(X, *, alpha):
    unless(alpha <= 0)
    return ops.mul(ops.elu(ops.div(X, like(X, alpha)), alpha=1.0), like(X, alpha))


@lowering(ops.sigmoid, "rounding")
def sigmoid_by_tanh(X):
    """Off by an ulp of 1."""
    half = like(X, 0.5)
    return ops.add(ops.mul(ops.tanh(ops.mul(X, half)), half), half)


@lowering(ops.sigmoid, "rounding")
def sigmoid_by_swapped_exp(X):
    """Off by 4 ulps."""
    return ops.reciprocal(ops.add(ops.exp(ops.neg(X)), like(X, 1)))


@lowering(ops.tanh, "rounding")
def tanh_by_sigmoid(X):
    """Off by two ulps of 1."""
    two = like(X, 2)
    return ops.sub(ops.mul(ops.sigmoid(ops.mul(X, two)), two), like(X, 1))


@lowering(ops.tanh, "rounding")
def tanh_by_exp(X):
    """Off by two ulps of 1."""
    one, two = like(X, 1), like(X, 2)
    return ops.sub(one, ops.div(two, ops.add(ops.exp(ops.mul(X, two)), one)))


@lowering(ops.softplus, "finite")
def softplus_by_log(X):
    not_of_half(X)
    return ops.log(ops.add(ops.exp(X), like(X, 1)))


@lowering(ops.softmax, "finite")
def softmax_without_maximum(input, *, axis):
    not_of_half(input)
    powers = ops.exp(input)
    return ops.div(powers, ops.reduce_sum(powers, integers([axis])))


@lowering(ops.softmax, "rounding")
def softmax_by_log_softmax(input, *, axis):
    """Off by 32 ulps."""
    return ops.exp(ops.log_softmax(input, axis=axis))


@lowering(ops.log_softmax, "finite")
def log_softmax_by_log_sum_exp(input, *, axis):
    of_floats(input)
    return ops.sub(input, ops.reduce_log_sum_exp(input, integers([axis])))


@lowering(ops.log_softmax, "finite")
def log_softmax_by_softmax(input, *, axis):
    return ops.log(ops.softmax(input, axis=axis))


@lowering(ops.hard_sigmoid)
def hard_sigmoid_by_clip(X, *, alpha, beta):
    return ops.clip(ops.add(ops.mul(X, like(X, alpha)), like(X, beta)), like(X, 0), like(X, 1))


@lowering(ops.hard_swish, "rounding")
def hard_swish_by_hard_sigmoid(X):
    """Off by 4 ulps."""
    return ops.mul(X, ops.hard_sigmoid(X, alpha=1 / 6, beta=0.5))


@lowering(ops.hardmax, "finite")
def hardmax_by_one_hot(input, *, axis):
    depth = sizes(input)[axis]
    return ops.one_hot(ops.argmax(input, axis=axis, keepdims=0), integers([depth]), like(input, [0, 1]), axis=axis)


@lowering(ops.shrink, "finite")
def shrink_by_relu(input, *, bias, lambd):
    of_floats(input)
    unless(bias != lambd or bias < 0)
    limit = like(input, lambd)
    return ops.sub(ops.relu(ops.sub(input, limit)), ops.relu(ops.sub(ops.neg(input), limit)))
