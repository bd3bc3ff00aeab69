"""Layer-by-layer quantization, with a checkpoint for resuming a killed run."""

from __future__ import annotations

import json

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx_cli import main
from tenonnx_quantized.tuning.checkpoint import fingerprint
from tenonnx_quantized.tuning.config import QuantizeConfig

FEEDS = [{"x": np.random.default_rng(k).standard_normal((6, 32)).astype(np.float32)} for k in range(12)]


def model(layers=3):
    """Return residual blocks, each with a normalization and two linear layers."""
    random = np.random.default_rng(3)
    graph = tx.Graph(opsets={"ai.onnx": 21})
    x = graph.input("x", "float32", ("n", 32))
    for k in range(layers):
        ones = graph.variable(f"norm{k}", random.uniform(0.5, 2, 32).astype(np.float32))
        first, second = (random.standard_normal(s).astype(np.float32) / 6 for s in ((32, 64), (64, 32)))
        inner = ops.relu(ops.rms_normalization(x, ones) @ graph.variable(f"first{k}", first))
        x = x + inner @ graph.variable(f"second{k}", second)
    graph.output("y", x)
    return tx.retarget(graph, opset_version=23)


def outputs(graph):
    return np.concatenate([graph.run(batch, backend="numpy")["y"] for batch in FEEDS])


def contents(graph):
    return {value.name: np.asarray(value) for value in graph.variables}


METHODS = ["gptq", "awq", "awq,gptq", "quantease", "auto-round"]


@pytest.mark.parametrize("method", METHODS)
def test_the_result_equals_that_of_the_whole_model(method, tmp_path):
    settings = {"mode": "weights", "bits": 4, "method": method, "backend": "numpy"}
    whole, report = tx.quantize(model(), FEEDS, **settings)
    made, by_layer = tx.quantize(model(), FEEDS, checkpoint=tmp_path / "run", **settings)
    np.testing.assert_allclose(outputs(made), outputs(whole), rtol=1e-3, atol=1e-3)
    assert contents(made).keys() == contents(whole).keys()
    for ours, theirs in zip(by_layer.tensors, report.tensors, strict=True):
        assert (ours.name, ours.dtype) == (theirs.name, theirs.dtype)
        assert ours.error == pytest.approx(theirs.error, rel=0.05)
    assert by_layer.notes == ["the error of the outputs was not measured"]


@pytest.mark.parametrize(
    "settings",
    [
        {"recipe": "mxfp4"},
        {"recipe": "nvfp4"},
        {"mode": "weights", "bits": 8},
        {"mode": "weights", "bits": 2},
        {"mode": "weights", "granularity": "channel", "bits": 4},
        {"mode": "weights", "form": "qoperator"},
    ],
)
def test_other_types_and_granularities(settings, tmp_path):
    whole, _ = tx.quantize(model(1), FEEDS, method="gptq", backend="numpy", **settings)
    made, _ = tx.quantize(model(1), FEEDS, method="gptq", checkpoint=tmp_path / "run", **settings)
    np.testing.assert_allclose(outputs(made), outputs(whole), rtol=1e-3, atol=1e-3)


class Killed(Exception):
    pass


@pytest.mark.parametrize("method", ["gptq", "awq,gptq"])
def test_a_killed_run_resumes(method, tmp_path):
    settings = {"mode": "weights", "bits": 4, "method": method, "checkpoint": tmp_path / "run"}

    def kill(done, count, name):
        if done == 3:
            raise Killed

    with pytest.raises(Killed):
        tx.quantize(model(), FEEDS, progress=kill, **settings)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").glob("*.quantized.npy")}
    assert len(before) == 3
    (tmp_path / "run" / "00003.quantized.npy").write_bytes(b"left by a kill")
    reported = []
    made, _ = tx.quantize(model(), FEEDS, progress=lambda *each: reported.append(each), **settings)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert [done for done, _, _ in reported] == [1, 2, 3, 4, 5, 6]
    whole, _ = tx.quantize(model(), FEEDS, **{**settings, "checkpoint": tmp_path / "other"})
    for name, values in contents(whole).items():
        np.testing.assert_array_equal(contents(made)[name], values)


def test_the_checkpoint_of_another_run(tmp_path):
    settings = {"mode": "weights", "bits": 4, "checkpoint": tmp_path / "run"}
    tx.quantize(model(1), FEEDS, method="gptq", **settings)
    for graph, feeds, method in ((model(2), FEEDS, "gptq"), (model(1), FEEDS[:3], "gptq"), (model(1), FEEDS, "awq")):
        with pytest.raises(tx.errors.InvalidCall, match="is of another run"):
            tx.quantize(graph, feeds, method=method, **settings)
    (tmp_path / "run" / "run.json").write_text("{", "utf-8")
    with pytest.raises(tx.errors.InvalidCall, match="cannot read the checkpoint"):
        tx.quantize(model(1), FEEDS, method="gptq", **settings)


