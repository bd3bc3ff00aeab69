"""Entry scripts of the pre-commit hooks and of the GitHub action."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

ROOT = Path(__file__).parents[1]
DIGITS = ROOT / "examples" / "digits_cnn" / "digits-cnn.onnx"
DECODER = ROOT / "examples" / "decoder" / "decoder.onnx"


def script(name, *arguments, folder=ROOT, **environment):
    command = [sys.executable, str(ROOT / "tools" / name), *map(str, arguments)]
    variables = {name: value for name, value in os.environ.items() if name != "GITHUB_STEP_SUMMARY"} | environment
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200, check=False, env=variables)


def hooks():
    """The entry command of each hook."""
    text = (ROOT / ".pre-commit-hooks.yaml").read_text("utf-8")
    names, entries = (
        re.findall(each, text, re.MULTILINE) for each in (r"^- id: (\S+)", r"entry: tools/hooks.py (\S+)")
    )
    return dict(zip(names, entries, strict=True))


@pytest.mark.parametrize(
    ("hook", "arguments", "file", "status", "words"),
    [
        ("onnx-check", [], DIGITS, 0, ""),
        ("onnx-opset", ["--at-most", "30"], DIGITS, 0, ""),
        ("onnx-opset", ["--at-most", "9"], DIGITS, 1, "is newer than 9"),
        ("onnx-domains", [], DIGITS, 0, ""),
        ("onnx-domains", [], DECODER, 1, "com.microsoft::"),
        ("onnx-domains", ["--only", "ai.onnx,com.microsoft"], DECODER, 0, ""),
        ("onnx-size", ["--at-most", "1MB"], DIGITS, 0, ""),
        ("onnx-size", ["--at-most", "10KB"], DIGITS, 1, "bytes are more than 10,240"),
        ("onnx-size", ["--at-most", "10XB"], DIGITS, 2, "is not a size"),
        ("onnx-opset", ["--at-most", "9"], "missing.onnx", 2, "missing.onnx"),
    ],
)
def test_hooks(hook, arguments, file, status, words):
    result = script("hooks.py", hooks()[hook], *arguments, file)
    assert result.returncode == status, result.stdout + result.stderr
    assert words in result.stdout + result.stderr
    assert "Traceback" not in result.stderr


def test_a_broken_model_does_not_pass_the_check(tmp_path):
    model = onnx.load(DIGITS)
    model.graph.node[0].op_type = "Relu"
    onnx.save(model, tmp_path / "broken.onnx")
    result = script("hooks.py", "check", tmp_path / "broken.onnx")
    assert result.returncode == 1
    assert "broken.onnx: " in result.stdout


def git(folder, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, check=True)


def test_the_action_reports_on_a_pull_request(tmp_path):
    """The pull request changes the numbers of a model and adds a model with vendor ops."""
    place, summary = tmp_path / "repository", tmp_path / "summary.md"
    (place / "models").mkdir(parents=True)
    shutil.copy(DIGITS, place / "models" / "digits.onnx")
    shutil.copy(DIGITS, place / "models" / "same.onnx")
    git(place, "init", "-q", "-b", "main")
    git(place, "add", "-A")
    git(place, "commit", "-q", "-m", "first")
    model = onnx.load(place / "models" / "digits.onnx")
    bias = next(tensor for tensor in model.graph.initializer if tensor.name == "classifier.bias")
    bias.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(bias) + 1, bias.name))
    onnx.save(model, place / "models" / "digits.onnx")
    shutil.copy(DECODER, place / "models" / "decoder.onnx")
    options = ["--models", "models/*.onnx", "--target", "tensorrt-10", "--base", "main"]
    options += ["--report", tmp_path / "report.md"]
    result = script("action.py", *options, folder=place, GITHUB_STEP_SUMMARY=str(summary))
    assert result.returncode == 1, result.stderr
    text = (tmp_path / "report.md").read_text("utf-8")
    assert text == summary.read_text("utf-8")
    lines = text.splitlines()
    assert lines[2] == "| model | valid | tensorrt-10 | as in main |"
    assert next(line for line in lines if "decoder.onnx" in line).endswith("| new |")
    assert "**no**" in next(line for line in lines if "digits.onnx`" in line)
    assert next(line for line in lines if "same.onnx" in line).endswith("| yes, unchanged |")
    assert "| output | backend | absolute | relative | grade |" in text


def test_no_model(tmp_path):
    result = script("action.py", "--report", tmp_path / "report.md", folder=tmp_path)
    assert result.returncode == 0
    assert "no model matches" in (tmp_path / "report.md").read_text("utf-8")


def test_the_action_uses_existing_options_of_its_entry_script():
    text = (ROOT / "action.yml").read_text("utf-8")
    used = set(re.findall(r"--(models|target|base|report)\b", text))
    assert used == {"models", "target", "base", "report"}
    assert "tools/action.py" in text
