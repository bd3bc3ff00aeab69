"""Recipes of training steps against PyTorch."""

from pathlib import Path

import numpy as np
import pytest
from trained_models import X, Y, contents, linear

import tenonnx as tx
import tenonnx_training as tt
from tenonnx.errors import InvalidCall
from tenonnx_cli import main

FOLDER = Path(__file__).parent / "pytorch"
HEAD = [tt.Group("4.*", rate=10.0, weight_decay=0.0)]

#: Optimizer, recipe, and tolerance of losses relative to PyTorch.
RECIPES = {
    "groups": (tt.AdamW(3e-3, weight_decay=0.1), {"groups": HEAD}, 1e-4),
    "clip_value": (tt.SGD(0.5), {"clip_value": 0.01}, 1e-4),
    "clip_norm": (tt.SGD(0.5), {"clip_norm": 0.1}, 1e-4),
    "accumulate": (tt.Adam(1e-2), {"accumulate": 4}, 1e-4),
    "average": (tt.SGD(0.1), {"average": 0.9}, 1e-4),
    "rmsprop": (tt.RMSprop(3e-3), {}, 1e-4),
    "bfloat16": (tt.Adam(1e-2), {"precision": "bfloat16"}, 3e-2),
    "float16": (tt.Adam(1e-2), {"precision": "float16"}, 5e-3),
}


@pytest.fixture(params=["numpy", "onnxruntime"])
def backend(request):
    return request.param


@pytest.mark.parametrize("recipe", RECIPES)
def test_losses_are_those_of_pytorch(recipe, backend):
    optimizer, options, tolerance = RECIPES[recipe]
    data, expected = np.load(FOLDER / "mlp.npz"), np.load(FOLDER / "recipes.npz")
    graph = tx.load(FOLDER / "mlp.onnx")
    step = tt.TrainingStep(graph, "softmax_cross_entropy", optimizer, backend=backend, **options)
    batches = zip(data["x"], data["labels"], strict=True)
    losses = [step({"x": x, "labels": labels})["loss"] for x, labels in batches]
    np.testing.assert_allclose(losses, expected[recipe], rtol=tolerance)
    if recipe == "average":
        averaged = contents(tt.averaged(step.write_back()))
        for name in contents(graph):
            np.testing.assert_allclose(averaged[name], expected[f"average/{name}"], rtol=1e-4, atol=1e-6)


def test_accumulation_is_one_larger_batch(backend):
    parts = [(X[k : k + 1], Y[k : k + 1]) for k in range(4)]
    graphs = [linear(), linear()]
    options = {"loss": "mean_squared_error", "optimizer": tt.Adam(0.1), "epochs": 3, "backend": backend}
    tt.fit(graphs[0], parts, accumulate=4, clip_norm=1.0, **options)
    tt.fit(graphs[1], [(X, Y)], clip_norm=1.0, **options)
    for name, array in contents(graphs[0]).items():
        np.testing.assert_allclose(array, contents(graphs[1])[name], rtol=1e-6)


def test_training_resumes_within_an_accumulation():
    options = {"accumulate": 2, "average": 0.9, "groups": [tt.Group("w", rate=2.0)], "backend": "numpy"}
    whole, parts = linear(), linear()
    batches = [{"x": X[k : k + 1], "labels": Y[k : k + 1]} for k in range(4)]
    step = tt.TrainingStep(whole, "mean_squared_error", tt.Adam(0.1), **options)
    losses = [step(batch)["loss"] for batch in batches]
    first = tt.TrainingStep(parts, "mean_squared_error", tt.Adam(0.1), **options)
    result = [first(batch)["loss"] for batch in batches[:1]]
    second = tt.TrainingStep(first.write_back(), backend="numpy")
    assert second.recipe == step.recipe
    assert result + [second(batch)["loss"] for batch in batches[1:]] == losses
    for name, array in contents(step.write_back()).items():
        np.testing.assert_array_equal(array, contents(second.write_back())[name])


@pytest.mark.parametrize("accumulate", [3, 10])
def test_an_epoch_ends_with_an_update_of_what_was_gathered(backend, accumulate):
    """With accumulate=3, four batches make two updates; an epoch with fewer batches makes one."""
    batches = [(X[k : k + 1], Y[k : k + 1]) for k in range(4)]
    merged = [(X[:3], Y[:3]), (X[3:], Y[3:])] if accumulate == 3 else [(X, Y)]
    counts = "2 epochs of 4 batches: 4 updates" if accumulate == 3 else "2 epochs of 4 batches: 2 updates"
    graphs = [linear(), linear()]
    options = {"loss": "mean_squared_error", "optimizer": tt.Adam(0.1), "epochs": 2, "backend": backend}
    history = tt.fit(graphs[0], batches, accumulate=accumulate, **options)
    tt.fit(graphs[1], merged, **options)
    assert any(counts in note for note in history.notes)
    for name, array in contents(graphs[0]).items():
        np.testing.assert_allclose(array, contents(graphs[1])[name], rtol=1e-6)


