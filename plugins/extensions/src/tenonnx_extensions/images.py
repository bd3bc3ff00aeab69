"""Image decoding and encoding by Pillow."""

from __future__ import annotations

import io

import numpy as np

from tenonnx.extend import DType, TensorType, TypeMismatch, dtypes, limits, one_of, primitive, shapes
from tenonnx_extensions.checks import module
from tenonnx_standard.checking import numpy_rule

DOMAIN = "com.microsoft.extensions"

#: Formats for decoding, and for encoding.
_READ, _WRITTEN = ("JPEG", "PNG"), {"jpg": "JPEG", "jpeg": "JPEG", "png": "PNG"}


@primitive("DecodeImage", domain=DOMAIN)
def decode_image(raw_image, *, color_space="bgr"):
    """Decode a JPEG or PNG file, given as bytes, to uint8[height, width, 3]; ``color_space`` is "bgr" or "rgb".

    Raises ``TypeMismatch`` for invalid bytes, and ``LimitExceeded`` for an image that is too large.
    """


@primitive("EncodeImage", domain=DOMAIN)
def encode_image(image, *, format="jpg", color_space="bgr"):
    """Encode pixels, uint8[height, width, 3], to the bytes of a file; ``format`` is "jpg" or "png"."""


_COLORS = one_of(color_space=("bgr", "rgb"))
decode_image.requires(dtypes(raw_image="uint8"), shapes(raw_image="size"), _COLORS)
encode_image.requires(dtypes(image="uint8"), shapes(image="height width 3"), _COLORS)


@decode_image.type
def decode_image_type(raw_image, *, color_space):
    return TensorType(DType.uint8, (None, None, 3))


@encode_image.type
def encode_image_type(image, *, format, color_space):
    _check(encode_image, "format", format, tuple(_WRITTEN))
    return TensorType(DType.uint8, (None,))


def _check(op, name, given, known):
    if given not in known:
        raise TypeMismatch(f'{op.title}: unknown "{name}"', given=str(given), available=", ".join(known))


@numpy_rule(decode_image)
def decode_image_numpy(raw_image, *, color_space):
    image = module("PIL.Image", "images")
    try:
        opened = image.open(io.BytesIO(raw_image.tobytes()), formats=_READ)
        limits.sized((opened.height, opened.width, 4), f"the pixels of {decode_image.title}")
        pixels = np.asarray(opened.convert("RGB"))
    except (OSError, SyntaxError, ValueError, image.DecompressionBombError) as error:
        raise TypeMismatch(f"{decode_image.title}: cannot decode the bytes as JPEG or PNG", given=str(error)) from error
    return np.ascontiguousarray(pixels if color_space == "rgb" else pixels[..., ::-1])


@numpy_rule(encode_image)
def encode_image_numpy(image, *, format, color_space):
    if not image.size or image.ndim != 3 or image.shape[2] != 3:  # the shape may be unknown before the run
        raise TypeMismatch(f"{encode_image.title}: the image has no pixels of three channels", given=str(image.shape))
    pixels = np.ascontiguousarray(image if color_space == "rgb" else image[..., ::-1])
    stream = io.BytesIO()
    module("PIL.Image", "images").fromarray(pixels).save(stream, _WRITTEN[format])
    return np.frombuffer(stream.getvalue(), np.uint8).copy()
