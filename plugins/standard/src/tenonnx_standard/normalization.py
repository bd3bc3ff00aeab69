"""Normalization by statistics of the batch, of channels, or of trailing axes."""

from __future__ import annotations

import functools
import math
import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.extend import (
    DType,
    Op,
    Value,
    axis,
    broadcasts_to,
    constant,
    dims,
    divides,
    floats,
    holds,
    limits,
    one_of,
    op,
    same_dtype,
    shapes,
)
from tenonnx_standard.casting import cast, cast_like
from tenonnx_standard.logic import equal, where
from tenonnx_standard.math import reciprocal, sqrt
from tenonnx_standard.reduction import (
    PLAIN_ROW,
    is_half,
    mean_array,
    reduce_l1,
    reduce_l2,
    reduce_mean,
    reduce_sum,
    sum_of_squares,
    total,
    widened,
)
from tenonnx_standard.scalars import scalar
from tenonnx_standard.shapes import expand, reshape, shape

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tenonnx.extend import Operand

Array = np.ndarray[Any, Any]

# ----- stages: statistics may have another dtype than the data --------------------------------------------------------


def to_dtype(x: Value, dtype: DType) -> Value:
    return x if x.dtype is dtype else cast(x, to=dtype)


def statistics_dtype(*values: Value) -> DType:
    """The dtype of statistics: float64 if an input is float64, else float32."""
    return DType.float64 if any(v.dtype is DType.float64 for v in values) else DType.float32


#: Element types of statistics. onnxruntime accepts 0, which is undefined.
FLOATS = [0, *(int(dtype) for dtype in DType if dtype.is_float and dtype.bits >= 16)]


def stage_dtype(X: Operand, stash_type: int) -> DType:
    """The dtype of the attribute ``stash_type``, or that of ``statistics_dtype`` if it is undefined.

    float64 is kept: onnxruntime and the reference compute it in full, although the attribute defaults to float32.
    """
    if str(X.dtype) == "float64":
        return DType.float64
    return DType(stash_type) if stash_type else DType.float32


def standardized(x: Value, axes: Sequence[int], epsilon: float) -> tuple[Value, Value, Value, Value]:
    """Normalize ``x`` over ``axes``; returns the result, the mean, the inverse standard deviation, and the variance."""
    mean = reduce_mean(x, axes)
    deviation = x - mean
    variance = reduce_mean(deviation * deviation, axes)
    inverse = reciprocal(sqrt(variance + epsilon))
    return deviation * inverse, mean, inverse, variance


def standardized_gradient(g: Value, standard: Value, inverse: Value, axes: Sequence[int]) -> Value:
    """The gradient of normalization: ``g`` minus its mean and minus its projection on the result."""
    return (g - reduce_mean(g, axes) - standard * reduce_mean(g * standard, axes)) * inverse


def count_along(x: Value, axes: Sequence[int]) -> Any:
    """Number of elements of ``x`` along ``axes``: a float, or a value of the dtype of ``x``."""
    sizes = dims(x)
    count = math.prod([sizes[axis] for axis in axes])
    return cast_like(count, x) if isinstance(count, Value) else float(count)


def standardized_array(x: Array, axes: tuple[int, ...], epsilon: float) -> tuple[Array, Array, Array, Array]:
    """``standardized`` on arrays, rounded at every step if the dtype is narrow."""
    mean = mean_array(x, axes)
    deviation = x - mean
    variance = _mean_square(deviation, axes)
    inverse = np.reciprocal(np.sqrt(variance + x.dtype.type(epsilon)))
    deviation *= inverse
    return deviation, mean, inverse, variance


def _mean_square(x: Array, axes: tuple[int, ...]) -> Array:
    if is_half(x.dtype):
        return mean_array(x * x, axes)
    count = math.prod(x.shape[axis] for axis in axes)
    return np.divide(sum_of_squares(x, axes), x.dtype.type(count))


def _affine(x: Array, scale: Array | None, bias: Array | None) -> Array:
    """``x * scale + bias``, in place if the dtypes allow."""
    for ufunc, parameter in ((np.multiply, scale), (np.add, bias)):
        if parameter is not None:
            x = ufunc(x, parameter.astype(x.dtype, copy=False), out=x)
    return x


# ----- channels -------------------------------------------------------------------------------------------------------


