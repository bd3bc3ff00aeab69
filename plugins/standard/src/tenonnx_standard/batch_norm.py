"""BatchNormalization, in the five signatures of its versions."""

from __future__ import annotations

import numpy as np

from tenonnx.extend import TypeMismatch, Value, differ, dims, floats, holds, op, shapes
from tenonnx_standard.math import reciprocal, sqrt
from tenonnx_standard.normalization import (
    but_channels,
    count_along,
    per_channel,
    standardized,
    standardized_array,
    standardized_gradient,
    statistics_dtype,
    to_dtype,
)
from tenonnx_standard.reduction import reduce_mean, reduce_sum
from tenonnx_standard.shapes import expand, reshape, shape


@op("BatchNormalization")
def batch_normalization(
    X, scale, B, input_mean, input_var, *, epsilon=1e-5, momentum=0.9, training_mode=0, _outputs=None
):
    """Normalize each channel by the given mean and variance, then scale and shift it.

    In training mode, normalize by the batch mean and population variance, and update the running statistics.
    """
    stage = statistics_dtype(X, scale, B, input_mean, input_var)
    x, weight, shift, mean, variance = (to_dtype(v, stage) for v in (X, scale, B, input_mean, input_var))
    if not training_mode:
        if _outputs is not None and _outputs > 1:
            raise TypeMismatch(
                f"{batch_normalization.title}: running statistics are outputs without training_mode",
                given=f"{_outputs} outputs, training_mode=0",
            )
        factor = weight / sqrt(variance + epsilon)
        return to_dtype(x * per_channel(factor, X) + per_channel(shift - mean * factor, X), X.dtype)
    axes = but_channels(X.ndim)
    standard, batch_mean, _, batch_variance = standardized(x, axes, epsilon)
    y = standard * per_channel(weight, X) + per_channel(shift, X)
    running_mean = mean * momentum + reshape(batch_mean, [-1]) * (1 - momentum)
    running_variance = variance * momentum + reshape(batch_variance, [-1]) * (1 - momentum)
    return to_dtype(y, X.dtype), to_dtype(running_mean, input_mean.dtype), to_dtype(running_variance, input_var.dtype)


batch_normalization.requires(
    shapes(X="batch channels ... | batch", scale="channels", B="channels", input_mean="channels", input_var="channels"),
    floats("X", "scale", "B", "input_mean", "input_var"),
    holds(
        lambda X, channels: "X of one axis has more than one channel" if X.rank == 1 and differ(channels, 1) else None
    ),
)


@batch_normalization.numpy
@np.errstate(all="ignore")
def batch_normalization_numpy(X, scale, B, input_mean, input_var, *, epsilon, momentum, training_mode, _outputs):
    arrays = (X, scale, B, input_mean, input_var)
    stage = np.dtype(np.float64 if any(a.dtype == np.float64 for a in arrays) else np.float32)
    x, weight, shift, mean, variance = (a.astype(stage, copy=False) for a in arrays)
    channel = (-1, *(1,) * (X.ndim - 2))
    if not training_mode:
        factor = weight / np.sqrt(variance + stage.type(epsilon))
        y = x * factor.reshape(channel)
        y += (shift - mean * factor).reshape(channel)
        return y.astype(X.dtype, copy=False)
    axes = tuple(but_channels(X.ndim))
    y, batch_mean, _, batch_variance = standardized_array(x, axes, epsilon)
    y *= weight.reshape(channel)
    y += shift.reshape(channel)
    running_mean = mean * stage.type(momentum) + batch_mean.reshape(-1) * stage.type(1 - momentum)
    running_variance = variance * stage.type(momentum) + batch_variance.reshape(-1) * stage.type(1 - momentum)
    return (
        y.astype(X.dtype, copy=False),
        running_mean.astype(input_mean.dtype, copy=False),
        running_variance.astype(input_var.dtype, copy=False),
    )


