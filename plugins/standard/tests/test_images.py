"""Image decoding with and without Pillow, and enlarging."""

import io
import sys

import numpy as np
import pytest

from tenonnx import limits
from tenonnx.errors import LimitExceeded, TypeMismatch, UnsupportedOp
from tenonnx_standard.image import image_decoder
from tenonnx_standard.upsampling import upsample_2d

PIXELS = np.arange(24, dtype=np.uint8).reshape(2, 4, 3) * 10


def test_a_file_is_read_by_pillow():
    image = pytest.importorskip("PIL.Image")
    stream = io.BytesIO()
    image.fromarray(PIXELS).save(stream, "png")
    data = np.frombuffer(stream.getvalue(), np.uint8)
    np.testing.assert_array_equal(image_decoder(data), PIXELS)
    np.testing.assert_array_equal(image_decoder(data, pixel_format="BGR"), PIXELS[:, :, ::-1])
    assert image_decoder(data[:40]).shape == (0, 0, 3)


def encoded(image, kind):
    stream = io.BytesIO()
    image.fromarray(PIXELS).save(stream, kind)
    return np.frombuffer(stream.getvalue(), np.uint8)


def test_pixels_keep_to_the_limit_before_they_are_decoded(monkeypatch):
    image = pytest.importorskip("PIL.Image")
    data = encoded(image, "png")
    monkeypatch.setattr(image.Image, "load", lambda *_: pytest.fail("decoded"))
    with limits.override(elements=23), pytest.raises(LimitExceeded, match="ImageDecoder"):
        image_decoder(data)


def test_an_image_that_pillow_fears_is_refused_as_ours(monkeypatch):
    image = pytest.importorskip("PIL.Image")
    data = encoded(image, "png")
    monkeypatch.setattr(image, "MAX_IMAGE_PIXELS", 2)
    with pytest.raises(LimitExceeded, match="Pillow refused an image of so many pixels") as caught:
        image_decoder(data)
    assert "PIL.Image.MAX_IMAGE_PIXELS" in str(caught.value)


def test_a_format_that_onnx_does_not_name_is_not_opened(monkeypatch):
    """PostScript would start a program."""
    image = pytest.importorskip("PIL.Image")
    data = encoded(image, "eps")
    monkeypatch.setattr("PIL.EpsImagePlugin.Ghostscript", lambda *_, **__: pytest.fail("started"))
    assert image_decoder(data).shape == (0, 0, 3)


def test_without_pillow_the_error_names_the_package_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(UnsupportedOp) as caught:
        image_decoder(np.frombuffer(b"\x89PNG", np.uint8))
    assert "tenonnx-standard[image]" in str(caught.value)
    portable = b"P6 4 2 255\n" + PIXELS.tobytes()
    np.testing.assert_array_equal(image_decoder(np.frombuffer(portable, np.uint8)), PIXELS)


@pytest.mark.parametrize(
    "scales", [{"height_scale": -1.0, "width_scale": 1.0}, {"height_scale": 2.0, "width_scale": 0.0}]
)
def test_an_image_is_enlarged_by_numbers_above_zero(scales):
    with pytest.raises(TypeMismatch, match="is not greater than 0"):
        upsample_2d(np.ones((1, 1, 2, 2), np.float32), **scales)
