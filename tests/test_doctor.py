"""``tenonnx doctor``: installed versions, without names and paths of the machine."""

import getpass
import json
import os
import sys
from pathlib import Path

import onnx
import pytest

from tenonnx_cli import main
from tenonnx_cli.doctor import anonymous


@pytest.fixture
def run(capfd, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def called(*arguments, code=0):
        capfd.readouterr()
        assert main([str(each) for each in arguments]) == code
        return capfd.readouterr().out

    return called


def test_it_names_versions_but_nothing_of_the_machine(run, monkeypatch):
    monkeypatch.setenv("TENONNX_BACKEND_CHOICE", str(Path.home() / "choices" / "order.json"))
    text = run("doctor", "--json")
    result = json.loads(text)
    assert result["sound"]
    assert {"tenonnx-core", "numpy", "onnx"} <= result["versions"].keys()
    assert {"numpy", "onnxruntime"} <= {each["name"] for each in result["backends"] if each["starts"]}
    assert result["variables"]["TENONNX_BACKEND_CHOICE"].startswith(("~", "..."))
    for private in (str(Path.home()), sys.prefix, os.getcwd(), f"/{getpass.getuser()}/"):  # noqa: PTH109
        assert private not in text or private == "/"
    assert "everything installed works" in run("doctor")


def test_a_backend_that_does_not_start_is_listed_with_the_reason(run, monkeypatch):
    import tenonnx_cli.doctor as module

    def broken(name):
        return {"name": name, "starts": False, "reason": "no driver", "seconds": 0.0}

    monkeypatch.setattr(module, "_started", broken)
    output = run("doctor", code=1)
    assert output.startswith("something does not work\n")
    assert "backend onnxruntime: does not start: no driver" in output


def test_it_lists_what_would_make_a_model_faster(run, monkeypatch):
    text = (
        '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) '
        "{ a = Identity (x)  b = Neg (a)  y = Neg (b) }"
    )
    onnx.save(onnx.parser.parse_model(text), "m.onnx")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    output = run("doctor", "m.onnx")
    assert "convert --simplify removes" in output
    assert "OMP_NUM_THREADS=1 leaves processors unused (8 in all)" in output


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("cannot read /opt/private/place/lib.so", "cannot read .../lib.so"),
        ("a/b is a ratio, and https://example.org/x/y an address", None),
    ],
)
def test_paths_are_removed(text, shown):
    assert anonymous(text) == (shown or text)
