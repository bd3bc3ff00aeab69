"""Trained variables: patterns of names, constants, and frozen layers."""

import numpy as np
import pytest
from trained_models import X, Y, contents, digits, dropping, linear, normalized

import tenonnx as tx
import tenonnx_standard as ops
import tenonnx_training as tt
from tenonnx.errors import InvalidCall, NotDifferentiable
from tenonnx_standard.batch_norm import batch_normalization
from tenonnx_training import step_graph

STATISTICS = {f"block{k}.norm.{name}" for k in (1, 2) for name in ("mean", "variance")}


def moved(trainable, **options):
    """The names of the variables of the digits network that change in a step with ``trainable``."""
    graph, images, labels = digits()
    before = contents(graph)
    step = tt.TrainingStep(graph, "softmax_cross_entropy", trainable=trainable, backend="numpy", **options)
    step({"images": images[:32], "labels": labels[:32]})
    after = contents(step.write_back())
    return {name for name, array in before.items() if not np.array_equal(array, after[name])}


def test_statistics_of_frozen_layers_stay():
    assert moved("classifier.*") == {"classifier.weight", "classifier.bias"}
    assert moved("block1.norm.shift") == {"block1.norm.shift", "block1.norm.mean", "block1.norm.variance"}
    assert moved("!block2.*") & STATISTICS == {"block1.norm.mean", "block1.norm.variance"}


def test_statistics_follow_by_default_unless_frozen():
    everything = moved(None)
    assert everything > STATISTICS
    assert moved(None, frozen_statistics=True) == everything - STATISTICS


def test_a_frozen_layer_uses_its_running_statistics():
    """Even if the file is in training mode."""
    graph = normalized()
    w = graph.variable("w", np.ones((2, 1), np.float32))
    inputs = {v.name: v for v in graph.values()}
    names = ("scale", "shift", "mean", "variance")
    y, *_ = batch_normalization(inputs["x"], *(inputs[n] for n in names), training_mode=1, _outputs=3)
    del graph.outputs[:]
    graph.output("z", y @ w)
    step = tt.TrainingStep(graph, "mean_squared_error", trainable="w", backend="numpy")
    expected = np.mean((((X - 0.5) / np.sqrt(2 + 1e-5)).sum(1, keepdims=True) - Y) ** 2)
    assert step({"x": X, "labels": Y})["loss"] == pytest.approx(expected, rel=1e-5)


def test_no_gradient_changes_ratios_and_statistics():
    assert "dropout.ratio" not in moved("*")
    step = tt.TrainingStep(dropping(), "mean_squared_error", trainable="*")
    assert step._step_graph.parameters == ["w"]
    with pytest.raises(InvalidCall, match="gradients can change") as caught:
        tt.TrainingStep(dropping(), "mean_squared_error", trainable="ratio")
    assert caught.value.available == "w"
    assert tt.TrainingStep(dropping(), "mean_squared_error", trainable="!ratio")._step_graph.parameters == ["w"]


@pytest.mark.parametrize("none", [[], ()])
def test_an_empty_list_trains_nothing(none):
    with pytest.raises(InvalidCall, match="no variable to train"):
        tt.fit(linear(), (X, Y), loss="mean_squared_error", trainable=none)


def chosen_by_hand(steps):
    """A head after ``steps`` layers, whose results go through a sequence at a fed position."""
    graph = tx.Graph("chosen", opsets={"ai.onnx": 17})
    x, place = graph.input("x", "float32", ("batch", 2)), graph.input("place", "int64", ())
    result = x
    for step in range(steps):
        result = result @ graph.variable(f"layer{step}", np.eye(2, dtype=np.float32))
    chosen = ops.sequence_at(ops.sequence_construct(result, x), place)
    head = graph.variable("head", np.ones((2, 1), np.float32))
    graph.output("z", x @ head + ops.reduce_sum(chosen, [1]))
    return graph


def test_variables_without_a_gradient_are_found_immediately(monkeypatch):
    """Independently of the number of layers before a non-differentiable op."""
    tried = []
    plain = step_graph.tx.grad
    monkeypatch.setattr(step_graph.tx, "grad", lambda *a, **k: (tried.append(1), plain(*a, **k))[1], raising=False)
    made = tt.TrainingStep(chosen_by_hand(30), "mean_squared_error")._step_graph
    assert made.parameters == ["head"]
    assert any("does not depend on them: layer0, layer1" in note for note in made.notes)
    assert len(tried) == 2
    with pytest.raises(NotDifferentiable, match="SequenceAt"):
        tt.TrainingStep(chosen_by_hand(2), "mean_squared_error", trainable="layer*")
