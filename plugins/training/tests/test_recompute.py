"""Recomputation: equal results with less memory."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from trained_models import contents

import tenonnx as tx
import tenonnx_standard as ops
import tenonnx_training as tt
from tenonnx.errors import InvalidCall
from tenonnx_cli import main

FOLDER = Path(__file__).parent / "pytorch"
LAYERS = 4


def deep(width=8, layers=LAYERS):
    """Residual layers of three products with Dropout and BatchNormalization."""
    graph, random = tx.Graph("deep", opsets={"ai.onnx": 21}), np.random.default_rng(0)
    x = graph.input("x", "float32", ("batch", width))
    for k in range(layers):
        weights = [
            graph.variable(f"{k}.weight.{i}", random.normal(size=(width, width), scale=0.3).astype(np.float32))
            for i in range(3)
        ]
        norm = [
            graph.variable(f"{k}.{name}", np.full(width, value, np.float32))
            for name, value in {"scale": 1, "shift": 0, "mean": 0, "variance": 1}.items()
        ]
        with graph.building(prefix=f"/layer.{k}"):
            h = ops.batch_normalization(x, *norm, _outputs=1)
            for weight in weights:
                h = ops.tanh(h @ weight)
            x = x + ops.dropout(h, np.float32(0.2), _outputs=1)
    graph.output("y", x)
    return graph


STRETCHES = [f"/layer.{k}*" for k in range(LAYERS)]


def steps(graph, batch, **options):
    step = tt.TrainingStep(graph, "mean_squared_error", tt.Adam(0.01), **options)
    return [step(batch)["loss"] for _ in range(4)], step


@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
def test_recomputation_changes_no_number(backend):
    random = np.random.default_rng(1)
    batch = {"x": random.normal(size=(5, 8)).astype(np.float32), "labels": np.zeros((5, 8), np.float32)}
    expected, plain = steps(deep(), batch, backend=backend)
    trained = contents(plain.write_back())
    for patterns in (STRETCHES, ["*layer.1*", "layer.3*"], ["*"]):
        losses, step = steps(deep(), batch, backend=backend, recompute=patterns)
        assert losses == pytest.approx(expected, rel=1e-6), patterns
        result = contents(step.write_back())
        for name, array in trained.items():
            np.testing.assert_allclose(result[name], array, rtol=1e-5, atol=1e-7, err_msg=f"{patterns}")
        assert len(step._step_graph.graph.nodes) > len(plain._step_graph.graph.nodes)


def test_recomputation_needs_less_memory():
    batch = {"x": np.ones((2048, 32), np.float32), "labels": np.zeros((2048, 32), np.float32)}
    peaks = []
    for patterns in ((), [f"/layer.{k}*" for k in range(6)]):
        step = tt.TrainingStep(deep(32, 6), "mean_squared_error", tt.SGD(0.1), backend="numpy", recompute=patterns)
        tracemalloc.start()
        step(batch)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 0.6 * peaks[0]


@pytest.mark.parametrize("model", ["cnn", "transformer"])
def test_files_of_pytorch_with_recomputation(model):
    data, result = np.load(FOLDER / f"{model}.npz"), []
    for patterns in ((), ["*Conv*"] if model == "cnn" else ["*"]):
        graph = tx.load(FOLDER / f"{model}.onnx")
        options = {"backend": "onnxruntime", "recompute": patterns}
        step = tt.TrainingStep(graph, "softmax_cross_entropy", tt.SGD(0.05), **options)
        batches = zip(data["x"][:5], data["labels"][:5], strict=True)
        result.append([step({"x": x, "labels": labels})["loss"] for x, labels in batches])
    np.testing.assert_allclose(result[0], result[1], rtol=1e-6)


def test_embeddings_and_loops_are_kept():
    data, graph = np.load(FOLDER / "lstm.npz"), tx.load(FOLDER / "lstm.onnx")
    step = tt.TrainingStep(graph, "softmax_cross_entropy", backend="numpy", recompute=["*"])
    plain = tt.TrainingStep(tx.load(FOLDER / "lstm.onnx"), "softmax_cross_entropy", backend="numpy")
    batch = {"x": data["x"][0], "labels": data["labels"][0]}
    assert [step(batch), step(batch)] == [plain(batch), plain(batch)]


def test_a_file_keeps_the_recomputed_patterns():
    graph, batch = deep(), {"x": np.ones((2, 8), np.float32), "labels": np.zeros((2, 8), np.float32)}
    _, step = steps(graph, batch, backend="numpy", recompute=STRETCHES)
    assert list(tt.TrainingStep(step.write_back()).recipe.recompute) == STRETCHES


def test_patterns_without_nodes(tmp_path, capsys):
    with pytest.raises(InvalidCall, match=r'recompute "layer\.9\*" matches no node') as caught:
        tt.TrainingStep(deep(), "mean_squared_error", recompute=["layer.9*"])
    assert "layer.0." in caught.value.available
    with pytest.raises(InvalidCall, match="list of patterns"):
        tt.TrainingStep(deep(), "mean_squared_error", recompute="layer.1*")
    tx.export(deep(), tmp_path / "deep.onnx")
    np.savez(tmp_path / "data.npz", x=np.ones((4, 8), np.float32), labels=np.zeros((4, 8), np.float32))
    common = [
        "train",
        str(tmp_path / "deep.onnx"),
        "--data",
        str(tmp_path / "data.npz"),
        "--loss",
        "mean_squared_error",
    ]
    for patterns, code in (("nothing", 2), ("/layer.1*, /layer.2*", 0)):
        assert main([*common, "--recompute", patterns, "-o", str(tmp_path / "tuned.onnx")]) == code
    assert 'recompute "nothing" matches no node' in capsys.readouterr().err