def per_channel(parameter: Value, x: Value) -> Value:
    """A parameter with one element per channel, reshaped to broadcast along axis 1 of ``x``."""
    return reshape(parameter, [-1] + [1] * (x.ndim - 2)) if x.ndim > 2 else parameter


def but_channels(rank: int) -> list[int]:
    """All axes except the channel axis; a tensor of rank 1 has one channel."""
    return [axis for axis in range(rank) if axis != 1]


# ----- over instances -------------------------------------------------------------------------------------------------


@op("InstanceNormalization")
def instance_normalization(input, scale, B, *, epsilon=1e-5):
    """Normalize each channel of each instance over its positions, then scale and shift."""
    x = to_dtype(input, statistics_dtype(input))
    standard = to_dtype(standardized(x, range(2, input.ndim), epsilon)[0], input.dtype)
    return standard * per_channel(scale, input) + per_channel(B, input)


instance_normalization.until(6, ignored=["consumed_inputs"])
instance_normalization.requires(
    shapes(input="batch channels _ ...", scale="channels", B="channels"),
    floats("input", "scale", "B"),
    same_dtype("input", "scale", "B"),
)


@instance_normalization.numpy
@np.errstate(all="ignore")
def instance_normalization_numpy(input, scale, B, *, epsilon):
    y = standardized_array(widened(input), tuple(range(2, input.ndim)), epsilon)[0]
    channel = (-1, *(1,) * (input.ndim - 2))
    return _affine(y, scale.reshape(channel), B.reshape(channel)).astype(input.dtype, copy=False)


@instance_normalization.vjp
def instance_normalization_vjp(g, y, input, scale, B, *, epsilon):
    stage = statistics_dtype(input)
    x, gy = to_dtype(input, stage), to_dtype(g, stage)
    inner, outer = range(2, input.ndim), but_channels(input.ndim)
    standard, _, inverse, _ = standardized(x, inner, epsilon)
    gx = standardized_gradient(gy * per_channel(to_dtype(scale, stage), input), standard, inverse, inner)
    gscale, gshift = (reduce_sum(v, outer, keepdims=0) for v in (gy * standard, gy))
    return tuple(to_dtype(v, input.dtype) for v in (gx, gscale, gshift))


@op("GroupNormalization", since=18)
def group_normalization(X, scale, bias, *, epsilon=1e-5, num_groups: int, stash_type=1):
    """Normalize each group of channels of each instance in ``stash_type``, then scale and shift each channel."""
    x = to_dtype(X, stage_dtype(X, stash_type))
    limits.check("entries", num_groups, group_normalization.title)
    ones, zeros = (constant(np.full(num_groups, number), x.dtype) for number in (1, 0))
    grouped = instance_normalization(reshape(x, [0, num_groups, -1]), ones, zeros, epsilon=epsilon)
    standard = to_dtype(reshape(grouped, shape(X)), X.dtype)
    return standard * per_channel(scale, X) + per_channel(bias, X)


group_normalization.requires(
    shapes(X="batch channels ...", scale="channels", bias="channels"),
    floats("X", "scale", "bias"),
    same_dtype("X", "scale", "bias"),
    one_of(stash_type=FLOATS),
    divides("num_groups", "channels"),
)


