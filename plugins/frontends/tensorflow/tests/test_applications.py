"""keras.applications with random weights on small images: equal to Keras at two batch sizes."""

from __future__ import annotations

import io
from typing import Any

import keras
import numpy as np
import pytest

import tenonnx as tx

#: By name, the image size, constructor options, and the maximum number of nodes.
NETWORKS: dict[str, tuple[int, dict[str, Any], int]] = {
    "MobileNetV2": (32, {"alpha": 0.35}, 114),
    "EfficientNetB0": (32, {}, 243),
    "ResNet50": (32, {}, 126),
    "DenseNet121": (32, {}, 434),
    "InceptionV3": (75, {}, 221),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_network(name: str) -> None:
    size, options, nodes = NETWORKS[name]
    keras.utils.set_random_seed(0)
    model = getattr(keras.applications, name)(weights=None, input_shape=(size, size, 3), classes=10, **options)
    _as_trained(model)
    graph = tx.load(model, verify=1e-4)
    assert [str(value.type) for value in (*graph.inputs, *graph.outputs)] == [
        f"float32[batch, {size}, {size}, 3]",
        "float32[batch, 10]",
    ]
    assert len(graph.nodes) <= nodes
    assert {value.name for value in graph.variables} >= {
        f"{model.layers[-1].name}/{kind}" for kind in ("kernel", "bias")
    }
    file = io.BytesIO()
    tx.export(graph, file, opset_version=13)
    images = np.random.default_rng(1).normal(size=(2, size, size, 3)).astype(np.float32)
    (result,) = tx.load(file.getvalue()).run({graph.inputs[0].name: images}).values()
    np.testing.assert_allclose(result, model(images), rtol=1e-3, atol=1e-5)


def _as_trained(model: Any) -> None:
    """Random statistics, as after training, so that no normalization is the identity."""
    random = np.random.default_rng(0)
    for layer in model.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.set_weights([w + np.abs(random.normal(size=w.shape)) * 0.1 for w in layer.get_weights()])
