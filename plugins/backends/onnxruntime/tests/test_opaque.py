"""Opaque ops: not defined by any package, but with kernels in the runtime."""

import os
from unittest import mock

import numpy as np
import onnx
import onnxruntime
import pytest

import tenonnx as tx
from tenonnx_onnxruntime import backend as module
from tenonnx_onnxruntime import extensions

with mock.patch.dict(os.environ):  # it tells protobuf there to be slow, in all processes that are started later
    onnxruntime_extensions = pytest.importorskip("onnxruntime_extensions", reason="a library of ops for the runtime")

MODEL = """
    <ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
    g (float[n, 4] x) => (float[n, 4] y) { r = Relu(x)  y = com.microsoft.QuickGelu <alpha = 1.702> (r) }
"""


@pytest.fixture
def graph(monkeypatch):
    """A model with ops of com.microsoft, whose package is disabled."""
    monkeypatch.setenv("TENONNX_PLUGINS", "-tenonnx-contrib-ms")
    return tx.load(onnx.parser.parse_model(MODEL), registry=tx.Registry.installed())


X = np.linspace(-2, 2, 8, dtype=np.float32).reshape(2, 4)
Y = np.maximum(X, 0) / (1 + np.exp(-1.702 * np.maximum(X, 0)))


@pytest.mark.parametrize("backend", ["onnxruntime", "auto"])
def test_they_run_on_the_runtime(graph, backend):
    program = graph.compile(backend)
    assert program.backend == "onnxruntime"
    np.testing.assert_allclose(program({"x": X})["y"], Y, rtol=1e-5)


CUSTOM = """
    <ir_version: 8, opset_import: ["": 17, "ai.onnx.contrib": 1]>
    g (float[n, n] x) => (float[n, n] y) { r = ai.onnx.contrib.Inverse (x)  y = Relu (r) }
"""


@pytest.fixture
def custom(monkeypatch):
    """A model with an op of the library, with neither package nor library available."""
    monkeypatch.setenv("TENONNX_PLUGINS", "-tenonnx-extensions")
    monkeypatch.setattr(extensions, "library", lambda: None)
    return tx.load(onnx.parser.parse_model(CUSTOM), registry=tx.Registry.installed())


@pytest.mark.parametrize("backend", ["onnxruntime", "auto"])
def test_ops_of_a_library_given_in_the_session_options_run(backend, custom):
    graph = custom
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(onnxruntime_extensions.get_library_path())
    program = graph.compile(backend, session_options=options)
    assert program.backend == "onnxruntime"
    result = program({"x": np.float32([[2, 0], [0, -4]])})["y"]
    np.testing.assert_allclose(result, [[0.5, 0], [0, 0]])


def test_without_their_library_they_are_refused_saying_what_to_give(custom):
    with pytest.raises(tx.UnsupportedOp, match="cannot run the graph") as caught:
        custom.compile("onnxruntime")
    assert "ai.onnx.contrib:Inverse" in caught.value.given
    assert "give session_options with the library that has these ops" in caught.value.do


def test_ops_that_only_a_library_defines_are_not_lowered(custom):
    graph = custom
    for run in (lambda: graph.compile("numpy"), lambda: tx.decompose(graph, keep=lambda call: False)):
        with pytest.raises(tx.UnsupportedOp, match="no installed package provides 1 of its ops") as caught:
            run()
        assert "ai.onnx.contrib::Inverse@1: 1 node" in caught.value.given
    with pytest.raises(tx.NotRepresentable) as caught:
        tx.retarget(graph, 13, domains=["ai.onnx"])
    assert "no installed package knows the op" in caught.value.given


def test_other_nodes_are_rewritten_around_them(graph):
    model = onnx.parser.parse_model(MODEL.replace("float[n, 4] x", "double[n, 4] x").replace("Relu", "Celu"))
    cast = onnx.helper.make_node("Cast", ["c"], ["r"], to=onnx.TensorProto.FLOAT)  # Celu has only a float32 kernel
    model.graph.node[0].output[0] = "c"
    model.graph.node.insert(1, cast)
    result = tx.load(model, registry=graph.registry).run({"x": np.abs(X).astype(np.float64)}, backend="onnxruntime")
    np.testing.assert_allclose(result["y"], np.abs(X) / (1 + np.exp(-1.702 * np.abs(X))), rtol=1e-5)


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
