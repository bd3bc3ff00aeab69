"""Graphs of these ops on onnxruntime: with the library of onnxruntime-extensions, without it, and in parts."""

import numpy as np
import onnxruntime
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx_extensions.hashing import string_to_hash_bucket_fast
from tenonnx_extensions.strings import string_length, string_strip, string_upper
from tenonnx_onnxruntime import extensions

TEXTS = np.array([" ab ", "\u00dfa", ""], object)


@pytest.fixture
def lengths():
    """The lengths of strings in upper case without white space."""
    graph = tx.Graph(opsets={"ai.onnx": 21, "ai.onnx.contrib": 1})
    graph.output("y", string_length(string_upper(string_strip(graph.input("x", "string", ("n",))))))
    return graph


@pytest.fixture
def without_library(monkeypatch):
    extensions.has_op.cache_clear()
    monkeypatch.setattr(extensions, "library", lambda: None)
    yield
    extensions.has_op.cache_clear()


@pytest.mark.parametrize("backend", ["onnxruntime", "auto"])
def test_the_library_is_loaded(lengths, backend):
    program = lengths.compile(backend, strict=True)
    assert program.backend == "onnxruntime"
    assert program({"x": TEXTS})["y"].tolist() == [2, 2, 0]


def test_a_file_runs_in_a_default_session_with_the_library(lengths, tmp_path):
    lengths.save(tmp_path / "m.onnx")
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(extensions.library())
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", options)
    assert session.run(None, {"x": TEXTS})[0].tolist() == [2, 2, 0]


def test_without_the_library_numpy_runs_what_ai_onnx_cannot_express(lengths, without_library):
    with pytest.warns(tx.FallbackWarning, match="numpy runs the ops"):
        program = lengths.compile("onnxruntime")
    assert program.backend == "onnxruntime"
    assert program({"x": TEXTS})["y"].tolist() == [2, 2, 0]
    with pytest.raises(tx.UnsupportedOp, match="cannot run the graph"):
        lengths.compile("onnxruntime", strict=True)


def test_an_op_that_the_library_has_wrong_is_computed_by_its_definition():
    graph = tx.Graph(opsets={"ai.onnx": 21, "ai.onnx.contrib": 1})
    words = string_upper(graph.input("x", "string", ("n",)))
    buckets = string_to_hash_bucket_fast(words, graph.variable("buckets", np.int64([100])))
    graph.output("y", ops.gather(graph.variable("table", np.arange(100, dtype=np.float32) * 2), buckets))
    with pytest.warns(tx.FallbackWarning, match="numpy runs the ops"):
        program = graph.compile("onnxruntime")
    feeds = {"x": np.array(["a", "A", "b"], object)}
    np.testing.assert_array_equal(program(feeds)["y"], graph.run(feeds, backend="numpy")["y"])


def test_inputs_of_the_wrong_shape_are_refused(lengths):
    with pytest.raises(tx.InvalidFeed):
        lengths.compile("onnxruntime")({"x": TEXTS.reshape(1, -1)})


def test_buckets_are_those_of_tensorflow():
    """Fingerprint64 of FarmHash, as published for these words, by its length of data."""
    found = string_to_hash_bucket_fast(np.array(["a", "b"], object), np.int64([1000]))
    assert found.tolist() == [12917804110809363939 % 1000, 11795596070477164822 % 1000]
