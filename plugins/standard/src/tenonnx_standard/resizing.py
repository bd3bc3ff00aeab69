"""Resize."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tenonnx.extend import (
    Index,
    TensorType,
    TypeMismatch,
    Value,
    constant,
    dims,
    elements,
    holds,
    op,
    static,
    symbolic,
    vector,
)
from tenonnx_standard.casting import cast
from tenonnx_standard.constants import range_
from tenonnx_standard.joining import concat
from tenonnx_standard.linear_algebra import matmul
from tenonnx_standard.logic import equal, where
from tenonnx_standard.math import clip, maximum, minimum, round_
from tenonnx_standard.reduction import reduce_sum
from tenonnx_standard.resample_1d import (
    COORDINATES,
    MODES,
    NEAREST,
    Method,
    axes_to_resample,
    resample,
    scaled_size,
)
from tenonnx_standard.resize_plans import Plan, fixed_plan, open_plans, wide
from tenonnx_standard.shapes import identity, reshape, transpose, unsqueeze
from tenonnx_standard.slicing import gather

COORDINATES_BEFORE_13 = (*COORDINATES[1:], "tf_half_pixel_for_nn")
POLICIES = ("stretch", "not_larger", "not_smaller")


def _method(
    title: str,
    *,
    antialias: int,
    coordinate_transformation_mode: str,
    cubic_coeff_a: float,
    exclude_outside: int,
    mode: str,
    nearest_mode: str,
    keep_aspect_ratio_policy: str = "stretch",
    coordinates: Sequence[str] = COORDINATES,
) -> Method:
    """The attributes of a call. Raises ``TypeMismatch`` for unknown strings."""
    for name, given, known in (
        ("mode", mode, MODES),
        ("coordinate_transformation_mode", coordinate_transformation_mode, coordinates),
        ("nearest_mode", nearest_mode, NEAREST),
        ("keep_aspect_ratio_policy", keep_aspect_ratio_policy, POLICIES),
    ):
        if given not in known:
            raise TypeMismatch(f"{title}: unknown {name}", given=repr(given), available=", ".join(known))
    if mode == "nearest" and antialias:
        raise TypeMismatch(f"{title}: antialias is set, with mode nearest", do="use mode linear or cubic")
    return Method(
        mode, coordinate_transformation_mode, nearest_mode, float(cubic_coeff_a), bool(exclude_outside), bool(antialias)
    )


def _chosen_axes(title: str, rank: int, axes: Sequence[int] | None) -> list[int]:
    if axes is None or not len(axes):
        return list(range(rank))
    if any(not -rank <= a < rank for a in axes) or len({a % rank for a in axes}) < len(axes):
        raise TypeMismatch(
            f"{title}: axes names an axis twice, or one that X lacks", given=f"axes={list(axes)} of rank {rank}"
        )
    return [a % rank for a in axes]


def _given(title: str, X: Any, scales: Any, sizes: Any, chosen: Sequence[int], length: Any) -> tuple[Any, Any]:
    """``scales`` and ``sizes``, one of them None; an empty tensor means None."""
    scales = None if scales is None or length(scales) == 0 else scales
    sizes = None if sizes is None or length(sizes) == 0 else sizes
    if (scales is None) == (sizes is None):
        both = "none of them" if scales is None else "both"
        raise TypeMismatch(f"{title}: scales and sizes are both absent or both given", given=both)
    name, one = ("scales", scales) if sizes is None else ("sizes", sizes)
    if negative := [n for n in (_numbers(sizes) or () if scales is None else ()) if isinstance(n, int) and n < 0]:
        raise TypeMismatch(f"{title}: sizes holds a negative number", given=str(negative))
    count = length(one)
    if isinstance(count, int) and count != len(chosen):
        raise TypeMismatch(
            f"{title}: {name} does not have one element for each resized axis",
            given=f"{count} elements for axes {list(chosen)}",
        )
    return scales, sizes


def _numbers(sizes: Any) -> list[Any] | None:
    """The elements, as far as known."""
    return elements(sizes) if isinstance(sizes, Value) else sizes.tolist()


def _length_of_value(value: Value) -> Any:
    if value.rank not in (None, 1):
        raise TypeMismatch("Resize: scales or sizes is not a list", given=repr(value))
    return None if value.rank is None else value.shape[0]


# ----- Resize ---------------------------------------------------------------------------------------------------------


@op("Resize", since=10)
def resize(
    X,
    roi=None,
    scales=None,
    sizes: Index = None,
    *,
    antialias=0,
    axes: list[int] | None = None,
    coordinate_transformation_mode="half_pixel",
    cubic_coeff_a=-0.75,
    exclude_outside=0,
    extrapolation_value=0.0,
    keep_aspect_ratio_policy="stretch",
    mode="nearest",
    nearest_mode="round_prefer_floor",
):
    """Resample ``X`` along its axes to ``sizes``, or to its dims times ``scales``.

    Mode nearest is a Gather; the other modes multiply by a matrix along each axis.
    """
    method = _method(
        resize.title,
        antialias=antialias,
        coordinate_transformation_mode=coordinate_transformation_mode,
        mode=mode,
        cubic_coeff_a=cubic_coeff_a,
        exclude_outside=exclude_outside,
        nearest_mode=nearest_mode,
        keep_aspect_ratio_policy=keep_aspect_ratio_policy,
    )
    return _resampled(
        X, _plans(X, roi, scales, sizes, axes, method, keep_aspect_ratio_policy), method, extrapolation_value
    )


def _plans(
    X: Value,
    roi: Value | None,
    scales: Value | None,
    sizes: Value | None,
    axes: Sequence[int] | None,
    method: Method,
    policy: str,
) -> list[Plan]:
    chosen = _chosen_axes(resize.title, X.ndim, axes)
    scales, sizes = _given(resize.title, X, scales, sizes, chosen, _length_of_value)
    needs_roi = method.coordinates == "tf_crop_and_resize"
    if needs_roi and (roi is None or _length_of_value(roi) == 0):
        raise TypeMismatch(f"{resize.title}: roi is missing for tf_crop_and_resize")
    roi = roi if needs_roi else None
    if policy == "stretch" and method.coordinates not in ("tf_crop_and_resize", "tf_half_pixel_for_nn"):
        scales, sizes, chosen = _of_changed_axes(X, scales, sizes, chosen)
    known = [None if v is None else static(v) for v in (roi, scales, sizes)]
    lengths = [X.shape[a] for a in chosen]
    if all((v is None) == (k is None) for v, k in zip((roi, scales, sizes), known, strict=True)) and all(
        isinstance(n, int) for n in lengths
    ):
        fixed = axes_to_resample(X.shape, chosen, *known, policy)  # type: ignore[call-arg]
        return [fixed_plan(a, axis, method, wide(X.dtype)) for a, axis in fixed.items()]
    return open_plans(X, chosen, roi, scales, sizes, method, policy)


def _of_changed_axes(
    X: Value, scales: Value | None, sizes: Value | None, chosen: Sequence[int]
) -> tuple[Value | None, Value | None, Sequence[int]]:
    """Scales, sizes and axes without axes that keep their size, such as a dynamic batch."""
    given = scales if sizes is None else sizes
    numbers = static(given) if sizes is None else elements(given)
    if numbers is None:
        return scales, sizes, chosen
    kept = [k for k, a in enumerate(chosen) if numbers[k] != (1 if sizes is None else X.shape[a]) or numbers[k] is None]
    if len(kept) == len(chosen):
        return scales, sizes, chosen
    if sizes is None:
        given = constant(np.asarray(numbers)[kept])
    elif all(isinstance(numbers[k], int) for k in kept):
        given = constant(np.asarray([numbers[k] for k in kept], np.int64))
    else:
        given = gather(sizes, constant(np.asarray(kept, np.int64)))
    axes = [chosen[k] for k in kept]
    return (given, None, axes) if sizes is None else (None, given, axes)


def _resampled(X: Value, plans: Sequence[Plan], method: Method, extrapolation_value: float) -> Value:
    x = X
    if method.mode != "nearest" and X.dtype is not wide(X.dtype):
        x = cast(x, to=wide(X.dtype))
    for plan in plans:
        x = gather(x, plan.positions, axis=plan.axis) if plan.weights is None else _contract(x, plan.weights, plan.axis)
    for plan in plans:
        if plan.beyond is not None:
            mask = reshape(plan.beyond, [-1, *(1,) * (x.ndim - 1 - plan.axis)])
            x = where(mask, constant(np.asarray(extrapolation_value), x.dtype), x)
    if x.dtype is X.dtype:
        return x
    if X.dtype.is_integer:
        info = np.iinfo(X.dtype.numpy)
        x = clip(round_(x), float(info.min), float(info.max))
    return cast(x, to=X.dtype)


def _contract(x: Value, weights: Value, axis: int) -> Value:
    """``x`` multiplied by a matrix along one axis."""
    if axis == x.ndim - 1:
        return matmul(x, transpose(weights, perm=[1, 0]))
    if axis == x.ndim - 2:
        return matmul(weights, x)
    order = [k for k in range(x.ndim) if k != axis] + [axis]
    back = [order.index(k) for k in range(x.ndim)]
    return transpose(matmul(transpose(x, perm=order), transpose(weights, perm=[1, 0])), perm=back)


def _policy_is_of_sizes(scales: Value | None, keep_aspect_ratio_policy: str) -> str | None:
    if keep_aspect_ratio_policy == "stretch" or scales is None or (scales.rank == 1 and scales.shape[0] == 0):
        return None
    return f'keep_aspect_ratio_policy "{keep_aspect_ratio_policy}" applies to sizes and not to scales'


resize.requires(holds(_policy_is_of_sizes))


@resize.type
def resize_type(X, roi=None, scales=None, sizes=None, *, axes, extrapolation_value, **attributes):
    title = resize.title
    method = _method(title, **attributes)
    if X.tensor.shape is None:
        return X.tensor
    if method.mode != "nearest" and not X.dtype.is_float and not X.dtype.is_integer:
        raise TypeMismatch(f'{title}: X is not numeric, with mode "{method.mode}"', given=repr(X))
    chosen = _chosen_axes(title, X.ndim, axes)
    scales, sizes = _given(title, X, scales, sizes, chosen, _length_of_value)
    shape = list(X.shape)
    factors = None if scales is None else static(scales)
    wanted = None if sizes is None else elements(sizes)
    policy = attributes["keep_aspect_ratio_policy"]
    if factors is not None:
        for a, factor in zip(chosen, factors, strict=True):
            shape[a] = _scaled_dim(shape[a], float(factor))
    elif wanted is None or (
        policy != "stretch" and not all(isinstance(n, int) for n in (*wanted, *(shape[a] for a in chosen)))
    ):
        for a in chosen:
            shape[a] = None
    elif policy == "stretch":
        for a, n in zip(chosen, wanted, strict=True):
            shape[a] = n
    else:
        for a, axis in axes_to_resample(shape, chosen, None, None, wanted, policy).items():
            shape[a] = axis.output
    return TensorType(X.dtype, tuple(shape))


def _scaled_dim(size: Any, scale: float) -> Any:
    if isinstance(size, int):
        return scaled_size(size, scale)
    if scale >= 1 and scale.is_integer():
        return symbolic.multiply(size, int(scale))
    halvings = -math.log2(scale) if scale > 0 else 0.5
    return symbolic.floor_div(size, 2 ** int(halvings)) if halvings.is_integer() else None


@resize.numpy
def resize_numpy(
    X, roi=None, scales=None, sizes=None, *, axes, extrapolation_value, keep_aspect_ratio_policy, **attributes
):
    method = _method(resize.title, keep_aspect_ratio_policy=keep_aspect_ratio_policy, **attributes)
    chosen = _chosen_axes(resize.title, X.ndim, axes)
    scales, sizes = _given(resize.title, X, scales, sizes, chosen, len)
    if method.coordinates != "tf_crop_and_resize":
        roi = None
    elif roi is None or not roi.size:
        raise TypeMismatch(f"{resize.title}: roi is missing for tf_crop_and_resize")
    changing = axes_to_resample(X.shape, chosen, roi, scales, sizes, keep_aspect_ratio_policy)
    return resample(X, changing, method, extrapolation_value)


@resize.vjp
def resize_vjp(
    g, y, X, roi=None, scales=None, sizes=None, *, axes, extrapolation_value, keep_aspect_ratio_policy, **attributes
):
    method = _method(resize.title, keep_aspect_ratio_policy=keep_aspect_ratio_policy, **attributes)
    plans = _plans(X, roi, scales, sizes, axes, method, keep_aspect_ratio_policy)
    for plan in plans:
        if plan.beyond is not None:
            mask = reshape(plan.beyond, [-1, *(1,) * (g.ndim - 1 - plan.axis)])
            g = where(mask, 0.0, g)
    for plan in plans:
        if plan.weights is None:
            g = _gathered_back(g, X, plan)
        else:
            weights = transpose(plan.weights, perm=[1, 0])
            g = _contract(g, weights if weights.dtype is g.dtype else cast(weights, to=g.dtype), plan.axis)
    return g, None, None, None


def _gathered_back(g: Value, X: Value, plan: Plan) -> Value:
    """The transpose of gathering along an axis: sums of runs if they are regular, else a matrix product."""
    known, size = static(plan.positions), X.shape[plan.axis]
    if known is not None and isinstance(size, int) and size and known.size % size == 0:
        times = known.size // size
        if np.array_equal(known, np.arange(size).repeat(times)):
            lengths = dims(g)
            runs = reshape(g, [*lengths[: plan.axis], size, times, *lengths[plan.axis + 1 :]])
            return reduce_sum(runs, [plan.axis + 1], keepdims=0)
        hits = np.arange(size)[:, None] == known
        return _contract(g, constant(hits, g.dtype), plan.axis)
    hits = equal(unsqueeze(range_(0, dims(X)[plan.axis], 1), [-1]), plan.positions)
    return _contract(g, cast(hits, to=g.dtype), plan.axis)


# ----- older versions -------------------------------------------------------------------------------------------------


@resize.until(19)
def resize_before_symmetric(
    X,
    roi=None,
    scales=None,
    sizes: Index = None,
    *,
    antialias=0,
    axes: list[int] | None = None,
    coordinate_transformation_mode="half_pixel",
    cubic_coeff_a=-0.75,
    exclude_outside=0,
    extrapolation_value=0.0,
    keep_aspect_ratio_policy="stretch",
    mode="nearest",
    nearest_mode="round_prefer_floor",
):
    """Resize without half_pixel_symmetric."""
    _check_coordinates(resize_before_symmetric.title, coordinate_transformation_mode, COORDINATES[1:])
    return resize(
        X,
        roi,
        scales,
        sizes,
        antialias=antialias,
        axes=axes,
        cubic_coeff_a=cubic_coeff_a,
        coordinate_transformation_mode=coordinate_transformation_mode,
        exclude_outside=exclude_outside,
        extrapolation_value=extrapolation_value,
        keep_aspect_ratio_policy=keep_aspect_ratio_policy,
        mode=mode,
        nearest_mode=nearest_mode,
    )


resize_before_symmetric.until(18, lacks=["antialias", "axes", "keep_aspect_ratio_policy"])


def _check_coordinates(title: str, given: str, known: Sequence[str]) -> None:
    if given not in known:
        raise TypeMismatch(
            f"{title}: unknown coordinate_transformation_mode", given=repr(given), available=", ".join(known)
        )


@resize.lower(to=resize_before_symmetric)
def resize_to_resize_before_symmetric(X, roi=None, scales=None, sizes=None, **attributes):
    if attributes["coordinate_transformation_mode"] != "half_pixel_symmetric":
        return resize_before_symmetric(X, roi, scales, sizes, **attributes)
    return None


@resize_before_symmetric.lower()
def resize_before_symmetric_lowering(
    X, roi=None, scales=None, sizes=None, *, antialias, axes, keep_aspect_ratio_policy, **attributes
):
    """Use ``scales`` and ``sizes`` for all axes instead of some."""
    if antialias or not axes or keep_aspect_ratio_policy != "stretch" or X.rank is None:
        return None
    chosen = _chosen_axes(resize.title, X.ndim, axes)
    scales, sizes = _given(resize.title, X, scales, sizes, chosen, _length_of_value)
    if roi is not None and _length_of_value(roi) != 0:
        half = len(chosen)
        starts = _for_all_axes(roi[:half], chosen, [0.0] * X.ndim)
        roi = concat(starts, _for_all_axes(roi[half:], chosen, [1.0] * X.ndim), axis=0)
    if scales is not None:
        scales = _for_all_axes(scales, chosen, [1.0] * X.ndim)
    else:
        sizes = _for_all_axes(sizes, chosen, dims(X))
    return resize_before_symmetric(X, roi, scales, sizes, **attributes)


def _for_all_axes(given: Value, chosen: Sequence[int], others: Sequence[Any]) -> Value:
    """The numbers for the chosen axes, and ``others`` for the rest."""
    parts = []
    for a, other in enumerate(others):
        if a in chosen:
            k = chosen.index(a)
            parts.append(given[k : k + 1])
        else:
            parts.append(vector([other]) if given.dtype.is_integer else constant(np.asarray([other]), given.dtype))
    return concat(*parts, axis=0)


@resize_before_symmetric.until(13)
def resize_with_roi(
    X,
    roi,
    scales,
    sizes: Index = None,
    *,
    coordinate_transformation_mode="half_pixel",
    cubic_coeff_a=-0.75,
    exclude_outside=0,
    extrapolation_value=0.0,
    mode="nearest",
    nearest_mode="round_prefer_floor",
):
    """Resize with required ``roi`` and ``scales``, ``scales`` empty if ``sizes`` are given."""
    given = COORDINATES_BEFORE_13
    _check_coordinates(resize_with_roi.title, coordinate_transformation_mode, given)
    given_scales = _length_of_value(scales)
    if sizes is not None and _length_of_value(sizes) != 0 and (given_scales == 0 or not isinstance(given_scales, int)):
        scales = None
    attributes = {
        "coordinate_transformation_mode": coordinate_transformation_mode,
        "cubic_coeff_a": cubic_coeff_a,
        "exclude_outside": exclude_outside,
        "mode": mode,
        "nearest_mode": nearest_mode,
    }
    if coordinate_transformation_mode == "tf_half_pixel_for_nn":
        method = _method(resize_with_roi.title, antialias=0, coordinates=given, **attributes)
        return _resampled(X, _plans(X, None, scales, sizes, None, method, "stretch"), method, extrapolation_value)
    return resize(X, roi, scales, sizes, extrapolation_value=extrapolation_value, **attributes)


@resize_before_symmetric.lower(to=resize_with_roi)
def resize_before_symmetric_to_resize_with_roi(
    X, roi=None, scales=None, sizes=None, *, antialias, axes, keep_aspect_ratio_policy, **attributes
):
    if antialias or axes or keep_aspect_ratio_policy != "stretch":
        return None
    empty = constant(np.zeros(0, np.float32))
    return resize_with_roi(X, empty if roi is None else roi, empty if scales is None else scales, sizes, **attributes)


@resize_with_roi.until(11)
def resize_asymmetric(X, scales, *, mode="nearest"):
    """``X`` resampled with asymmetric coordinates; nearest rounds down, or up when shrinking."""
    if mode == "linear":
        return resize(X, None, scales, mode="linear", coordinate_transformation_mode="asymmetric")
    contents = static(scales)
    attributes = {"mode": mode, "coordinate_transformation_mode": "asymmetric"}
    y = X
    if contents is None or (contents < 1).any():
        y = resize(y, None, minimum(scales, 1.0), nearest_mode="ceil", **attributes)
    if contents is None or (contents > 1).any():
        y = resize(y, None, maximum(scales, 1.0), nearest_mode="floor", **attributes)
    return identity(X) if y is X else y


@resize_with_roi.lower(to=resize_asymmetric)
def resize_with_roi_to_resize_asymmetric(
    X, roi, scales, sizes, *, coordinate_transformation_mode, mode, nearest_mode, exclude_outside, **_
):
    contents = static(scales)
    if coordinate_transformation_mode != "asymmetric" or contents is None or not contents.size:
        return None
    grows, shrinks = bool((contents >= 1).all()), bool((contents <= 1).all())
    if mode == "linear" or (
        mode == "nearest" and ((nearest_mode == "floor" and grows) or (nearest_mode == "ceil" and shrinks))
    ):
        return resize_asymmetric(X, scales, mode=mode)
    return None
