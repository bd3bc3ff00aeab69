"""Cases of image decoding and encoding."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_extensions.cases.library import kernel
from tenonnx_extensions.images import DOMAIN, decode_image, encode_image
from tenonnx_testing import Gap, call, cases

SPACES = ["bgr", "rgb"]


def pixels(draw, channels=3):
    seed, height, width = (draw(st.integers(1, 9)) for _ in range(3))
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels)).astype(np.uint8)


@cases(decode_image, gradient=False, reference=kernel("DecodeImage", domain=DOMAIN))
def decode_image_cases(draw):
    """Grayscale JPEG: unlike Pillow, the library does not interpolate subsampled colors."""
    is_png = draw(st.booleans())
    image = pixels(draw) if is_png else np.repeat(pixels(draw, 1), 3, axis=2)
    return call(encode_image(image, format="png" if is_png else "jpg"), color_space=draw(st.sampled_from(SPACES)))


BYTES = Gap("expected", "the library's encoder writes other bytes, which decode to the same pixels")


@cases(encode_image, gradient=False, gaps=[BYTES], reference=kernel("EncodeImage", domain=DOMAIN))
def encode_image_cases(draw):
    return call(pixels(draw), format=draw(st.sampled_from(["jpg", "png"])), color_space=draw(st.sampled_from(SPACES)))
