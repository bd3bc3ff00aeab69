"""Model files with operators of com.microsoft."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tenonnx as tx
from tenonnx.formats.onnx.writer import to_model

MS = "com.microsoft"


def model(nodes, opsets, *, dtype=TensorProto.FLOAT, functions=()):
    infos = [helper.make_tensor_value_info(name, dtype, [2, 3]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "facts", infos[:1], infos[1:])
    imports = [helper.make_opsetid(*opset) for opset in opsets]
    return helper.make_model(graph, opset_imports=imports, ir_version=9, functions=list(functions))


X = np.array([[-1.0, 0.5, 2.0], [0.0, 1.0, -3.0]], np.float32)


def test_the_import_of_the_domain_may_be_missing():
    """onnxruntime's tools omit the opset import; the domain has only version 1."""
    made = model([helper.make_node("QuickGelu", ["x"], ["y"], domain=MS, alpha=1.0)], [("", 17)])
    graph = tx.load(made)
    (y,) = graph.run({"x": X}, backend="numpy").values()
    np.testing.assert_allclose(y, X / (1 + np.exp(-X)), rtol=1e-5)
    assert to_model(graph).SerializeToString() == made.SerializeToString()
    assert {node.domain for node in tx.retarget(graph, 13, domains=["ai.onnx"]).nodes} == {"ai.onnx"}


def test_a_function_of_the_file_wins():
    body = [helper.make_node("Neg", ["X"], ["Y"])]
    function = helper.make_function(MS, "QuickGelu", ["X"], ["Y"], body, [helper.make_opsetid("", 17)])
    made = model([helper.make_node("QuickGelu", ["x"], ["y"], domain=MS)], [("", 17), (MS, 1)], functions=[function])
    graph = tx.load(made)
    (y,) = graph.run({"x": X}, backend="numpy").values()
    np.testing.assert_array_equal(y, -X)
    assert [node.op_type for node in tx.retarget(graph, 13, domains=["ai.onnx"]).nodes] == ["Neg"]


def test_two_float_types_in_one_call():
    """Streams in float16 with weights in float32."""
    weights = helper.make_node("Constant", [], ["scale"], value=onnx.numpy_helper.from_array(np.float32([1, 2, 3])))
    node = helper.make_node("BranchwiseRMSNorm", ["x", "scale"], ["y"], domain=MS, num_branches=1)
    graph = tx.load(model([weights, node], [("", 17), (MS, 1)], dtype=TensorProto.FLOAT16))
    x = X.astype(np.float16)
    (y,) = graph.run({"x": x}, backend="numpy").values()
    wide = x.astype(np.float32)
    expected = wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + 1e-5) * np.float32([1, 2, 3])
    assert y.dtype == np.float16
    np.testing.assert_allclose(y, expected, rtol=2e-3)


def test_a_node_that_writes_to_an_address_is_read_but_not_run():
    names = ["next_tokens", "input_ids", "status", "ctl", "ctx_commit", "prefixes", "ptrs"]
    node = helper.make_node("SpeculativePrefixCommit", ["x"] * len(names), ["y", "a", "b"], domain=MS)
    graph = tx.load(model([node], [("", 17), (MS, 1)]))
    assert tx.retarget(graph, 17).nodes[0].op_type == "SpeculativePrefixCommit"
    with pytest.raises(tx.TenonnxError, match="writes records to an address"):
        graph.run({"x": X}, backend="numpy")


@pytest.mark.parametrize(
    ("op_type", "attributes"),
    [("EPContext", {"ep_cache_context": "binary", "main_context": 1}), ("Snpe", {"DLC": "binary"})],
)
def test_binaries_are_read_but_not_run(op_type, attributes):
    made = model([helper.make_node(op_type, ["x"], ["y"], domain=MS, **attributes)], [("", 17), (MS, 1)])
    graph = tx.load(made)
    assert to_model(graph).SerializeToString() == made.SerializeToString()
    assert tx.retarget(graph, 17).nodes[0].op_type == op_type
    why = "compiled for one device"
    with pytest.raises(tx.TenonnxError, match=why):
        graph.run({"x": X}, backend="numpy")
    with pytest.raises(tx.NotRepresentable, match=why):
        tx.retarget(graph, 17, domains=["ai.onnx"])


