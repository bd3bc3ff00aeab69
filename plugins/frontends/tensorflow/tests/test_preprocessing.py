"""Preprocessing layers of Keras as a graph in front of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import tenonnx as tx
from tenonnx_cli import main

L = keras.layers


def images(*size: int) -> Any:
    return np.random.default_rng(0).integers(0, 256, (2, *size, 3)).astype(np.float32)


def test_a_file_of_preprocessing_layers_is_composed_with_a_model(tmp_path: Path) -> None:
    keras.utils.set_random_seed(0)
    processing = keras.Sequential(
        [
            keras.Input((None, None, 3), name="images"),
            L.Resizing(24, 18, crop_to_aspect_ratio=True),
            L.CenterCrop(16, 16),
            L.Rescaling(1 / 127.5, offset=-1),
            L.Normalization(mean=[0.1, 0.2, 0.3], variance=[1.0, 2.0, 3.0]),
        ]
    )
    model = keras.Sequential([keras.Input((16, 16, 3)), L.Conv2D(4, 3), L.GlobalAveragePooling2D()])
    names = [str(tmp_path / name) for name in ("processing.keras", "model.keras", "whole.onnx")]
    processing.save(names[0])
    model.save(names[1])
    assert main(["compose", *names[:2], "-o", names[2]]) == 0
    whole = tx.load(names[2])
    for size in ((16, 16), (33, 50), (64, 20), (15, 90)):
        (result,) = whole.run({"images": images(*size)}).values()
        np.testing.assert_allclose(result, model(processing(images(*size))), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "layer",
    [
        L.Resizing(9, 12, interpolation="nearest"),
        L.Resizing(9, 12, interpolation="bicubic"),
        L.Resizing(9, 12, antialias=True),
        L.Resizing(9, 12, pad_to_aspect_ratio=True, fill_value=7.0),
        L.Normalization(mean=[1.0, 2.0, 3.0], variance=[4.0, 5.0, 6.0], invert=True),
        L.RandomFlip("horizontal"),
        L.RandomContrast(0.2),
    ],
    ids=lambda layer: str(layer.name),
)
def test_layers_equal_keras_at_any_size(layer: Any) -> None:
    processing = keras.Sequential([keras.Input((None, None, 3), name="images"), layer])
    graph = tx.load(processing)
    for size in ((9, 12), (20, 8), (31, 40), (27, 80)):
        (result,) = graph.run({"images": images(*size)}).values()
        np.testing.assert_allclose(result, processing(images(*size), training=False), rtol=1e-4, atol=1e-3)
