"""Ops that no package gives a meaning to, and for which the runtime has kernels."""

import numpy as np
import onnx
import onnxruntime
import pytest

import tenonnx as tx
from tenonnx_onnxruntime import backend as module

MODEL = """
    <ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
    g (float[n, 4] x) => (float[n, 4] y) { r = Relu(x)  y = com.microsoft.QuickGelu <alpha = 1.702> (r) }
"""


@pytest.fixture
def graph(monkeypatch):
    """A model of which com.microsoft is left out."""
    monkeypatch.setenv("TENONNX_PLUGINS", "-tenonnx-contrib-ms")
    return tx.load(onnx.parser.parse_model(MODEL), registry=tx.Registry.installed())


X = np.linspace(-2, 2, 8, dtype=np.float32).reshape(2, 4)
Y = np.maximum(X, 0) / (1 + np.exp(-1.702 * np.maximum(X, 0)))


@pytest.mark.parametrize("backend", ["onnxruntime", "auto"])
def test_they_run_on_the_runtime(graph, backend):
    program = graph.compile(backend)
    assert program.backend == "onnxruntime"
    np.testing.assert_allclose(program({"x": X})["y"], Y, rtol=1e-5)


def test_session_options_are_given_as_they_are(graph):
    options = onnxruntime.SessionOptions()  # which may hold libraries: options.register_custom_ops_library(path)
    np.testing.assert_allclose(graph.compile("auto", session_options=options)({"x": X})["y"], Y, rtol=1e-5)


def test_other_nodes_are_rewritten_around_them(graph):
    model = onnx.parser.parse_model(MODEL.replace("float[n, 4] x", "double[n, 4] x").replace("Relu", "Celu"))
    cast = onnx.helper.make_node("Cast", ["c"], ["r"], to=onnx.TensorProto.FLOAT)  # Celu has a kernel of float32 alone
    model.graph.node[0].output[0] = "c"
    model.graph.node.insert(1, cast)
    found = tx.load(model, registry=graph.registry).run({"x": np.abs(X).astype(np.float64)}, backend="onnxruntime")
    np.testing.assert_allclose(found["y"], np.abs(X) / (1 + np.exp(-1.702 * np.abs(X))), rtol=1e-5)


def test_numpy_refuses_them_naming_the_package(graph):
    with pytest.raises(tx.UnsupportedOp, match="no installed package provides 1 of its ops") as caught:
        graph.compile("numpy")
    assert "tenonnx-contrib-ms" in caught.value.do


def test_an_op_that_the_runtime_lacks_too_is_refused(monkeypatch):
    graph = tx.load(onnx.parser.parse_model(MODEL.replace("com.microsoft", "org.lab")))
    for backend, told in (("onnxruntime", "cannot run the graph"), ("auto", "no installed package provides")):
        with pytest.raises(tx.UnsupportedOp, match=told):
            graph.compile(backend)


def test_a_backend_that_does_not_say_so_is_not_asked(graph, monkeypatch):
    monkeypatch.setattr(module, "takes_opaque", False)
    with pytest.raises(tx.UnsupportedOp, match="cannot be run on onnxruntime"):
        graph.compile("onnxruntime")
    with pytest.raises(tx.UnsupportedOp, match="cannot be run: no installed package"):
        graph.compile("auto")