@group_normalization.numpy
@np.errstate(all="ignore")
def group_normalization_numpy(X, scale, bias, *, epsilon, num_groups, stash_type):
    x = X.astype(stage_dtype(X, stash_type).numpy, copy=False)
    x = x.reshape(X.shape[0], num_groups, math.prod(X.shape[1:]) // num_groups)
    y = standardized_array(x, (2,), epsilon)[0].reshape(X.shape)
    y = y.astype(X.dtype, copy=False)
    channel = (-1, *(1,) * (X.ndim - 2))
    return _affine(y, scale.reshape(channel), bias.reshape(channel))


@group_normalization.until(21)
def group_normalization_by_group(X, scale, bias, *, epsilon=1e-5, num_groups: int):
    """Normalize each group of channels of each instance, then scale and shift by parameters per group."""
    size = dims(X)[1] // num_groups
    weight, shift = (reshape(expand(reshape(v, [-1, 1]), [num_groups, size]), [-1]) for v in (scale, bias))
    stash = int(statistics_dtype(X))
    return group_normalization(X, weight, shift, epsilon=epsilon, num_groups=num_groups, stash_type=stash)


group_normalization_by_group.requires(
    shapes(X="batch channels ...", scale="num_groups", bias="num_groups"),
    floats("X", "scale", "bias"),
    same_dtype("X", "scale", "bias"),
    divides("num_groups", "channels"),
)


# ----- over trailing axes ---------------------------------------------------------------------------------------------


def _trailing(axis: int, rank: int) -> range:
    return range(axis % rank, rank)


@op("LayerNormalization", specified=17, broadcasts=True)
def layer_normalization(X, Scale, B=None, *, axis=-1, epsilon=1e-5, stash_type=1):
    """Normalize over the axes from ``axis`` on in ``stash_type``, then scale and shift."""
    x = to_dtype(X, stage_dtype(X, stash_type))
    standard, mean, inverse, _ = standardized(x, _trailing(axis, X.ndim), epsilon)
    y = to_dtype(standard, X.dtype) * Scale
    stash = DType(stash_type) if stash_type else x.dtype
    return (y if B is None else y + B), to_dtype(mean, stash), to_dtype(inverse, stash)


_LAYER = axis("axis", of="X"), broadcasts_to("X", "Scale", "B"), floats("X", "Scale", "B"), one_of(stash_type=FLOATS)

layer_normalization.requires(*_LAYER, same_dtype("X", "Scale", "B"))


@layer_normalization.numpy
@np.errstate(all="ignore")
def layer_normalization_numpy(X, Scale, B, *, axis, epsilon, stash_type):
    x = X.astype(stage_dtype(X, stash_type).numpy, copy=False)
    y, mean, inverse, _ = standardized_array(x, tuple(_trailing(axis, X.ndim)), epsilon)
    stash = DType(stash_type).numpy if stash_type else x.dtype
    mean, inverse = (each.astype(stash, copy=False) for each in (mean, inverse))
    return _affine(y.astype(X.dtype, copy=False), Scale, B), mean, inverse


layer_normalization.specialize(lambda X, Scale, B, **attributes: _row_kernel(X, Scale, B, **attributes, centered=True))


@layer_normalization.residuals
def layer_normalization_residuals(demand, X, Scale, B, **attributes):
    """Keep the mean and the inverse standard deviation, which are optional outputs."""
    outputs = layer_normalization(X, Scale, B, **attributes, _outputs=3)  # type: ignore[call-arg]
    return outputs, outputs[1:]


@layer_normalization.vjp
def layer_normalization_vjp(g, kept, X, Scale, B, *, axis, epsilon, stash_type):
    mean, inverse = kept
    x = to_dtype(X, stage_dtype(X, stash_type))
    if mean.dtype is not x.dtype:  # the outputs have fewer bits than the computation
        _, mean, inverse, _ = standardized(x, _trailing(axis, X.ndim), epsilon)
    standard = (x - mean) * inverse
    return *_row_gradients(g, standard, inverse, X, Scale, _trailing(axis, X.ndim)), g[0]


@layer_normalization.until(17)
def layer_normalization_before_onnx(X, Scale, B=None, *, axis=-1, epsilon=1e-5, stash_type=1):
    """LayerNormalization of onnxruntime at opsets below 17, which its optimizer writes into models of any opset.

    The result has the dtype of ``Scale``, which may differ from that of ``X``.
    """
    stage = X.dtype if X.dtype is Scale.dtype else stage_dtype(X, stash_type)
    given = [None if v is None else to_dtype(v, stage) for v in (X, Scale, B)]
    y, mean, inverse = layer_normalization(*given, axis=axis, epsilon=epsilon, stash_type=stash_type)
    return to_dtype(y, Scale.dtype), mean, inverse


layer_normalization_before_onnx.requires(*_LAYER, same_dtype("Scale", "B"))
layer_normalization.lower(to=layer_normalization_before_onnx)(layer_normalization_before_onnx)


@op("RMSNormalization", since=23, broadcasts=True)
def rms_normalization(X, scale, *, axis=-1, epsilon=1e-5, stash_type=1):
    """Divide by the root mean square over the axes from ``axis`` on, in ``stash_type``; then scale."""
    return _by_mean_square(rms_normalization, X, scale, axis, epsilon, stash_type)[0]


@op("SimplifiedLayerNormalization", broadcasts=True, specified=False)
def simplified_layer_normalization(X, scale, *, axis=-1, epsilon=1e-5, stash_type=1):
    """RMSNormalization as an onnxruntime op; the second output is the inverse root mean square."""
    return _by_mean_square(simplified_layer_normalization, X, scale, axis, epsilon, stash_type)


def _by_mean_square(op, X, scale, axis, epsilon, stash_type):
    x = to_dtype(X, stage_dtype(X, stash_type))
    inverse = reciprocal(sqrt(reduce_mean(x * x, _trailing(axis, X.ndim)) + epsilon))
    stash = DType(stash_type) if stash_type else x.dtype
    return to_dtype(x * inverse, scale.dtype) * scale, to_dtype(inverse, stash)


def _mean_square_rules(op: Op, several: bool) -> None:
    """Register the rules of RMSNormalization; with ``several`` outputs, the second is the inverse root mean square."""
    op.requires(axis("axis", of="X"), broadcasts_to("X", "scale"), floats("X", "scale"), one_of(stash_type=FLOATS))

    @op.numpy
    @np.errstate(all="ignore")
    def made_numpy(X, scale, *, axis, epsilon, stash_type):
        x = X.astype(stage_dtype(X, stash_type).numpy, copy=False)
        inverse = np.reciprocal(np.sqrt(_mean_square(x, tuple(_trailing(axis, X.ndim))) + x.dtype.type(epsilon)))
        y = _affine((x * inverse).astype(scale.dtype, copy=False), scale, None)
        return (y, inverse.astype(DType(stash_type).numpy if stash_type else x.dtype, copy=False)) if several else y

    @op.specialize
    def made_specialize(X, scale, **attributes):
        kernel = _row_kernel(X, scale, None, **attributes, centered=False)
        return kernel if several or kernel is None else lambda X, scale: kernel(X, scale)[0]

    @op.vjp
    def made_vjp(g, y, X, scale, *, axis, epsilon, stash_type):
        axes = _trailing(axis, X.ndim)
        x = to_dtype(X, stage_dtype(X, stash_type))
        inverse = reciprocal(sqrt(reduce_mean(x * x, axes) + epsilon))
        return _row_gradients(
            (g[0], None, g[1]) if several else (g,), x * inverse, inverse, X, scale, axes, centered=False
        )


_mean_square_rules(rms_normalization, several=False)
_mean_square_rules(simplified_layer_normalization, several=True)


# ----- rows: the axes from ``axis`` on, flattened ---------------------------------------------------------------------


def _row_kernel(
    X: Operand, scale: Operand, bias: Operand | None, *, axis: int, epsilon: float, stash_type: int, centered: bool
) -> Callable[..., tuple[Array, ...]] | None:
    """Kernel that normalizes float32 rows, ``centered`` by their mean, and short enough for accurate sums.

    Returns the rows, the mean if they are centered, and the inverse root mean square.
    """
    size, rank = math.prod(X.shape[axis % X.ndim :]), X.ndim - axis % X.ndim
    parameters = [scale] if bias is None else [scale, bias]
    single = stash_type == int(DType.float32) and all(p.dtype == np.float32 for p in (X, *parameters))
    if not single or size > PLAIN_ROW or any(p.size != size or p.ndim > rank for p in parameters):
        return None
    statistics = (*X.shape[: axis % X.ndim], *(1,) * rank)
    ones, count, shift = np.ones(size, np.float32), scalar(size, X.dtype), scalar(epsilon, X.dtype)

    def normalize(X: Array, scale: Array, bias: Array | None = None) -> tuple[Array, ...]:
        x, mean = X.reshape(-1, size), ()
        if centered:
            means = np.dot(x, ones)
            means /= count
            x = x - means[:, None]
            mean = (means.reshape(statistics),)
        inverse = np.einsum("ij,ij->i", x, x)
        inverse /= count
        inverse += shift
        np.sqrt(inverse, out=inverse)
        np.reciprocal(inverse, out=inverse)
        y = np.multiply(x, inverse[:, None], out=x if centered else None)
        y *= scale.reshape(-1)
        if bias is not None:
            y += bias.reshape(-1)
        return y.reshape(X.shape), *mean, inverse.reshape(statistics)

    return normalize


def _row_gradients(
    g: Sequence[Value | None],
    standard: Value,
    inverse: Value,
    X: Value,
    scale: Value,
    axes: Sequence[int],
    *,
    centered: bool = True,
) -> tuple[Value, Value | None]:
    """The gradients of ``X`` and the scale, from those of the result, the optional mean and the inverse."""
    gy, *others = (*g, None, None)[:3]
    gmean, ginverse = (None if each is None else to_dtype(each, standard.dtype) for each in others)  # of stash_type
    parts: list[Value] = []
    gscale = None
    if gy is not None:
        along = to_dtype(gy * scale, standard.dtype)
        uncentred = along - reduce_mean(along, axes) if centered else along
        parts.append((uncentred - standard * reduce_mean(along * standard, axes)) * inverse)
        gscale = gy * to_dtype(standard, gy.dtype)
    if gmean is not None:
        parts.append(expand(gmean / count_along(standard, axes), shape(X)))
    if ginverse is not None:
        parts.append(-(ginverse * inverse * inverse) / count_along(standard, axes) * standard)
    return to_dtype(functools.reduce(operator.add, parts), X.dtype), gscale


# ----- without parameters ---------------------------------------------------------------------------------------------


@op("MeanVarianceNormalization", specified=9)
def mean_variance_normalization(X, *, axes=(0, 2, 3)):
    """``X`` minus its mean, divided by its standard deviation over ``axes`` plus 1e-9."""
    x = to_dtype(X, statistics_dtype(X))
    axes = axes if X.rank is None else _present(axes, X.rank)
    deviation = x - reduce_mean(x, axes)
    spread = sqrt(reduce_mean(deviation * deviation, axes))
    return to_dtype(deviation / (spread + 1e-9), X.dtype)


def _present(axes: Sequence[int], rank: int) -> list[int]:
    """The axes that exist: the default lists four, and runtimes accept tensors with fewer."""
    return sorted({axis % rank for axis in axes if -rank <= axis < rank})


def _hold_present(X: Value, axes: Sequence[int]) -> str:
    rank = X.rank
    if rank is None or not axes or (_present(axes, rank) if rank else []):
        return ""
    return "axes names no axis of X"


mean_variance_normalization.requires(floats("X"), holds(_hold_present))


@mean_variance_normalization.until(9)
def channel_normalization_before_onnx(input, *, across_channels=0, normalize_variance=1):
    """MeanVarianceNormalization of onnxruntime below opset 9: over axes 0, 2 and 3, and 1 with ``across_channels``."""
    axes = [axis for axis in (0, 1, 2, 3) if axis < input.ndim and (axis != 1 or across_channels)]
    if normalize_variance:
        return mean_variance_normalization(input, axes=axes)
    x = to_dtype(input, statistics_dtype(input))
    return to_dtype(x - reduce_mean(x, axes), input.dtype)


channel_normalization_before_onnx.requires(floats("input"), shapes(input="batch channels ..."))


@mean_variance_normalization.numpy
@np.errstate(all="ignore")
def mean_variance_normalization_numpy(X, *, axes):
    x = widened(X)
    reduced = tuple(_present(axes, X.ndim)) or tuple(range(X.ndim))
    deviation = x - mean_array(x, reduced)
    deviation /= np.sqrt(_mean_square(deviation, reduced)) + x.dtype.type(1e-9)
    return deviation.astype(X.dtype, copy=False)


@op("LpNormalization")
def lp_normalization(input, *, axis=-1, p=2):
    """``input`` divided by its 1-norm or 2-norm (``p``) along ``axis``; zero vectors stay zero."""
    norm = (reduce_l1 if p == 1 else reduce_l2)(input, [axis])
    return input / where(equal(norm, 0.0), 1.0, norm)


lp_normalization.requires(floats("input"), axis("axis", of="input"), one_of(p=(1, 2)))


@lp_normalization.numpy
@np.errstate(all="ignore")
def lp_normalization_numpy(input, *, axis, p):
    x = widened(input)
    norm = total(np.abs(x), (axis,)) if p == 1 else np.sqrt(sum_of_squares(x, (axis,)))
    return np.divide(x, np.where(norm == 0, x.dtype.type(1), norm)).astype(input.dtype, copy=False)
