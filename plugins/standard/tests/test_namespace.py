"""The flat namespace: every op under one name, imported on first use."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import tenonnx_standard as ops
from tenonnx.extend import Op
from tenonnx_standard.axis_activation import softmax

TOOL = Path(__file__).parents[3] / "tools" / "generate_namespaces.py"


def test_the_stub_is_true(monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(TOOL), "--check"])
    runpy.run_path(str(TOOL), run_name="__main__")


def test_every_name_is_there_and_one_object():
    assert ops.softmax is softmax
    result = {name: getattr(ops, name) for name in dir(ops)}
    assert sum(isinstance(value, Op) for value in result.values()) > 250


@pytest.mark.parametrize(
    ("guess", "meant"), [("sofmax", "softmax"), ("ReduceSum", "reduce_sum"), ("Max", "maximum"), ("range", "range_")]
)
def test_a_wrong_name_is_answered_with_the_right_one(guess, meant):
    with pytest.raises(AttributeError, match=f"no {guess!r}; did you mean {meant}"):
        getattr(ops, guess)


def test_a_name_without_similar_ones_is_answered_with_the_place_of_the_names():
    with pytest.raises(AttributeError, match=r"dir\(tenonnx_standard\)"):
        _ = ops.qqqqqq


def test_a_name_imports_what_it_needs_and_no_more():
    program = """
import sys
import tenonnx_standard as ops
assert not [name for name in sys.modules if name.startswith("tenonnx_standard.")]
ops.sigmoid
assert "tenonnx_standard.activation" in sys.modules
assert "tenonnx_standard.recurrent" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
