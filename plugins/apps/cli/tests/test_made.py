"""``convert FILE.py:FUNCTION``: a model made by a function, with examples for tracing."""

import sys
import types
from pathlib import Path

import numpy as np
import onnx
import pytest

from tenonnx.graph.graph import Graph
from tenonnx.registry import discovery
from tenonnx.registry.discovery import Plugin

SOURCE = """
import tiny
from beside import SIZE
from tenonnx.graph.graph import Graph

def make_graph():
    graph = Graph(opsets={"tiny": 4})
    graph.registry = tiny.registry()
    graph.output("y", tiny.exp(graph.input("x", "float32", ("n", SIZE))))
    return graph

class Net:
    pass

Net.__module__ = "nets.layers"

def fails():
    return 1 / 0

number = 3
"""


@pytest.fixture(autouse=True)
def _written(tmp_path):
    (tmp_path / "net.py").write_text(SOURCE)
    (tmp_path / "beside.py").write_text("SIZE = 3\n")
    yield
    sys.modules.pop("beside", None)


@pytest.fixture
def read(monkeypatch):
    """A front end for ``nets``, which records its calls."""
    called = []

    def read(source, *examples, registry, dims=None):
        called.append((type(source).__name__, examples, dims))
        graph = Graph(opsets={"tiny": 4})
        import tiny

        graph.registry = tiny.registry()
        graph.output("y", tiny.exp(graph.input("x", "float32", ("batch", 3))))
        return graph

    monkeypatch.setitem(sys.modules, "nets_reader", types.SimpleNamespace(read=read))
    plugin = Plugin("nets", "nets_reader", "tenonnx.frontends", "nets-dist", "1")
    genuine = discovery._installed
    monkeypatch.setattr(
        discovery,
        "_installed",
        lambda group: genuine(group) if group == "tenonnx.extensions" else (plugin,) if group == plugin.group else (),
    )
    monkeypatch.delenv("TENONNX_PLUGINS")
    return called


def test_a_graph_that_a_function_makes_is_written(tenonnx):
    result = tenonnx("convert", "net.py:make_graph", "-o", "m.onnx")
    assert result.code == 0, result.err
    assert onnx.load("m.onnx").graph.node[0].op_type == "Exp"
    assert "beside" in sys.modules
    assert str(Path.cwd()) not in sys.path


def test_examples_reach_the_front_end_with_the_names_of_their_dims(tenonnx, read):
    np.save("given.npy", np.arange(4))
    result = tenonnx(
        "convert",
        "net.py:Net",
        "-o",
        "m.onnx",
        "--example",
        "batch=2,3",
        "--example",
        "int64:4",
        "--example",
        "given.npy",
    )
    assert result.code == 0, result.err
    ((name, (x, tokens, given), dims),) = read
    assert name == "Net"
    assert (x.dtype, x.shape, tokens.dtype, tokens.shape) == (np.float32, (2, 3), np.int64, (4,))
    assert given.tolist() == [0, 1, 2, 3]
    assert dims == {0: {0: "batch"}}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["absent.py:make"], "no such Python file"),
        (["net.py:number"], '"net.py" has no function "number"'),
        (["net.py:fails"], "ZeroDivisionError: division by zero"),
        (["net.py:fails"], f"net.py:{SOURCE[: SOURCE.index('1 / 0')].count(chr(10)) + 1}"),
        (["broken.py:make"], "SyntaxError"),
        (["net.py:Net", "--example", "two,3"], "an example is neither the shape of an input"),
        (["net.py:Net", "--example", "float7:3"], "an example is neither the shape of an input"),
        (["net.py:Net", "--example", "absent.npy"], 'cannot read "absent.npy"'),
        (["net.py:Net"], "what an installed front end reads"),
        (["m.onnx", "--example", "3"], "--example was given for something other than a function that returns a model"),
    ],
)
def test_errors_are_reported_with_their_line(tenonnx, arguments, message):
    Path("broken.py").write_text("def make(:\n")
    result = tenonnx("convert", *arguments, "-o", "out.onnx")
    assert result.code == 2
    assert message in result.err
    assert "Traceback" not in result.err
    assert not Path("out.onnx").exists()


def test_the_help_warns_that_the_file_is_executed(tenonnx):
    assert "use only files that you trust" in " ".join(tenonnx("convert", "--help").out.split())
