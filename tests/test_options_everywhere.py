"""Options shared by commands: quiet and verbose output, threads, providers, read-only outputs, sources."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

from tenonnx_cli import main

EXAMPLES = Path(__file__).parents[1] / "examples"

#: Commands that end with a verdict, with its first words.
QUIET = {
    "convert digits.onnx -o new.onnx": "new.onnx: verified",
    "quantize digits.onnx -o new.onnx": "new.onnx: ",
    "plan digits.onnx --opset 15": "possible: digits.onnx",
    "check digits.onnx": "digits.onnx: valid",
    "verify digits.onnx digits.onnx": "digits.onnx: verified",
    "compare digits.onnx digits.onnx": "digits.onnx: verified",
    "extract digits.onnx -o new.onnx --output-names probabilities": "new.onnx: ",
    "rename digits.onnx pixels=x -o new.onnx": "new.onnx: ",
    "grad digits.onnx --of probabilities --wrt pixels --cotangent g -o new.onnx": "new.onnx: ",
    "anonymize digits.onnx -o new.onnx": "new.onnx: ",
    "reduce digits.onnx -o new.onnx --check false": "new.onnx: ",
    "explain digits.onnx -o new.onnx": "new.onnx: ",
}


@pytest.fixture
def run(capfd, monkeypatch, tmp_path):
    shutil.copy(EXAMPLES / "digits/digits.onnx", tmp_path / "digits.onnx")
    monkeypatch.chdir(tmp_path)

    def called(*arguments, code=0):
        capfd.readouterr()
        assert main([str(each) for each in arguments]) == code
        return capfd.readouterr()

    return called


@pytest.mark.parametrize("line", QUIET)
def test_q_only_prints_the_verdict(line, run):
    quiet = run(*line.split(), "-q").out
    assert quiet.startswith(QUIET[line])
    assert quiet.count("\n") == 1
    loud = run(*line.split()).out
    assert loud.splitlines()[0].startswith(QUIET[line])


def test_q_does_not_change_json_and_only_affects_one_command(run):
    assert json.loads(run("check", "digits.onnx", "-q", "--json").out)["valid"] is True
    run("check", "digits.onnx", "-q")
    assert run("inspect", "digits.onnx").out.count("\n") > 3


def test_v_lists_all_nodes_of_a_plan(run):
    nodes = " ".join(f"y{k} = Relu(y{k - 1})" for k in range(1, 9))
    text = f'<ir_version: 10, opset_import: ["": 21]> g (float[2] y0) => (float[2] y8) {{ {nodes} }}'
    onnx.save(onnx.parser.parse_model(text), "many.onnx")
    line = "plan", "many.onnx", "--opset", "5"
    assert " more" in run(*line).out
    assert " more" not in run(*line, "-v").out


def test_threads_and_providers_reach_the_backend(run):
    assert "computed by onnxruntime" in run("run", "digits.onnx", "--threads", 1).out
    assert "computed by onnxruntime" in run("run", "digits.onnx", "--provider", "cpu").out
    assert "computed by numpy" in run("run", "digits.onnx", "--backend", "numpy", "--threads", 1).out
    assert "does not have this provider" in run("run", "digits.onnx", "--provider", "none", code=2).err
    assert "unknown option" in run("run", "digits.onnx", "--backend", "numpy", "--provider", "cpu", code=2).err
    assert "--threads" in run("run", "digits.onnx", "--threads", 0, code=2).err


@pytest.mark.skipif(os.name == "nt", reason="the flag of a file is another on Windows")
@pytest.mark.parametrize("suffix", ["onnx", "safetensors"])
def test_a_read_only_file_is_replaced_on_request(run, suffix):
    shutil.copy(EXAMPLES / "digits_cnn/digits-cnn.onnx", "cnn.onnx")
    with np.load(EXAMPLES / "digits_cnn/digits.npz") as archive:
        np.savez("cnn.npz", **{name: each[:32] for name, each in archive.items()})
    new = Path(f"new.{suffix}")
    for line in (
        "grad cnn.onnx --of scores --wrt images --cotangent g",
        "train cnn.onnx --data cnn.npz --loss softmax_cross_entropy --epochs 1",
    ):
        run(*line.split(), "-o", new)
        new.chmod(0o444)
        output = run(*line.split(), "-o", new, code=2).err
        assert "--overwrite" in output
        assert "overwrite=" not in output
        run(*line.split(), "-o", new, "--overwrite")
        new.unlink()


def test_a_plan_accepts_the_sources_of_convert(run):
    Path("made.py").write_text("import tenonnx as tx\n\ndef make():\n    return tx.load('digits.onnx')\n")
    assert run("plan", "made.py:make", "--opset", "15", "-q").out.startswith("possible: made.py:make")
    assert (
        "was given for something other than a function that returns a model"
        in run("plan", "digits.onnx", "--task", "x", code=2).err
    )
    result = json.loads(run("plan", "digits.onnx", "--dynamic-batch", "--json").out)
    assert result["possible"] is True
