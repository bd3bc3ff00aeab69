"""The command ``tenonnx explain``."""

import json

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx_cli import main

RANDOM = np.random.default_rng(0)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    rows = RANDOM.standard_normal((60, 3)).astype(np.float32)
    forest = RandomForestRegressor(3, max_depth=3, random_state=0).fit(rows, rows[:, 0] * rows[:, 1])
    tx.export(tx.load(forest), tmp_path / "forest.onnx")
    graph = tx.Graph(opsets={"ai.onnx": 18})
    x = graph.input("x", "float32", ("rows", 3))
    weights = graph.variable("w", RANDOM.standard_normal((3, 2)).astype(np.float32))
    graph.output("y", ops.tanh(ops.matmul(x, weights)))
    tx.export(graph, tmp_path / "network.onnx")
    np.save(tmp_path / "rows.npy", rows)
    np.savetxt(tmp_path / "rows.csv", rows, delimiter=",", header="a,b,c", comments="")
    monkeypatch.chdir(tmp_path)


def test_trees_are_explained_by_their_training_rows(folder, capsys):
    assert main(["explain", "forest.onnx", "-o", "out.onnx"]) == 0
    output = capsys.readouterr().out
    assert "X/attribution: float32[" in output
    assert "attributions sum to the difference of outputs within 0.0%" in output
    results = tx.load("out.onnx").run({"X": np.load("rows.npy")[:5]}, backend="onnxruntime")
    np.testing.assert_allclose(results["variable/delta"], 0, atol=1e-5)


@pytest.mark.parametrize("rows", ["rows.npy", "rows.csv"])
def test_background_rows_come_from_a_file(folder, rows):
    assert main(["explain", "forest.onnx", "-o", "out.onnx", "--interventional", "--background", rows]) == 0
    graph = tx.load("out.onnx")
    np.testing.assert_allclose(graph["X/background"].data.array(), np.load("rows.npy"), rtol=1e-6)


def test_json_names_what_was_added(folder, capsys):
    arguments = ["--class", "1", "--steps", "9", "--opset", "13", "--json"]
    assert main(["explain", "network.onnx", "-o", "out.onnx", *arguments]) == 0
    output = json.loads(capsys.readouterr().out)
    assert output["attributions"] == ["x/attribution", "y/delta"]
    assert 0 <= output["lacking"] < 0.1
    graph = tx.load("out.onnx")
    assert graph.opsets["ai.onnx"] == 13
    assert graph["steps"].data.array() == 9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--method", "grad-cam"], "no value was given for Grad-CAM"),
        (["--method", "tree-shap"], "no tree ensemble"),
        (["--method", "linear-shap", "--background", "rows.npy", "--of", "y"], "is not linear in"),
        (["--window", "0,1"], "is not a list of sizes"),
        (["--method", "shap"], "--method"),
        (["--background", "missing.npy", "--method", "kernel-shap"], "missing.npy"),
    ],
)
def test_errors_name_the_options_of_the_command(folder, capsys, arguments, message):
    assert main(["explain", "network.onnx", "-o", "out.onnx", *arguments]) in (1, 2)
    output = capsys.readouterr().err
    assert message in output
    assert "Traceback" not in output
