"""Running statistics: unbiased as in PyTorch, or biased as in ONNX."""

import io

import numpy as np
import onnx
import pytest
from onnx import helper

import tenonnx as tx
import tenonnx_standard as ops
import tenonnx_training as tt
from tenonnx_cli import main

RANDOM = np.random.default_rng(0)


def normed(opset, shape, momentum=0.8):
    graph = tx.Graph(opsets={"ai.onnx": opset})
    x = graph.input("x", "float32", shape)
    held = {"scale": [1.0, 2, 3], "shift": [0.0, 1, 2], "mean": [0.5, -1, 0], "variance": [1.0, 2, 0.5]}
    values = [graph.variable(name, np.float32(array)) for name, array in held.items()]
    graph.output("y", ops.batch_normalization(x, *values, momentum=momentum))
    stream = io.BytesIO()
    tx.export(graph, stream, opset_version=opset)
    return tx.load(stream.getvalue())


def batch(sizes):
    return {"x": RANDOM.normal(size=sizes).astype(np.float32), "labels": RANDOM.normal(size=sizes).astype(np.float32)}


@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
@pytest.mark.parametrize("unbiased", [False, True])
@pytest.mark.parametrize(("opset", "sizes"), [(7, (4, 3, 2, 2)), (9, (2, 3, 5)), (15, (6, 3)), (15, (2, 3, 2, 3, 2))])
@pytest.mark.parametrize("named", [False, True], ids=["known", "symbolic"])
def test_statistics_follow_those_of_batches(opset, sizes, unbiased, named, backend):
    shape = ("batch", 3, *(f"size{k}" for k in range(len(sizes) - 2))) if named else sizes
    graph = normed(opset, shape)
    how = {} if unbiased else {"unbiased_statistics": False}
    step = tt.TrainingStep(graph, "mean_squared_error", tt.SGD(0.0), backend=backend, **how)
    mean, variance = np.float64([0.5, -1, 0]), np.float64([1, 2, 0.5])
    for _ in range(3):
        fed = batch(sizes)
        step(fed)
        axes = (0, *range(2, len(sizes)))
        mean = 0.8 * mean + 0.2 * fed["x"].mean(axes, dtype=np.float64)
        variance = 0.8 * variance + 0.2 * fed["x"].var(axes, dtype=np.float64, ddof=int(unbiased))
    step.write_back()
    np.testing.assert_allclose(graph["mean"].data.array(), mean, rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(graph["variance"].data.array(), variance, rtol=2e-5)


def test_one_element_causes_no_division_by_zero():
    graph = normed(15, ("batch", 3))
    step = tt.TrainingStep(graph, "mean_squared_error", tt.SGD(0.0), unbiased_statistics=True, backend="numpy")
    step(batch((1, 3)))
    step.write_back()
    np.testing.assert_allclose(graph["variance"].data.array(), np.float32([0.8, 1.6, 0.4]), rtol=1e-5)


def test_files_remember_it():
    graph = normed(15, ("batch", 3))
    step = tt.TrainingStep(graph, "mean_squared_error", tt.SGD(0.0), unbiased_statistics=False)
    step(batch((4, 3)))
    again = tt.TrainingStep(step.write_back(), "mean_squared_error")
    assert not again.recipe.unbiased_statistics


def test_the_command_has_it(tmp_path):
    tx.export(normed(15, ("batch", 3)), tmp_path / "model.onnx")
    data = batch((8, 3))
    np.savez(tmp_path / "data.npz", **data)
    result = {}
    for flag in ("--unbiased-statistics", "--no-unbiased-statistics"):
        out = tmp_path / "tuned.onnx"
        line = ["train", tmp_path / "model.onnx", "--data", tmp_path / "data.npz", "--loss", "mean_squared_error"]
        assert main([*map(str, line), "--lr", "0.0", "--batch-size", "8", flag, "-o", str(out)]) == 0
        result[flag] = tx.load(out)["variance"].data.array()
    before, biased = np.float32([1, 2, 0.5]), data["x"].var(0)
    np.testing.assert_allclose(result["--no-unbiased-statistics"], 0.8 * before + 0.2 * biased, rtol=1e-4)
    np.testing.assert_allclose(result["--unbiased-statistics"], 0.8 * before + 0.2 * biased * 8 / 7, rtol=1e-4)


def in_training(momentum, noted=None):
    """A BatchNormalization exported in training mode, with the momentum of its module in the metadata."""
    node = helper.make_node(
        "BatchNormalization", ["x", "s", "b", "m", "v"], ["y", "y_mean", "y_var"], training_mode=1, momentum=momentum
    )
    if noted is not None:
        node.metadata_props.add(key="tenonnx.momentum", value=repr(noted))
    held = {"s": np.ones(2), "b": np.zeros(2), "m": np.zeros(2), "v": np.ones(2)}
    graph = helper.make_graph(
        [node],
        "in_training",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 2])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 2])],
        [onnx.numpy_helper.from_array(array.astype(np.float32), name) for name, array in held.items()],
    )
    return tx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10))


@pytest.mark.parametrize(("noted", "moved"), [(0.75, 0.25), (None, 0.0)])
def test_statistics_move_by_the_momentum_of_the_module_where_the_node_has_none(noted, moved):
    graph = in_training(1.0, noted)
    x = np.float32([[1, 2], [3, 4]])
    step = tt.TrainingStep(graph, "mean_squared_error", tt.SGD(0.0), backend="numpy")
    step({"x": x, "labels": x})
    np.testing.assert_allclose(np.asarray(step.write_back()["m"]), moved * x.mean(axis=0))
    assert any("has the momentum 1.0" in note for note in step.notes) == (noted is None)
    (node,) = graph.nodes
    assert node.attributes["momentum"] == (noted or 1.0)