@batch_normalization.specialize
def batch_normalization_specialize(X, scale, B, input_mean, input_var, *, epsilon, momentum, training_mode, _outputs):
    """With constant parameters, a scale and a shift per channel."""
    parameters = [p.contents for p in (scale, B, input_mean, input_var)]
    if training_mode or any(p is None or p.dtype != X.dtype for p in parameters) or X.dtype.itemsize < 4:
        return None
    weight, shift, mean, variance = parameters
    factor = weight / np.sqrt(variance + X.dtype.type(epsilon))
    channel = (-1, *(1,) * (X.ndim - 2))
    factors, shifts = factor.reshape(channel), (shift - mean * factor).reshape(channel)

    def scaled(X, *_):
        y = X * factors
        y += shifts
        return y

    return scaled


@batch_normalization.vjp
def batch_normalization_vjp(g, y, X, scale, B, input_mean, input_var, *, epsilon, momentum, training_mode, _outputs):
    stage = statistics_dtype(X, scale, B, input_mean, input_var)
    x, weight, mean, variance = (to_dtype(v, stage) for v in (X, scale, input_mean, input_var))
    axes = but_channels(X.ndim)

    def of_channels(v: Value) -> Value:
        return reshape(reduce_sum(v, axes), [-1])

    if not training_mode:
        g = to_dtype(g, stage)
        inverse = reciprocal(sqrt(variance + epsilon))
        factor = weight * inverse
        shift = of_channels(g)
        along = of_channels(g * (x - per_channel(mean, X))) * inverse
        found = (g * per_channel(factor, X), along, shift, -shift * factor, along * factor * inverse * -0.5)
    else:
        standard, _, inverse, _ = standardized(x, axes, epsilon)
        gx = gscale = gshift = gmean = gvar = None
        if g[0] is not None:
            gy = to_dtype(g[0], stage)
            gx = standardized_gradient(gy * per_channel(weight, X), standard, inverse, axes)
            gscale, gshift = of_channels(gy * standard), of_channels(gy)
        count = count_along(x, axes)
        if g[1] is not None:
            gmean = to_dtype(g[1], stage) * momentum
            part = expand(per_channel(to_dtype(g[1], stage) * (1 - momentum), X) / count, shape(X))
            gx = part if gx is None else gx + part
        if g[2] is not None:
            gvar = to_dtype(g[2], stage) * momentum
            part = per_channel(to_dtype(g[2], stage) * (2 - 2 * momentum), X) / count * standard / inverse
            gx = part if gx is None else gx + part
        found = (gx, gscale, gshift, gmean, gvar)
    inputs = (X, scale, B, input_mean, input_var)
    return tuple(None if v is None else to_dtype(v, like.dtype) for v, like in zip(found, inputs, strict=True))


@batch_normalization.until(14)
def batch_normalization_by_outputs(X, scale, B, mean, var, *, epsilon=1e-5, momentum=0.9, _outputs=None):
    """Batch normalization, in training mode if more than one output is used; the last two are batch statistics."""
    if not _trains(_outputs):
        return batch_normalization(X, scale, B, mean, var, epsilon=epsilon, momentum=momentum, _outputs=1)
    found = _normalized_batch(X, scale, B, mean, var, but_channels(X.ndim), epsilon, momentum, training=True)
    return found[:_outputs]


@batch_normalization_by_outputs.until(9)
def batch_normalization_spatial(X, scale, B, mean, var, *, epsilon=1e-5, momentum=0.9, spatial=1, _outputs=None):
    """Batch normalization by channel, or with ``spatial`` 0 by position, with statistics over the batch axis only."""
    axes = but_channels(X.ndim) if spatial else [0]
    result = _normalized_batch(X, scale, B, mean, var, axes, epsilon, momentum, training=_trains(_outputs))
    return result[:_outputs] if isinstance(result, tuple) else result


@batch_normalization_spatial.until(7)
def batch_normalization_is_test(
    X, scale, B, mean, var, *, epsilon=1e-5, is_test=0, momentum=0.9, spatial=1, _outputs=None
):
    """Batch normalization by channel or by position, in training unless ``is_test``."""
    axes = but_channels(X.ndim) if spatial else [0]
    result = _normalized_batch(X, scale, B, mean, var, axes, epsilon, momentum, training=not is_test)
    return result[:_outputs] if isinstance(result, tuple) else result


