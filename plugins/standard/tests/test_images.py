"""ImageDecoder with and without the library that reads files."""

import io
import sys

import numpy as np
import pytest

from tenonnx.errors import UnsupportedOp
from tenonnx_standard.image import image_decoder

PIXELS = np.arange(24, dtype=np.uint8).reshape(2, 4, 3) * 10


def test_a_file_is_read_by_pillow():
    image = pytest.importorskip("PIL.Image")
    stream = io.BytesIO()
    image.fromarray(PIXELS).save(stream, "png")
    data = np.frombuffer(stream.getvalue(), np.uint8)
    np.testing.assert_array_equal(image_decoder(data), PIXELS)
    np.testing.assert_array_equal(image_decoder(data, pixel_format="BGR"), PIXELS[:, :, ::-1])
    assert image_decoder(data[:40]).shape == (0, 0, 3)


def test_without_pillow_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(UnsupportedOp) as caught:
        image_decoder(np.frombuffer(b"\x89PNG", np.uint8))
    assert "tenonnx-standard[image]" in str(caught.value)
    portable = b"P6 4 2 255\n" + PIXELS.tobytes()
    np.testing.assert_array_equal(image_decoder(np.frombuffer(portable, np.uint8)), PIXELS)
