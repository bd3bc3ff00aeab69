"""Resizing of images, with the channels moved to the last axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Value, dims, elements, static
from tenonnx_litert.builtins import movement, neural
from tenonnx_litert.lowerings.images import channels_first, channels_last
from tenonnx_litert.lowerings.registry import as_floats, int32, lowers, narrow, shape_vector, sizes, unless

#: align_corners and half_pixel_centers by ONNX's coordinate_transformation_mode.
FLAGS = {"half_pixel": (0, 1), "align_corners": (1, 0), "asymmetric": (0, 0), "pytorch_half_pixel": (0, 1)}


def _nearest(old: int, new: int, centers: bool) -> Any:
    """The positions that RESIZE_NEAREST_NEIGHBOR reads, computed in float32 as the kernel does."""
    scale = np.float32(old) / np.float32(new)
    places = (np.arange(new, dtype=np.float32) + np.float32(0.5 if centers else 0)) * scale
    return np.minimum(np.floor(places), old - 1).astype(np.int64)


@lowers(ops.resize, spatial=True)
def resize(
    x: Value,
    roi: Value | None,
    scales: Value | None,
    wanted: Value | None,
    *,
    mode: str,
    coordinate_transformation_mode: str,
    nearest_mode: str,
    antialias: int,
    **attributes: Any,
) -> Any:
    as_floats(x)
    unless(x.ndim != 4, "the kernels resize images")
    known = sizes(x)
    options = {
        **attributes,
        "mode": mode,
        "coordinate_transformation_mode": coordinate_transformation_mode,
        "nearest_mode": nearest_mode,
        "antialias": antialias,
    }
    shape = ops.resize.rules["type"](x, roi, scales, wanted, **options).shape
    unless(shape is None, "the number of sizes is dynamic")
    unless([str(n) for n in shape[:2]] != [str(n) for n in x.shape[:2]], "Resize of batch or channels is not supported")
    if None in known[2:] or not all(isinstance(n, int) for n in shape[2:]):
        unless(bool(antialias) or attributes["axes"] is not None, "the sizes are dynamic")
        return resized_at_run_time(x, scales, wanted, mode, coordinate_transformation_mode, nearest_mode)
    target = [int(n) for n in shape[2:]]
    if mode == "nearest":
        return _resized_to_nearest(x, roi, scales, target, options)
    unless(mode != "linear" or bool(antialias), f"no kernel resizes by {mode}")
    unless(attributes["exclude_outside"] != 0, "Resize has exclude_outside")
    unless(
        coordinate_transformation_mode not in FLAGS, f"no kernel has the coordinates {coordinate_transformation_mode}"
    )
    unless(coordinate_transformation_mode == "pytorch_half_pixel" and 1 in target, "a dim is resized to 1")
    if scales is not None:
        factors = static(scales)
        unless(factors is None, "the scales are computed")
        exact = [np.isclose(n * f, t) for n, f, t in zip(known[2:], np.reshape(factors, -1)[-2:], target, strict=True)]  # type: ignore[operator]
        unless(not all(exact), "scales do not match the sizes")
    corners, centers = FLAGS[coordinate_transformation_mode]
    y = neural.resize_bilinear(channels_last(x), int32(target), align_corners=corners, half_pixel_centers=centers)
    return channels_first(y)


def _resized_to_nearest(
    x: Value, roi: Value | None, scales: Value | None, target: list[int], options: dict[str, Any]
) -> Any:
    """Resize by the kernel if it reads the same positions, else by GATHER."""
    places = []
    for axis, new in zip((2, 3), target, strict=True):
        old = x.shape[axis]
        row = np.arange(old, dtype=np.float32)
        other = [None if v is None else static(v) for v in (roi, scales)]
        unless(
            any(v is not None and k is None for v, k in zip((roi, scales), other, strict=True)),
            "roi or scales is computed",
        )
        places.append(_positions(row, axis, new, other, options))
    images = channels_last(x)
    for centers in (0, 1):
        if all(
            np.array_equal(place, _nearest(int(x.shape[axis]), new, bool(centers)))
            for axis, new, place in zip((2, 3), target, places, strict=True)
        ):
            return channels_first(
                neural.resize_nearest_neighbor(images, int32(target), align_corners=0, half_pixel_centers=centers)
            )
    for axis, place in zip((1, 2), places, strict=True):
        images = movement.gather(images, int32(place), axis=axis)
    return channels_first(images)


def _positions(row: Any, axis: int, new: int, others: Sequence[Any], options: dict[str, Any]) -> Any:
    """The positions that Resize reads along one axis, found by resizing the vector of its positions."""
    roi, scales = others
    options = {**options, "axes": None, "keep_aspect_ratio_policy": "stretch"}
    ratio = None if scales is None else np.asarray([np.reshape(scales, -1)[axis - 4]], np.float32)
    region = roi if roi is None or not np.size(roi) else np.asarray([np.reshape(roi, -1)[k] for k in (axis - 4, -1)])
    size = np.asarray([new], np.int64) if scales is None else None
    positions = ops.resize(row, None if region is None or not np.size(region) else region, ratio, size, **options)
    return np.asarray(positions).astype(np.int64)


# ----- sizes that only run time knows ---------------------------------------------------------------------------------


def resized_at_run_time(
    x: Value, scales: Value | None, wanted: Value | None, mode: str, coordinates: str, nearest_mode: str
) -> Any:
    """Resize to sizes computed at run time, or by integer factors."""
    unless(coordinates not in FLAGS, f"no kernel has the coordinates {coordinates}")
    lengths = [narrow(n) if isinstance(n, Value) else int32(n) for n in dims(x)[2:]]
    factors = _factors(scales, x.ndim)
    targets = _targets(lengths, factors, wanted)
    if mode == "nearest":
        centers = coordinates in ("half_pixel", "pytorch_half_pixel") and nearest_mode.startswith("round_prefer")
        unless(factors is None and centers, "the places of pixels depend on dynamic dims")
        unless(not centers and (coordinates, nearest_mode) != ("asymmetric", "floor"), f"no kernel has {nearest_mode}")
        images = channels_last(x)
        for axis, (old, new) in enumerate(zip(lengths, targets, strict=True)):
            steps = movement.range_(int32(0), new, int32(1))
            places = ops.div(ops.mul(steps, old), new)
            images = movement.gather(images, places, axis=axis + 1)
        return channels_first(images)
    unless(mode != "linear", f"no kernel resizes by {mode} to dynamic sizes")
    corners, centers = FLAGS[coordinates]
    if coordinates == "pytorch_half_pixel":  # reads the first pixel if the new length is 1
        ends = [ops.where(ops.equal(new, int32(1)), int32(1), old) for old, new in zip(lengths, targets, strict=True)]
        ends = [ops.cast(ops.reshape(end, [1]), to=DType.int64) for end in ends]
        x = ops.slice_(x, [0, 0], ops.concat(*ends, axis=0), [2, 3])
    y = neural.resize_bilinear(
        channels_last(x), shape_vector(targets), align_corners=corners, half_pixel_centers=centers
    )
    return channels_first(y)


def _factors(scales: Value | None, rank: int) -> list[int] | None:
    if scales is None:
        return None
    contents = static(scales)
    unless(contents is None or len(contents) != rank, "the scales are computed")
    factors = [round(float(each)) for each in contents[2:]]
    unless(
        any(float(a) != b or b < 1 for a, b in zip(contents[2:], factors, strict=True)),
        "a dynamic dim is multiplied by a fraction",
    )
    return factors


def _targets(lengths: Sequence[Value], factors: Sequence[int] | None, wanted: Value | None) -> list[Value]:
    """The new lengths, in int32."""
    if factors is not None:
        return [ops.mul(size, int32(factor)) for size, factor in zip(lengths, factors, strict=True)]
    contents = elements(wanted)
    unless(contents is None, "the number of sizes is unknown")
    return [
        int32(each) if isinstance(each, int) else narrow(ops.gather(wanted, place, axis=0))
        for place, each in enumerate(contents)
    ][2:]
