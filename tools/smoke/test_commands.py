"""Smoke tests of every installed command: its help text and one run."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import tenonnx as tx
from tenonnx.tools import plugins

pytest.importorskip("tenonnx_cli", reason="tenonnx-cli is not installed")
pytest.importorskip("tenonnx_standard", reason="without the ops of ai.onnx no model is read to its end")

from tenonnx_cli import main

EXAMPLES = Path(__file__).parents[2] / "examples"
GROUP = "tenonnx.commands"

#: Arguments of each command, in a folder with digits.onnx, digits.npz, cnn.onnx, cnn.npz and rows.npy.
LINES = {
    "inspect": "inspect digits.onnx --json",
    "doctor": "doctor --json",
    "help": "help",
    "version": "version --json",
    "anonymize": "anonymize digits.onnx -o plain.onnx --json",
    "explain": "explain digits.onnx -o explained.onnx --json",
    "reduce": "reduce digits.onnx -o small.onnx --check false --json",
    "check": "check digits.onnx --json",
    "run": "run digits.onnx --inputs digits.npz --json",
    "bench": "bench digits.onnx --json",
    "convert": "convert digits.onnx -o old.onnx --opset 12 --inputs digits.npz --verify --json",
    "plan": "plan digits.onnx --opset 12 --json",
    "compare": "compare digits.onnx digits.onnx --json",
    "verify": "verify digits.onnx digits.onnx --inputs digits.npz --json",
    "extract": "extract digits.onnx -o part.onnx --output-names probabilities --json",
    "rename": "rename digits.onnx pixels=x -o renamed.onnx --json",
    "compose": "compose part.onnx tail.onnx -o both.onnx --json",
    "formats": "formats --json",
    "targets": "targets --json",
    "ops": "ops Softmax --json",
    "plugins": "plugins --json",
    "evaluate": "evaluate cnn.onnx --data cnn.npz --metric accuracy --json",
    "grad": "grad cnn.onnx --of scores --wrt images --cotangent g -o slope.onnx --json",
    "train": "train cnn.onnx --data cnn.npz --loss softmax_cross_entropy --epochs 1 -o tuned.onnx --json",
    "quantize": "quantize digits.onnx -o small.onnx --json",
    "score": "score cnn.onnx --input rows.npy -o scores --json",
    "serve": "serve --help",
}
INSTALLED = sorted(
    {
        *(name for name in LINES if (Path(tx.__file__).parents[1] / f"tenonnx_cli/{name}.py").is_file()),
        *(plugin.name for plugin in plugins(GROUP)),
    }
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for source, name in (
        ("digits/digits.onnx", "digits.onnx"),
        ("digits/samples.npz", "digits.npz"),
        ("digits_cnn/digits-cnn.onnx", "cnn.onnx"),
        ("digits_cnn/digits.npz", "cnn.npz"),
    ):
        shutil.copy(EXAMPLES / source, tmp_path / name)
    with np.load(tmp_path / "cnn.npz") as digits:
        np.save(tmp_path / "rows.npy", digits["images"][:32])
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", INSTALLED)
def test_help(name, capsys):
    assert main([name, "--help"]) == 0
    assert f"tenonnx {name}" in capsys.readouterr().out


@pytest.mark.parametrize("name", INSTALLED)
def test_command(name, folder, capsys):
    words = LINES[name].split()
    if name == "compose":
        assert main(["extract", "cnn.onnx", "-o", "part.onnx", "--output-names", "Relu"]) == 0
        assert main(["extract", "cnn.onnx", "-o", "tail.onnx", "-i", "Relu"]) == 0
        capsys.readouterr()
    code = main(words)
    said = capsys.readouterr()
    if "tenonnx-training" in said.err or "tenonnx-optimize" in said.err:
        assert "--find-links WHEELS tenonnx-" in said.err
        return
    assert code == 0, said.err
    if "--json" in words:
        assert json.loads(said.out)