def test_the_schedule_of_a_command_ends_with_the_run(tmp_path):
    tx.export(linear(), tmp_path / "m.onnx")
    np.savez(tmp_path / "data.npz", x=np.tile(X, (10, 1)), labels=np.tile(Y, (10, 1)))
    kept = str(tmp_path / "c.safetensors")
    files = [str(tmp_path / "m.onnx"), "--data", str(tmp_path / "data.npz"), "--checkpoint", kept]
    how = ["--loss", "mean_squared_error", "--lr", "0.1", "--schedule", "cosine", "--batch-size", "4", "--epochs", "3"]
    assert main(["train", *files, *how, "--accumulate", "4"]) == 0
    state = tx.load(kept).training_state
    assert state.settings["optimizer"]["learning_rate"]["steps"] == 3 * 3
    assert state.tensors["training__updates"].array() == 3 * 3


def test_schedules_count_updates():
    step = tt.TrainingStep(linear(), "mean_squared_error", tt.SGD(lambda number: 0.1 * (number == 1)), accumulate=2)
    before = contents(step.write_back())
    for _ in range(2):
        step({"x": X, "labels": Y})
    np.testing.assert_array_equal(contents(step.write_back())["w"], before["w"])
    for _ in range(2):
        step({"x": X, "labels": Y})
    assert np.any(contents(step.write_back())["w"] != before["w"])


def test_an_update_that_float16_does_not_bear_is_left_out(backend):
    graph = linear()
    step = tt.TrainingStep(graph, "mean_squared_error", tt.Adam(0.1), precision="float16", backend=backend)
    before = contents(graph)
    step({"x": 100 * X, "labels": -500 * Y})
    held = step.program.state
    assert held["training__scale"] == 2.0**15
    assert held["training__updates"] == 0
    np.testing.assert_array_equal(held["w"], before["w"])
    for _ in range(12):
        step({"x": X, "labels": Y})
    assert held["training__updates"] > 0
    assert np.any(held["w"] != before["w"])
    assert all(np.isfinite(array).all() for array in contents(step.write_back()).values())


def test_validation_is_that_of_the_average():
    graph = linear()
    step = tt.TrainingStep(graph, "mean_squared_error", tt.SGD(0.1), average=0.5, backend="numpy")
    batch = {"x": X, "labels": Y}
    for _ in range(3):
        step(batch)
    averaged = tt.averaged(step.write_back())
    y = averaged.run({"x": X}, backend="numpy")["y"]
    assert step.evaluate(batch)["loss"] == pytest.approx(np.mean((y - Y) ** 2), rel=1e-5)
    with pytest.raises(InvalidCall, match="moving average"):
        tt.averaged(linear())


def lion(w, g, m, rate, decay, t):
    return w * (1 - rate * decay) - rate * np.sign(0.9 * m["m"] + 0.1 * g), {"m": 0.99 * m["m"] + 0.01 * g}


def lamb(w, g, m, rate, decay, t):
    mean, square = 0.9 * m["m"] + 0.1 * g, 0.999 * m["v"] + 0.001 * g * g
    along = mean / (1 - 0.9**t) / (np.sqrt(square / (1 - 0.999**t)) + 1e-6) + decay * w
    return w - rate * np.linalg.norm(w) / np.linalg.norm(along) * along, {"m": mean, "v": square}


@pytest.mark.parametrize(("optimizer", "update"), [(tt.Lion, lion), (tt.LAMB, lamb)])
def test_optimizers_that_pytorch_lacks(optimizer, update):
    graph = linear("float64")
    step = tt.TrainingStep(
        graph, "mean_squared_error", optimizer(0.05, weight_decay=0.1), trainable="w", backend="numpy"
    )
    x, y, w = X.astype(float), Y.astype(float), contents(graph)["w"]
    kept = {slot: np.zeros_like(w) for slot in optimizer.slots}
    for t in range(1, 6):
        step({"x": x, "labels": y})
        w, kept = update(w, 2 * x.T @ (x @ w + 0.5 - y) / 4, kept, 0.05, 0.1, t)
    np.testing.assert_allclose(contents(step.write_back())["w"], w, rtol=1e-7)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"clip_value": 0}, "clip_value is not a positive number"),
        ({"accumulate": 1.5}, "number of batches"),
        ({"accumulate": 10**40}, "number of batches"),
        ({"average": 1.0}, "from 0 to below 1"),
        ({"precision": "float8"}, "unknown precision"),
        ({"groups": ["w"]}, "list of Group"),
        ({"groups": [tt.Group("v")]}, 'group "v" matches no'),
    ],
)
def test_recipes_without_meaning(wrong, message):
    with pytest.raises(InvalidCall, match=message):
        tt.TrainingStep(linear(), "mean_squared_error", **wrong)
    with pytest.raises(InvalidCall, match="Group: rate"):
        tt.Group("*", rate=-1)
