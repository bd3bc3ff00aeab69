"""Cases of resampling, sampling and decoding images."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx.extend import DType
from tenonnx_standard.image import affine_grid, grid_sample, grid_sample_2d, image_decoder
from tenonnx_standard.resample_1d import COORDINATES
from tenonnx_standard.resizing import (
    resize,
    resize_asymmetric,
    resize_before_symmetric,
    resize_with_roi,
)
from tenonnx_standard.upsampling import upsample, upsample_2d
from tenonnx_testing import Gap, call, cases, tensors

#: Scales whose products with small integers are exact, or far from the next integer.
SCALES = [0.5, 0.75, 1.0, 1.5, 2.0, 3.0]


def method(draw, coordinates, **also):
    """The attributes of Resize that select how an axis is resampled."""
    mode = draw(st.sampled_from(["nearest", "linear", "cubic"]))
    result = {"mode": mode, "coordinate_transformation_mode": draw(st.sampled_from(coordinates)), **also}
    if mode == "nearest":
        result["nearest_mode"] = draw(st.sampled_from(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]))
    if mode == "cubic":
        result["cubic_coeff_a"] = draw(st.sampled_from([-0.75, -0.5]))
        result["exclude_outside"] = draw(st.integers(0, 1))
    if result["coordinate_transformation_mode"] == "tf_crop_and_resize":
        result["extrapolation_value"] = 2.5
    return result


def image(draw, mode, **keywords):
    dtype = ["float32", "float32", "float16", "bfloat16", "uint8", "int32"]
    if mode == "nearest":
        dtype += ["bool", "int64"]
    lengths = (1, draw(st.integers(1, 2)), draw(st.integers(2, 5)), draw(st.integers(2, 5)))
    return draw(tensors(dtype, shape=lengths, **keywords))


def lengths(draw, x, attributes, axes=None):
    """A region, scales and sizes for some axes of ``x``; one of scales and sizes is None, the region may be None.

    Some cases are left out, because the oracles disagree: fractional lengths where the modes align corners or crop
    (onnxruntime rounds them first, ONNX's examples do not), cropped axes that keep their length (onnxruntime takes the
    whole axis), and shrinking to one element with pytorch_half_pixel (onnx.reference takes the length before rounding).
    """
    axes = range(x.ndim) if axes is None else axes
    how = attributes["coordinate_transformation_mode"]
    spatial = [a % x.ndim > 1 for a in axes]
    roi = scales = sizes = None
    if how == "tf_crop_and_resize":
        roi = np.asarray([0.125 * i for i in spatial] + [1 - 0.25 * i for i in spatial], np.float32)
    by_sizes = how in ("align_corners", "tf_crop_and_resize", "pytorch_half_pixel")
    if not by_sizes and "keep_aspect_ratio_policy" not in attributes and draw(st.booleans()):
        scales = np.asarray([draw(st.sampled_from(SCALES)) if i else 1 for i in spatial], np.float32)
    else:
        least = 2 if how == "pytorch_half_pixel" else 1
        drawn = [draw(st.integers(least, 7)) if i else x.shape[a] for a, i in zip(axes, spatial, strict=True)]
        if roi is not None:
            drawn = [n + (i and n == x.shape[a]) for a, n, i in zip(axes, drawn, spatial, strict=True)]
        sizes = np.asarray(drawn, np.int64)
    return roi, scales, sizes


@cases(
    resize,
    gradient=("X",),
    steps=1,
    gaps=[Gap("special values", "the body multiplies elements by zero weights, and NaN times zero is NaN")],
)  # onnxruntime cuts off fractions of integers
def resize_cases(draw):
    attributes = method(draw, COORDINATES)
    if attributes["mode"] != "nearest":
        attributes["antialias"] = draw(st.integers(0, 1))
    x = image(draw, attributes["mode"])
    if draw(st.booleans()):
        how = attributes["coordinate_transformation_mode"]
        axes = [[2, 3], [3, 2], [2]]
        if how in ("half_pixel", "half_pixel_symmetric", "asymmetric") and draw(st.booleans()):
            attributes["keep_aspect_ratio_policy"] = draw(st.sampled_from(["not_larger", "not_smaller"]))
        else:
            axes.append([-1])  # under these policies onnxruntime does not take negative axes
        attributes["axes"] = axes = draw(st.sampled_from(axes))
        return call(x, *lengths(draw, x, attributes, axes), **attributes)
    return call(x, *lengths(draw, x, attributes), **attributes)


SEARCHED = Gap(
    "export",
    "an opset without bfloat16 is refused only after more expansions than the limit allows",
    lambda call: call.attributes["mode"] == "cubic" and DType.of(call.inputs[0].dtype) is DType.bfloat16,
)


@cases(resize_before_symmetric, gradient=("X",), steps=1, gaps=[SEARCHED])  # onnxruntime cuts off fractions of integers
def resize_before_symmetric_cases(draw):
    attributes = method(draw, COORDINATES[1:])
    x = image(draw, attributes["mode"])
    return call(x, *lengths(draw, x, attributes), **attributes)


@cases(resize_with_roi, gradient=("X",), steps=1)  # onnxruntime cuts off fractions of integers
def resize_with_roi_cases(draw):
    attributes = method(draw, [*COORDINATES[1:], "tf_half_pixel_for_nn"])
    x = image(draw, attributes["mode"])
    roi, scales, sizes = lengths(draw, x, attributes)
    empty = np.zeros(0, np.float32)
    return call(x, empty if roi is None else roi, empty if scales is None else scales, sizes, **attributes)


@cases(resize_asymmetric, gradient=("X",))
def resize_asymmetric_cases(draw):
    x = draw(tensors(["float32", "uint8", "int32"], shape=(1, 2, draw(st.integers(2, 5)), draw(st.integers(2, 5)))))
    mode = "linear" if x.dtype == np.float32 and draw(st.booleans()) else "nearest"
    scales = [1, 1, draw(st.sampled_from(SCALES)), draw(st.sampled_from(SCALES))]
    return call(x, np.asarray(scales, np.float32), mode=mode)


@cases(upsample, gradient=("X",))
def upsample_cases(draw):
    x = draw(tensors(["float32", "int32"], shape=(1, 2, draw(st.integers(2, 4)), draw(st.integers(2, 4)))))
    mode = "linear" if x.dtype == np.float32 and draw(st.booleans()) else "nearest"
    scales = [1, 1, draw(st.sampled_from(SCALES[2:])), draw(st.sampled_from(SCALES[2:]))]
    return call(x, np.asarray(scales, np.float32), mode=mode)


@cases(upsample_2d)
def upsample_2d_cases(draw):
    x = draw(tensors(shape=(1, 2, draw(st.integers(2, 4)), draw(st.integers(2, 4)))))
    height, width = draw(st.sampled_from(SCALES[2:])), draw(st.sampled_from(SCALES[2:]))
    return call(x, height_scale=height, width_scale=width, mode=draw(st.sampled_from(["nearest", "bilinear"])))


# ----- sampling -------------------------------------------------------------------------------------------------------


def grid(draw, sizes, outputs, align):
    """Positions in and around an image, away from pixels and midpoints, where sampling is not differentiable."""
    places = draw(tensors(shape=(1, *outputs, len(sizes)), min_value=-1.6, max_value=1.6)).astype(np.float64)
    for k, n in enumerate(reversed(sizes)):
        scale = (n - 1 if align else n) / 2
        x = places[..., k] * scale + (n - 1) / 2
        x = (np.floor(x * 2) + 0.5 + 0.3 * np.sign(np.sin(9 * x))) / 2
        places[..., k] = (x - (n - 1) / 2) / scale
    return places.astype(np.float32)


def sampled(draw, rank, modes):
    sizes = [draw(st.integers(2, 4)) for _ in range(rank)]
    align = draw(st.integers(0, 1))
    x = draw(tensors(shape=(1, draw(st.integers(1, 2)), *sizes)))
    positions = grid(draw, sizes, [draw(st.integers(1, 3)) for _ in range(rank)], align)
    padding = draw(st.sampled_from(["zeros", "border", "reflection"]))
    return call(x, positions, align_corners=align, mode=draw(st.sampled_from(modes)), padding_mode=padding)


def clamped(call):
    return call.attributes["mode"] in ("cubic", "bicubic") and call.attributes["padding_mode"] == "border"


CLAMPED = "it moves the position to the border where onnxruntime and PyTorch move the pixels around it"


@cases(
    grid_sample,
    gaps=[Gap("empty axes", "the body reshapes to a shape with a 0"), Gap("reference", CLAMPED, clamped)],
)
def grid_sample_cases(draw):
    return sampled(draw, draw(st.integers(1, 3)), ["linear", "nearest", "cubic"])


@cases(grid_sample_2d)
def grid_sample_2d_cases(draw):
    return sampled(draw, 2, ["bilinear", "nearest", "bicubic"])


@cases(affine_grid, gaps=[Gap("reference", "it returns float32", lambda c: c.inputs[0].dtype != np.float32)])
def affine_grid_cases(draw):
    rank = draw(st.sampled_from([2, 3]))
    theta = draw(tensors(["float32", "float32", "float64"], shape=(draw(st.integers(1, 2)), rank, rank + 1)))
    size = [theta.shape[0], 2, *(draw(st.integers(2, 4)) for _ in range(rank))]
    return call(theta, np.asarray(size, np.int64), align_corners=draw(st.integers(0, 1)))


@cases(image_decoder, gradient=False)
def image_decoder_cases(draw):
    """Portable anymaps, the one format that needs no imaging library."""
    height, width = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    pixel_format = draw(st.sampled_from(["RGB", "BGR", "Grayscale"]))
    kind, channels = (b"P5", 1) if pixel_format == "Grayscale" and draw(st.booleans()) else (b"P6", 3)
    pixels = draw(tensors("uint8", shape=(height, width, channels), min_value=0, max_value=255))
    data = kind + f"\n{width} {height}\n255\n".encode() + pixels.tobytes()
    return call(np.frombuffer(data, np.uint8), pixel_format=pixel_format)
