"""The command line on the example models, with the installed families and backends."""

import json
import subprocess
import sys

import numpy as np
import onnx
import pytest
from models import EXAMPLES, example

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx_cli import main

DIGITS, INT8, DECODER = example("digits/digits"), example("digits/digits-int8"), example("decoder/decoder")


@pytest.fixture
def tenonnx(capfd, monkeypatch, tmp_path):
    """A function that runs a command in an empty folder and returns exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        capfd.readouterr()
        code = main([str(argument) for argument in arguments])
        return code, *capfd.readouterr()

    return run


def test_random_inputs_have_sizes_that_all_backends_accept(tenonnx):
    code, out, err = tenonnx("convert", DECODER, "-o", "same.onnx")
    assert code == 0
    assert "random inputs were drawn with batch=1" in err
    assert f"against {DECODER} in numpy and onnxruntime, on random inputs" in out


def test_a_backend_that_fails_on_the_original_is_not_compared(tenonnx):
    model = example("experts/experts")  # random inputs have 0 tokens seen, an input of the model
    code, out, err = tenonnx("convert", model, "-o", "same.onnx")
    assert code == 0
    assert "not compared on onnxruntime: the original fails there, too" in err
    assert "--inputs" in err
    assert f"against {model} in numpy, on random inputs (seed 0)" in out
    graph = tx.load(model)
    result = tx.verify(graph, graph)
    assert result.equal
    assert {output.backend for output in result.outputs} == {"numpy"}


def test_an_unused_opset_is_dropped_with_a_note(tenonnx):
    for command in ("plan", DIGITS), ("convert", DIGITS, "-o", "same.onnx"):
        code, _, err = tenonnx(*command, "--opset", "com.microsoft=1")
        assert code == 0
        assert 'no node is of domain "com.microsoft"' in err
    assert "com.microsoft" not in tx.load("same.onnx").opsets


def test_inspect_names_the_packages(tenonnx):
    code, out, err = tenonnx("inspect", DECODER, "--json")
    assert (code, err) == (0, "")
    data = json.loads(out)
    packages = {op["op"]: op["package"] for op in data["ops"]}
    assert packages["MatMul"].startswith("tenonnx-standard")
    assert packages["com.microsoft::GroupQueryAttention"].startswith("tenonnx-contrib-ms")
    assert data["problems"] == []
    logits = data["outputs"][0]
    assert logits["shape"] == ["batch", "sequence", 64]


@pytest.mark.parametrize("path", [DIGITS, INT8], ids=lambda path: path.stem)
def test_the_examples_are_valid(tenonnx, path):
    assert tenonnx("check", path)[:2] == (0, f"{path}: valid\n")


def test_a_runtime_op_in_the_default_domain_is_accepted(tenonnx):
    code, out, _ = tenonnx("check", DECODER, "--json")
    assert code == 0
    assert json.loads(out)["valid"]


@pytest.mark.parametrize("backend", ["numpy", "onnxruntime", "auto"])
def test_run_classifies_digits(tenonnx, backend):
    code, out, err = tenonnx(
        "run", DIGITS, "--inputs", EXAMPLES / "digits/samples.npz", "--backend", backend, "-o", "out.npz", "--json"
    )
    assert code == 0
    assert err.endswith("labels left out, as the model has no such input\n")
    assert json.loads(out)["written"] == "out.npz"
    labels = np.load(EXAMPLES / "digits/samples.npz")["labels"]
    assert (np.load("out.npz")["label"] == labels).mean() > 0.9


@pytest.mark.parametrize("opset", [9, 11, 13, 18])
def test_convert_verifies_what_it_wrote(tenonnx, opset):
    code, out, err = tenonnx("convert", DIGITS, "-o", "out.onnx", "--opset", opset, "--verify", "--json")
    assert (code, err) == (0, "")
    data = json.loads(out)
    assert data["opsets"] == {"ai.onnx": opset}
    assert {each["backend"] for each in data["verification"]["outputs"]} == {"numpy", "onnxruntime"}
    onnx.checker.check_model("out.onnx", full_check=True)


def test_convert_lowers_a_vendor_domain_and_reports_how(tenonnx):
    target = ["--opset", 13, "--domains", "ai.onnx"]
    code, out, _ = tenonnx("plan", DECODER, *target)
    assert code == 0
    assert "0 refused" in out
    code, out, err = tenonnx(
        "convert", DECODER, "-o", "out.onnx", *target, "--inputs", EXAMPLES / "decoder/samples.npz", "-v"
    )
    assert (code, err) == (0, "")
    assert "com.microsoft::GroupQueryAttention@1: expanded into " in out
    assert "largest difference " in out
    assert [entry.domain for entry in onnx.load("out.onnx").opset_import] == [""]


def test_dependent_input_shapes_can_be_specified(tenonnx):
    shapes = ["--input-shapes", "input_ids:2,1", "--input-shapes", "attention_mask:batch,past+sequence"]
    code, out, _ = tenonnx("run", DECODER, *shapes, "--json")
    assert code == 0
    assert json.loads(out)["outputs"]["logits"]["shape"] == [2, 1, 64]


def test_the_native_file_has_the_same_outputs_as_the_model(tenonnx):
    assert tenonnx("convert", DIGITS, "-o", "digits.safetensors")[0] == 0
    assert tenonnx("run", "digits.safetensors")[1] == tenonnx("run", DIGITS)[1]


@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
def test_entries_of_maps_have_the_element_type_of_the_output(tenonnx, backend):
    samples = EXAMPLES / "iris" / "samples.npz"
    arguments = ("run", example("iris/iris"), "--inputs", samples, "--backend", backend)
    assert "output_probability: sequence(map(int64, float32[]))" in tenonnx(*arguments)[1]
    first = json.loads(tenonnx(*arguments, "--json")[1])["outputs"]["output_probability"][0]
    assert {entry["type"] for entry in first.values()} == {"float32[]"}


def test_an_unknown_opset_is_refused(tenonnx, tmp_path):
    code, out, err = tenonnx("convert", DIGITS, "-o", "out.onnx", "--opset", 999)
    assert (code, out) == (2, "")
    assert "unknown opset" in err
    assert not list(tmp_path.iterdir())
    assert tenonnx("plan", DIGITS, "--opset", 999)[0] == 2


def test_ops_and_plugins_name_their_packages(tenonnx):
    meanings = json.loads(tenonnx("ops", "Softmax", "--json")[1])
    assert [(row["since"], row["before"]) for row in meanings] == [(13, None), (1, 13)]
    assert "from tenonnx-contrib-ms" in tenonnx("ops", "com.microsoft::FusedMatMul")[1]
    groups = {(row["group"], row["name"], row["status"]) for row in json.loads(tenonnx("plugins", "--json")[1])}
    assert ("tenonnx.ops", "ai.onnx", "loaded") in groups
    assert ("tenonnx.backends", "onnxruntime", "loaded") in groups


def test_the_installed_program_starts():
    result = subprocess.run(
        [sys.executable, "-m", "tenonnx", "check", DIGITS], capture_output=True, text=True, timeout=60
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_a_plan_reports_values_that_fixed_shapes_would_make_constant(tenonnx, tmp_path):
    graph = tx.Graph(opsets={"ai.onnx": 17})
    x = graph.input("x", "float32", ("n", 4))
    graph.output("y", x / ops.cast(ops.gather(ops.shape(x), np.int64(0)), to=1))
    tx.export(graph, tmp_path / "mean.onnx")
    _, output, _ = tenonnx("plan", tmp_path / "mean.onnx", "--opset", "13")
    assert "with fixed shapes (convert --fix-shapes) 3 nodes more would be constant" in output


def test_a_plan_fuses_where_the_conversion_does(tenonnx, tmp_path):
    graph = tx.Graph(opsets={"ai.onnx": 13})
    x = graph.input("x", "float32", ("n", 4))
    graph.output("y", x * np.float32(0.5) * (ops.erf(x / np.float32(2**0.5)) + np.float32(1)))
    source, to = tmp_path / "written_out.onnx", ["--opset", "20"]
    tx.export(graph, source)
    for options, count in ([], 1), (["--no-fuse"], 0):
        output = (
            tenonnx("plan", source, *to, *options)[1],
            tenonnx("convert", source, "-o", "to.onnx", *to, *options, "-v")[1],
        )
        assert [each.count("Gelu@20: fused") for each in output] == [count, count]
    assert json.loads(tenonnx("plan", source, *to, "--json")[1])["summary"]["actions"] == {"kept": 5, "fused": 1}


def test_rare_ops_are_fused_on_request(tenonnx, tmp_path):
    graph = tx.Graph(opsets={"ai.onnx": 17})
    x = graph.input("x", "float32", ("n", 4))
    graph.output("y", x / ops.sqrt(ops.reduce_mean(x * x, [-1]) + 1e-6) * np.arange(4, dtype=np.float32))
    source, target = tmp_path / "norm.onnx", tmp_path / "to.onnx"
    tx.export(graph, source)
    named = "--fuse-also", "SimplifiedLayerNormalization"
    code, _, told = tenonnx("convert", source, "-o", target, *named)
    assert code == 0
    assert [node.op_type for node in tx.load(target).nodes] == ["SimplifiedLayerNormalization"]
    assert (
        "note: supported by some runtimes, but not in the specification: ai.onnx::SimplifiedLayerNormalization@17"
        in told
    )
    for options, message in (
        (("--fuse-also", "Guess"), "ai.onnx::Guess is not an op with a body"),
        ((*named, "--no-fuse"), "--no-fuse were both given"),
    ):
        code, _, error = tenonnx("convert", source, "-o", tmp_path / "none.onnx", *options)
        assert code == 2
        assert message in error
    assert not (tmp_path / "none.onnx").exists()


def test_fusion_uses_the_ops_of_newer_opsets_and_other_domains(tenonnx, tmp_path):
    graph = tx.Graph(opsets={"ai.onnx": 17})
    x = graph.input("x", "float32", ("n", 4))
    graph.output("y", x * 0.5 * (1.0 + ops.erf(x / 2.0**0.5)))
    tx.export(graph, tmp_path / "gelu.onnx")
    result = {}
    for options in ("",), ("--opset", "20"), ("--opset", "20", "--no-fuse"), ("--opset", "17"), ("--opset", "16"):
        assert tenonnx("convert", tmp_path / "gelu.onnx", "-o", tmp_path / "to.onnx", *filter(None, options))[0] == 0
        result[" ".join(options)] = {node.op_type for node in tx.load(tmp_path / "to.onnx").nodes}
    written_out = {"Div", "Erf", "Add", "Mul"}
    assert result.pop("--opset 20") == {"Gelu"}
    assert all(ops == written_out for ops in result.values())
