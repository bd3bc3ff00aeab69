"""Ops of ai.onnx.contrib on onnxruntime, with and without the library of onnxruntime-extensions."""

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
    """A graph for the lengths of stripped strings in upper case."""
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


def test_numpy_computes_an_op_that_the_library_gets_wrong():
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


#: Buckets out of 2 ** 63 - 1 by string length, from ``tf.strings.to_hash_bucket_fast`` of TensorFlow 2.21.
TENSORFLOW = {
    0: 1936946117179621456,
    1: 1366698271136253306,
    3: 398699863598724094,
    4: 8425543508670559910,
    7: 8879765114474867592,
    8: 5102859526078303239,
    16: 4320848957565769301,
    17: 5162019803258432958,
    32: 3916272259504149091,
    33: 8241563171161551831,
    64: 919341830274840737,
    65: 8330986144681106620,
    127: 5530603573248089740,
    128: 6548702730867532314,
    129: 8870296586356828883,
    500: 7238989995836469367,
}


def test_buckets_equal_those_of_tensorflow():
    long = "The quick brown fox jumps over the lazy dog. " * 12
    texts = np.array([long[:length] for length in TENSORFLOW], object)
    assert string_to_hash_bucket_fast(texts, np.int64([2**63 - 1])).tolist() == list(TENSORFLOW.values())
    words = np.array(["hello", "h\u00e9llo", "\u65e5\u672c", "\U0001f642", ""], object)
    assert string_to_hash_bucket_fast(words, np.int64([1000])).tolist() == [296, 151, 883, 436, 263]
