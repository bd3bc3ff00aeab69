"""Options of ``tenonnx train``, and the files that it writes."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from trained_models import X, Y, contents, linear

import tenonnx as tx
import tenonnx_training as tt
from tenonnx_cli import main

FOLDER = Path(__file__).parent / "pytorch"


@pytest.fixture
def train(tmp_path, capsys):
    """Run ``tenonnx train`` on four rows for a linear model; returns the exit code and all output."""
    tx.export(linear(), tmp_path / "linear.onnx")
    np.savez(tmp_path / "rows.npz", x=X, y=Y, weight=np.float32([1, 2, 0, 1]))

    def run(*arguments):
        common = (tmp_path / "linear.onnx", "--data", tmp_path / "rows.npz", "--labels", "y", "--batch-size", 2)
        code = main(["train", *map(str, (*common, "--loss", "mean_squared_error", *arguments))])
        shown = capsys.readouterr()
        return code, shown.out + shown.err

    return run


RECIPES = [
    (["--accumulate", 2], {"accumulate": 2}),
    (["--precision", "bfloat16"], {"precision": "bfloat16"}),
    (["--clip-norm", 0.1], {"clip_norm": 0.1}),
    (["--clip-value", 0.1], {"clip_value": 0.1}),
    (["--average", 0.5], {"average": 0.5}),
    (
        ["--group", "b:rate=0", "--group", "*:weight_decay=0.1,rate=2"],
        {"groups": [tt.Group("b", 0), tt.Group("*", 2, 0.1)]},
    ),
    (["--sample-weights", "weight"], {"sample_weights": "weight"}),
]


@pytest.mark.parametrize(("flags", "options"), RECIPES)
def test_recipes_of_the_command_line_are_those_of_fit(train, tmp_path, flags, options):
    state = tmp_path / "state.safetensors"
    assert train(*flags, "--epochs", 3, "--checkpoint", state, "--backend", "numpy")[0] == 0
    graph, plain = linear(), linear()
    data = {"x": X, "labels": Y, "weight": np.float32([1, 2, 0, 1])}
    how = {"loss": "mean_squared_error", "batch_size": 2, "epochs": 3, "backend": "numpy"}
    tt.fit(graph, data if "weight" in flags else (X, Y), **how, **options)
    tt.fit(plain, (X, Y), **how)
    result, expected = contents(tx.load(state)), contents(graph)
    for name, array in expected.items():
        np.testing.assert_array_equal(result[name], array)
    kept = flags[0] == "--average"
    assert kept or any(np.any(array != contents(plain)[name]) for name, array in expected.items())


@pytest.mark.parametrize("text", ["w", "w:rate", "w:rate=x", "w:speed=1", ":rate=1"])
def test_invalid_groups(train, tmp_path, text):
    code, shown = train("--group", text, "-o", tmp_path / "tuned.onnx")
    assert code == 2
    assert "head.*:rate=10,weight_decay=0" in shown


def test_an_average_is_what_is_written_for_use(train, tmp_path):
    tuned, state, more = (tmp_path / name for name in ("tuned.onnx", "state.safetensors", "more.onnx"))
    rows = tmp_path / "rows.npz"
    how = ("--average", 0.5, "--optimizer", "sgd", "--validation", rows, "--json")
    code, shown = train(*how, "-o", tuned, "--checkpoint", state)
    assert code == 0
    result = tt.evaluate(tx.load(tuned), (X, Y), loss="mean_squared_error")["loss"]
    assert result == pytest.approx(json.loads(shown)["epochs"][0]["validation_loss"])
    assert np.any(contents(tx.load(tuned))["w"] != contents(tx.load(state))["w"])
    assert train("--resume", state, "--epochs", 0, "-o", tuned)[0] == 0
    assert tt.evaluate(tx.load(tuned), (X, Y), loss="mean_squared_error")["loss"] == result
    assert train(*how, "-o", more, "--include-training-state")[0] == 0
    np.testing.assert_array_equal(contents(tx.load(more))["w"], contents(tx.load(state))["w"])
    assert tt.averaged(tx.load(more)).training_state is None


def test_a_file_exported_in_training_mode_is_as_accurate_in_use_as_in_validation(tmp_path, capsys):
    """With training_mode=1 in the source, the tuned file uses running statistics, independently of the batch."""
    data = np.load(FOLDER / "cnn.npz")
    x, labels = data["x"].reshape(-1, 1, 8, 8), data["labels"].reshape(-1)
    np.savez(tmp_path / "train.npz", x=x, labels=labels)
    test, tuned = tmp_path / "test.npz", tmp_path / "tuned.onnx"
    np.savez(test, x=x[:128], labels=labels[:128])
    exported = onnx.load(FOLDER / "cnn.onnx")
    assert any(a.name == "training_mode" and a.i == 1 for node in exported.graph.node for a in node.attribute)
    common = ("--loss", "softmax_cross_entropy", "--lr", 0.02, "--epochs", 12, "--metric", "accuracy", "--json")
    how = ("--data", tmp_path / "train.npz", "--validation", test, *common, "-o", tuned)
    assert main(["train", str(FOLDER / "cnn.onnx"), *map(str, how)]) == 0
    printed = json.loads(capsys.readouterr().out)["epochs"][-1]["validation_accuracy"]
    assert printed > 0.5  # 0.2 by chance
    session = onnxruntime.InferenceSession(tuned)
    for batch in (1, 7, 128):
        scores = np.concatenate([session.run(None, {"x": x[k : min(k + batch, 128)]})[0] for k in range(0, 128, batch)])
        assert np.mean(scores.argmax(axis=1) == labels[:128]) == pytest.approx(printed)