@pytest.mark.parametrize(
    ("op_type", "attributes", "message"),
    [
        ("CDist", {"metric": "cosine"}, "unknown metric"),
        ("MoE", {"activation_type": "tanh"}, "unknown activation_type"),
        ("MoE", {"k": 0}, "k is less than 1"),
        ("GatedRMSNorm", {"activation": "relu"}, "unknown activation"),
        ("UnfoldTensor", {"size": 0}, "size is less than 1"),
        (
            "NGramHashMapping",
            {"max_ngram_size": 1, "n_head_per_ngram": 1, "pad_id": 0},
            "max_ngram_size is less than 2",
        ),
        ("Rfft", {"normalized": 1}, "unknown normalized"),
        ("IsAllFinite", {"isinf_only": 1, "isnan_only": 1}, "are both 1"),
        ("GatedDeltaNet", {"update_rule": "other"}, "unknown update_rule"),
        ("CausalConvWithState", {"ndim": 4}, "unknown ndim"),
    ],
)
def test_attributes_are_checked_at_import(op_type, attributes, message):
    inputs = ["x"] * {"MoE": 5, "CDist": 2, "GatedRMSNorm": 3, "NGramHashMapping": 3, "CausalConvWithState": 2}.get(
        op_type, 1
    )
    made = model([helper.make_node(op_type, inputs, ["y"], domain=MS, **attributes)], [("", 17), (MS, 1)])
    if op_type == "MoE":
        made.graph.node[0].input[3] = ""
    with pytest.raises(tx.TenonnxError, match=message):
        tx.load(made)


def sparse_product(**contents):
    """Return a model of a product whose first operand is sparse."""
    node = helper.make_node("SparseToDenseMatMul", ["a", "b"], ["y"], domain=MS)
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3, 2]) for name in ("b", "y")]
    inputs = infos[:1] if contents else [helper.make_sparse_tensor_value_info("a", TensorProto.FLOAT, [3, 3]), infos[0]]
    graph = helper.make_graph([node], "sparse", inputs, infos[1:], **contents)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(MS, 1)])


def test_a_sparse_constant_is_multiplied():
    values = helper.make_tensor("a", TensorProto.FLOAT, [2], [1.0, 2.0])
    places = helper.make_tensor("places", TensorProto.INT64, [2], [1, 5])
    graph = tx.load(sparse_product(sparse_initializer=[helper.make_sparse_tensor(values, places, [3, 3])]))
    b = np.float32([[1, 2], [3, 4], [5, 6]])
    expected = np.float32([[3, 4], [10, 12], [0, 0]])
    for made in (graph, tx.retarget(graph, 13, domains=["ai.onnx"])):
        np.testing.assert_array_equal(made.run({"b": b}, backend="numpy")["y"], expected)


def test_a_sparse_input_is_refused():
    with pytest.raises(tx.UnknownType, match='value "a" is not a tensor of known dtype') as caught:
        tx.load(sparse_product()).compile("numpy")
    assert caught.value.do == "declare a dense tensor; of what is sparse, only constants are computed with"


def normalized(read):
    """Return a model of skip normalization with a named mean output, which optionally has a consumer."""
    scale = helper.make_node("Constant", [], ["scale"], value=onnx.numpy_helper.from_array(np.ones(3, np.float32)))
    outputs = ["y", "mean", "deviation"] if not read else ["z", "y", "deviation"]
    node = helper.make_node("SkipLayerNormalization", ["x", "x", "scale"], outputs, domain=MS, epsilon=1e-5)
    return tx.load(model([scale, node], [("", 17), (MS, 1)]))


def test_named_statistics_without_a_consumer():
    """onnxruntime's optimizer keeps the names of unused outputs in its files."""
    graph = normalized(read=False)
    expected = (X - X.mean(-1, keepdims=True)) / X.std(-1, keepdims=True)
    for made in (graph, tx.retarget(graph, 17, domains=["ai.onnx"])):
        np.testing.assert_allclose(made.run({"x": X}, backend="numpy")["y"], expected, rtol=1e-4)


def test_statistics_with_a_consumer_are_computed():
    """onnxruntime computes the mean of the sum, over the last axis."""
    result = normalized(read=True).run({"x": X}, backend="numpy")["y"]
    np.testing.assert_allclose(result, 2 * X.mean(-1, keepdims=True), rtol=1e-5, atol=1e-6)