@batch_normalization_is_test.until(6)
def batch_normalization_consuming(
    X,
    scale,
    B,
    mean,
    var,
    *,
    consumed_inputs: list[int],
    epsilon=1e-5,
    is_test=0,
    momentum=0.9,
    spatial=1,
    _outputs=None,
):
    """Batch normalization by channel or by position, in training unless ``is_test``."""
    return batch_normalization_is_test(
        X, scale, B, mean, var, epsilon=epsilon, is_test=is_test, momentum=momentum, spatial=spatial, _outputs=_outputs
    )


def _trains(outputs: int | None) -> bool:
    return outputs is not None and outputs > 1


def _normalized_batch(X, scale, B, mean, var, axes, epsilon, momentum, *, training):
    """Common body of the older versions: by channel, or by position where ``axes`` is only the batch axis."""
    rank = X.ndim
    if axes == [0] and rank > 2:
        # Each position has its own statistics; parameters with one element per channel apply to all its positions.
        positions = [1, *dims(X)[1:]]
        parameters = [
            reshape(expand(per_channel(v, X) if v.ndim == 1 else v, positions), [-1]) for v in (scale, B, mean, var)
        ]
        found = _normalized_batch(reshape(X, [0, -1]), *parameters, axes, epsilon, momentum, training=training)  # type: ignore[call-arg]
        whole = (shape(X), *(shape(v) for v in (mean, var, mean, var)))
        if not training:
            return reshape(found, whole[0])
        if any(v.ndim == 1 for v in (mean, var)):
            raise TypeMismatch(
                f"{batch_normalization_spatial.title}: mean or var has no element for each position, with spatial 0",
                given=f"{mean!r}, {var!r}",
            )
        return tuple(reshape(v, sides) for v, sides in zip(found, whole, strict=True))
    if not training:
        return batch_normalization(X, scale, B, mean, var, epsilon=epsilon, momentum=momentum, _outputs=1)
    y, running_mean, running_variance = batch_normalization(
        X, scale, B, mean, var, epsilon=epsilon, momentum=momentum, training_mode=1, _outputs=3
    )
    x = to_dtype(X, statistics_dtype(X))
    batch_mean = reduce_mean(x, axes)
    deviation = x - batch_mean
    batch_variance = reduce_mean(deviation * deviation, axes)
    saved = (to_dtype(reshape(v, [-1]), X.dtype) for v in (batch_mean, batch_variance))
    return y, running_mean, running_variance, *saved


@batch_normalization.lower(to=batch_normalization_by_outputs)
def batch_normalization_to_batch_normalization_by_outputs(
    X, scale, B, input_mean, input_var, *, epsilon, momentum, training_mode, _outputs=None
):
    if training_mode or len({v.dtype for v in (X, scale, B, input_mean, input_var)}) > 1:
        return None
    return batch_normalization_by_outputs(
        X, scale, B, input_mean, input_var, epsilon=epsilon, momentum=momentum, _outputs=1
    )


@batch_normalization_by_outputs.lower(to=batch_normalization_spatial)
def batch_normalization_by_outputs_to_batch_normalization_spatial(*inputs, epsilon, momentum, _outputs=None):
    return batch_normalization_spatial(*inputs, epsilon=epsilon, momentum=momentum, _outputs=_outputs)


@batch_normalization_spatial.lower(to=batch_normalization_is_test)
def batch_normalization_spatial_to_batch_normalization_is_test(*inputs, epsilon, momentum, spatial, _outputs=None):
    is_test = int(not _trains(_outputs))
    return batch_normalization_is_test(
        *inputs, epsilon=epsilon, is_test=is_test, momentum=momentum, spatial=spatial, _outputs=_outputs
    )


@batch_normalization_is_test.lower(to=batch_normalization_consuming)
def batch_normalization_is_test_to_batch_normalization_consuming(
    *inputs, epsilon, is_test, momentum, spatial, _outputs=None
):
    return batch_normalization_consuming(
        *inputs,
        consumed_inputs=[0, 0, 0, 1, 1],
        epsilon=epsilon,
        is_test=is_test,
        momentum=momentum,
        spatial=spatial,
        _outputs=_outputs,
    )