@pytest.mark.parametrize(
    ("name", "contents"),
    [
        ("00000.json", "[" * 100_000),
        ("00000.json", "{}"),
        ("00000.json", {"shape": [3, 5]}),
        ("00000.json", {"zeros": [1]}),
        ("00000.json", {"block_size": 7}),
        ("00000.json", {"axis": 9}),
        ("00000.json", {"dtype": "string"}),
        ("00000.quantized.npy", b"no array"),
        ("00000.quantized.npy", np.zeros((2, 2), np.uint8)),
        ("00000.quantized.npy", b"\x93NUMPY\x01\x00\x10\x00{'descr': (((  \n"),
        ("00000.scale.npy", np.zeros(3)),
        ("00000.channels.json", "[1.0]"),
        ("00000.channels.json", "null"),
        ("run.json", "[" * 100_000),
    ],
)
def test_a_damaged_checkpoint(name, contents, tmp_path):
    settings = {"mode": "weights", "bits": 4, "method": "awq,gptq", "checkpoint": tmp_path / "run"}
    tx.quantize(model(1), FEEDS, **settings)
    path = tmp_path / "run" / name
    if isinstance(contents, dict):
        path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | contents), "utf-8")
    elif isinstance(contents, np.ndarray):
        np.save(path, contents)
    else:
        path.write_bytes(contents if isinstance(contents, bytes) else contents.encode())
    with pytest.raises((tx.errors.InvalidModel, tx.errors.InvalidCall), match="checkpoint"):
        tx.quantize(model(1), FEEDS, **settings)


@pytest.mark.parametrize("name", ["run.json", "00000.json", "00000.scale.npy", "00000.channels.json"])
def test_a_checkpoint_with_a_link(name, tmp_path):
    settings = {"mode": "weights", "bits": 4, "method": "awq,gptq", "checkpoint": tmp_path / "run"}
    tx.quantize(model(1), FEEDS, **settings)
    (tmp_path / "run" / name).rename(tmp_path / "elsewhere")
    (tmp_path / "run" / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(tx.errors.UnsafePath):
        tx.quantize(model(1), FEEDS, **settings)


@pytest.mark.parametrize("settings", [{"mode": "static"}, {"mode": "weights"}, {"mode": "weights", "budget": "5bits"}])
def test_settings_that_need_the_whole_model(settings, tmp_path):
    with pytest.raises(tx.errors.InvalidCall, match="do not work layer by layer"):
        tx.quantize(model(1), FEEDS, checkpoint=tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


def test_a_metric_is_measured_and_a_report_is_not(tmp_path):
    settings = {"mode": "weights", "method": "gptq", "checkpoint": tmp_path / "run"}
    with pytest.raises(tx.errors.InvalidCall, match="sensitivity of layers is not measured layer by layer"):
        tx.quantize(model(1), FEEDS, report=True, **settings)
    _, report = tx.quantize(model(1), FEEDS, metric=lambda graph: len(graph.nodes), **settings)
    assert report.metrics["quantized"] > report.metrics["float"] > 0


def test_bad_data_is_reported_before_any_layer_is_quantized(tmp_path):
    bad = [*FEEDS, {"x": np.full((6, 32), np.nan, np.float32)}]
    with pytest.raises(tx.errors.InvalidCall, match="NaN or infinite"):
        tx.quantize(model(1), bad, mode="weights", method="gptq", checkpoint=tmp_path / "run")


def test_the_command_removes_the_checkpoint_of_a_run_that_ended(tmp_path, capsys):
    tx.export(model(2), tmp_path / "model.onnx")
    np.savez(tmp_path / "x.npz", x=np.concatenate([batch["x"] for batch in FEEDS]))
    files = [str(tmp_path / "model.onnx"), "-o", str(tmp_path / "made.onnx"), "--inputs", str(tmp_path / "x.npz")]
    given = ["--mode", "weights", "--method", "gptq", "--checkpoint", str(run := tmp_path / "run")]
    assert main(["quantize", *files, *given]) == 0
    assert not run.exists()
    assert "not measured" in capsys.readouterr().err
    made = tx.load(tmp_path / "made.onnx")
    assert sum(node.op_type == "DequantizeLinear" for node in made.nodes) == 4
    run.mkdir()
    (run / "notes.txt").write_text("mine", "utf-8")
    assert main(["quantize", *files, *given, "--overwrite"]) == 0
    assert [file.name for file in run.iterdir()] == ["notes.txt"]


def test_the_hash_of_strings_depends_on_their_contents():
    def hashed(*texts):
        return fingerprint([], [{"x": np.array(texts, object)}], QuantizeConfig())

    assert hashed("a" * 9, "b") == hashed("".join(["a"] * 9), "b")
    assert hashed("a", "b") != hashed("a", "c")
