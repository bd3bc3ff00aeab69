"""Calls with redundant inputs or attributes that onnxruntime accepts."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import tenonnx as tx

RANDOM = np.random.default_rng(0)


def floats(*shape):
    return RANDOM.normal(size=shape).astype(np.float32)


def model_of(op, inputs, feeds, outputs=("y",), **attributes):
    node = helper.make_node(op, inputs, outputs, domain="com.microsoft", **attributes)
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in feeds.items()
    ]
    graph = helper.make_graph([node], "g", given, [onnx.ValueInfoProto(name="y")])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def assert_as_onnxruntime(model, feeds):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, feeds)[0]
    np.testing.assert_allclose(tx.load(model).run(feeds, backend="numpy")["y"], expected, rtol=1e-4, atol=1e-5)
    plain = tx.retarget(tx.load(model), 21, domains=["ai.onnx"])
    np.testing.assert_allclose(plain.run(feeds, backend="numpy")["y"], expected, rtol=1e-4, atol=1e-5)


def grouped(lengths, scales=()):
    feeds = {"q": floats(2, 3, 16), "k": floats(2, 3, 8), "v": floats(2, 3, 8)}
    feeds |= {"lengths": lengths, "total": np.int32([3])} | {name: floats(1) for name in scales}
    inputs = ["q", "k", "v", "", "", "lengths", "total", *(["", "", "", "", "", *scales] if scales else [])]
    return model_of("GroupQueryAttention", inputs, feeds, num_heads=2, kv_num_heads=1), feeds


@pytest.mark.parametrize("shape", [(2,), (2, 1), (1, 2), (2, 1, 1), (1, 2, 1)])
def test_lengths_of_keys_may_have_any_shape(shape):
    assert_as_onnxruntime(*grouped(np.full(shape, 2, np.int32)))


@pytest.mark.parametrize("shape", [(3,), (2, 2), (1,)])
def test_each_sequence_has_one_length(shape):
    model, _ = grouped(np.full(shape, 2, np.int32))
    with pytest.raises(tx.TenonnxError, match="seqlens_k does not hold one length for each"):
        tx.load(model).infer()


def test_scales_of_a_float_cache_are_ignored():
    assert_as_onnxruntime(*grouped(np.int32([2, 2]), scales=("k_scale", "v_scale")))


def embedded(*segments):
    feeds = {"ids": np.int32([[0, 1, 2], [2, 1, 0]]), "words": floats(5, 4), "places": floats(3, 4)}
    feeds |= {
        "gamma": floats(4),
        "beta": floats(4),
        "kinds": np.int32([[0, 1, 0], [1, 1, 0]]),
        "segments": floats(2, 4),
    }
    kinds, table = segments
    inputs = ["ids", kinds, "words", "places", table, "gamma", "beta"]
    feeds = {name: x for name, x in feeds.items() if name in inputs}
    return model_of("EmbedLayerNormalization", inputs, feeds, ["y", "counts"]), feeds


@pytest.mark.parametrize("segments", [("", ""), ("kinds", "segments"), ("", "segments")])
def test_words_without_segments_belong_to_the_first(segments):
    assert_as_onnxruntime(*embedded(*segments))


def test_segments_need_a_table():
    model, _ = embedded("kinds", "")
    with pytest.raises(tx.TenonnxError, match="segment_ids is given without segment_embedding"):
        tx.load(model).infer()
