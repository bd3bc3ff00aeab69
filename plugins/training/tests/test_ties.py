"""Initializers that an exporter merged: all their names, and separate ones where that is asked for."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from trained_models import X, Y, contents

import tenonnx as tx
import tenonnx_training as tt
from tenonnx.errors import InvalidCall
from tenonnx_cli import main

FOLDER = Path(__file__).parent / "pytorch"


@pytest.mark.parametrize("untie", [False, True])
@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
def test_a_net_of_merged_initializers_trains_as_in_pytorch(untie, backend):
    """Of running variances PyTorch takes those of the sample, ONNX those of the population."""
    data, graph = np.load(FOLDER / "merged.npz"), tx.load(FOLDER / "merged.onnx")
    step = tt.TrainingStep(graph, "softmax_cross_entropy", tt.Momentum(0.05), untie=untie, backend=backend)
    steps, batch, _, *sides = data["x"].shape
    batches = zip(data["x"], data["labels"], strict=True)
    losses = [step({"x": x, "labels": labels})["loss"] for x, labels in batches]
    np.testing.assert_allclose(losses, data["losses"], rtol=1e-4)
    held, left, samples = contents(step.write_back()), 0.9**steps, batch * int(np.prod(sides))
    names = [name for name in data.files if name not in ("x", "labels", "losses")]
    assert {*held} == {*names}
    for name in names:
        expected = data[name]
        if name.endswith("running_var"):
            expected = (expected - left) * (samples - 1) / samples + left
        np.testing.assert_allclose(held[name], expected, rtol=2e-5, atol=2e-6, err_msg=name)


def moved(trainable, **options):
    graph = tx.load(FOLDER / "merged.onnx")
    step = tt.TrainingStep(graph, "softmax_cross_entropy", trainable=trainable, backend="numpy", **options)
    before = contents(graph)
    step({"x": np.ones((2, 1, 6, 6), np.float32), "labels": np.int64([1, 2])})
    after = contents(step.write_back())
    return {name for name in before if not np.array_equal(before[name], after[name])}, step.notes


def test_a_further_name_is_trained_alone_and_its_layer_is_not_frozen():
    changed, notes = moved("norms.2.*")
    assert changed == {f"norms.2.{name}" for name in ("weight", "bias", "running_mean", "running_var")}
    assert any("running statistics shared" in note and "norms.1.running_mean" in note for note in notes)


def twice():
    """``x @ w + b`` of which ``c`` is another name of ``b``, after it was added once."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="/first/MatMul"),
        helper.make_node("Identity", ["b"], ["c"]),
        helper.make_node("Add", ["h", "b"], ["i"], name="/first/Add"),
        helper.make_node("Add", ["i", "c"], ["y"], name="/second/Add"),
    ]
    held = {"w": np.float32([[1], [2]]), "b": np.float32([0.5])}
    graph = helper.make_graph(
        nodes,
        "twice",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [None, 2])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [None, 1])],
        [onnx.numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def trained(trainable, **options):
    graph = tx.load(twice())
    step = tt.TrainingStep(graph, "mean_squared_error", tt.SGD(0.1), trainable=trainable, backend="numpy", **options)
    step({"x": X, "labels": Y})
    return contents(step.write_back()), step.notes, step._made.parameters


def test_patterns_see_all_names_and_notes_say_what_is_tied():
    tied, notes, parameters = trained("c")
    assert parameters == ["b"]
    assert any("b is also c" in note and "--untie" in note for note in notes)
    apart, notes, parameters = trained("c", untie=True)
    assert parameters == ["c"]
    assert not any("tied" in note for note in notes)
    assert apart["b"] == np.float32(0.5)
    assert tied["b"] - 0.5 == pytest.approx(2 * (apart["c"] - 0.5))


@pytest.mark.parametrize("pattern", ["first.*", "/first/*", "*MatMul"])
def test_patterns_match_the_path_of_a_node_that_uses_a_variable(pattern):
    assert trained(pattern, untie=True)[2] == (["w"] if "MatMul" in pattern else ["w", "b"])
    with pytest.raises(InvalidCall, match=r'trainable "third\.\*" must match') as caught:
        trained("third.*")
    assert caught.value.available == "w, b, c"


def test_the_command_line_unties(tmp_path):
    onnx.save(twice(), tmp_path / "twice.onnx")
    np.savez(tmp_path / "data.npz", x=X, y=Y)
    tuned = tmp_path / "tuned.onnx"
    common = [str(tmp_path / "twice.onnx"), "--data", str(tmp_path / "data.npz"), "--loss", "mean_squared_error"]
    assert main(["train", *common, "--trainable", "c", "--untie", "-o", str(tuned)]) == 0
    assert [tensor.name for tensor in onnx.load(tuned).graph.initializer] == ["w", "b", "c"]
    onnx.checker.check_model(onnx.load(tuned), full_check=True)
