"""The example iris classifiers on numpy, on onnxruntime, and in plain ``ai.onnx``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import tenonnx as tx
from tenonnx.formats.onnx.writer import to_model

IRIS = Path(__file__).parents[2] / "examples" / "iris"
MODELS = [("iris.onnx", "samples.npz"), ("tree.onnx", "samples-tree.npz")]


def feeds_of(samples):
    return {"measurements": np.load(IRIS / samples)["measurements"]}


@pytest.mark.parametrize(("model", "samples"), MODELS)
def test_equals_onnxruntime(model, samples):
    feeds = feeds_of(samples)
    session = onnxruntime.InferenceSession(IRIS / model, providers=["CPUExecutionProvider"])
    labels, maps = session.run(None, feeds)
    actual_labels, actual_maps = tx.load(IRIS / model).run(feeds, backend="numpy").values()
    assert actual_labels.tolist() == list(labels)
    assert [list(row) for row in actual_maps] == [list(row) for row in maps]
    for actual, expected in zip(actual_maps, maps, strict=True):
        np.testing.assert_allclose(list(actual.values()), list(expected.values()), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("model", "samples"), MODELS)
@pytest.mark.parametrize("opset", [9, 11, 13, 21])
def test_plain_operators(model, samples, opset):
    """Except for the map output, the lowered models have only ops of ai.onnx."""
    graph = tx.load(IRIS / model)
    zip_map = next(node for node in graph.nodes if node.op_type == "ZipMap")
    label, probabilities = graph.outputs[0].name, zip_map.inputs[0].name
    cut = tx.extract(graph, [v.name for v in graph.inputs], [label, probabilities])
    moved = tx.retarget(cut, opset, domains=["ai.onnx"])
    session = onnxruntime.InferenceSession(to_model(moved).SerializeToString(), providers=["CPUExecutionProvider"])
    feeds = feeds_of(samples)
    expected = onnxruntime.InferenceSession(IRIS / model, providers=["CPUExecutionProvider"]).run(None, feeds)
    labels, scores = session.run([label, probabilities], feeds)
    assert list(labels) == list(expected[0])
    np.testing.assert_allclose(scores, [list(row.values()) for row in expected[1]], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("model", "samples"), MODELS)
def test_maps_have_no_tensor_form(model, samples):
    with pytest.raises(tx.TenonnxError, match=r"ai\.onnx\.ml::ZipMap"):
        tx.retarget(tx.load(IRIS / model), 21, domains=["ai.onnx"])
