"""What is trained: patterns of names, what gradients never change, and frozen layers."""

import numpy as np
import pytest
from trained_models import X, Y, contents, digits, dropping, linear, normalised

import tenonnx_training as tt
from tenonnx.errors import InvalidCall
from tenonnx_standard.batch_norm import batch_normalization

STATISTICS = {f"block{k}.norm.{name}" for k in (1, 2) for name in ("mean", "variance")}


def moved(trainable, **options):
    """The names of the variables of the digits network that a step with ``trainable`` changes."""
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


def test_a_frozen_layer_goes_by_its_running_statistics():
    """Also where the file says that it is in training."""
    graph = normalised()
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
    assert step._made.parameters == ["w"]
    with pytest.raises(InvalidCall, match="gradients can change") as caught:
        tt.TrainingStep(dropping(), "mean_squared_error", trainable="ratio")
    assert caught.value.available == "w"
    assert tt.TrainingStep(dropping(), "mean_squared_error", trainable="!ratio")._made.parameters == ["w"]


@pytest.mark.parametrize("none", [[], ()])
def test_an_empty_list_trains_nothing(none):
    with pytest.raises(InvalidCall, match="there must be a variable to train"):
        tt.fit(linear(), (X, Y), loss="mean_squared_error", trainable=none)
