"""Alternative names of ops: resolved if they are unambiguous, else answered with suggestions."""

import numpy as np
import onnx
import pytest

import tenonnx as tx
from tenonnx.extend import Op
from tenonnx.registry.discovery import Plugin, plugins

RANDOM = np.random.default_rng(0)


def node(domain, name, feeds, *, version=None, outputs=1, **attributes):
    """A model of one node with inputs of the types of ``feeds``."""
    value = onnx.helper.make_tensor_value_info
    inputs = [value(n, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()]
    made = onnx.helper.make_node(
        name, list(feeds), [f"y{k}" for k in range(outputs)], "it", domain=domain, **attributes
    )
    results = [onnx.helper.make_empty_tensor_value_info(name) for name in made.output]
    graph = onnx.helper.make_graph([made], "named", inputs, results)
    opsets = {"": 20, "com.microsoft": 1, "ai.onnx.ml": 3} | ({domain: version or 1} if domain else {})
    imports = [onnx.helper.make_opsetid(*entry) for entry in opsets.items()]
    return onnx.helper.make_model(graph, opset_imports=imports, ir_version=9)


def floats(*shape):
    return RANDOM.standard_normal(shape).astype("f4")


IMAGE = {"x": floats(1, 2, 4, 4)}
NORM = {"x": floats(2, 8), "scale": floats(8)}
EXPERTS = {
    "x": floats(3, 4),
    "router": floats(3, 2),
    "w1": floats(2, 8, 4),
    "b1": floats(2, 8),
    "w2": floats(2, 4, 8),
}
WORDS = {"x": np.array([[2, 3, 3, 2]], np.int32)}
COUNTED = {
    "max_gram_length": 1,
    "max_skip_count": 0,
    "min_gram_length": 1,
    "mode": "TF",
    "ngram_counts": [0],
    "ngram_indexes": [0, 1],
    "pool_int64s": [2, 3],
}

READ = {
    ("com.microsoft", "MixtureOfExperts"): ("com.microsoft", "MoE", EXPERTS, {"k": 1}),
    ("com.microsoft", "SimplifiedLayerNormalization"): ("", "SimplifiedLayerNormalization", NORM, {}),
    ("com.microsoft", "LayerNormalization"): ("", "LayerNormalization", NORM, {}),
    ("com.microsoft", "GlobalMaxPooling"): ("", "GlobalMaxPool", IMAGE, {}),
    ("", "GlobalAveragePooling"): ("", "GlobalAveragePool", IMAGE, {}),
    ("", "GlobalMaxPooling"): ("", "GlobalMaxPool", IMAGE, {}),
    ("", "QuickGelu"): ("com.microsoft", "QuickGelu", {"x": floats(5)}, {"alpha": 1.5}),
    ("", "NhwcConv"): ("com.microsoft", "NhwcConv", {"x": floats(1, 4, 4, 2), "w": floats(3, 3, 3, 2)}, {}),
    ("ai.onnx.ml", "TfIdfVectorizer"): ("", "TfIdfVectorizer", WORDS, COUNTED),
}


@pytest.mark.parametrize(("domain", "name"), READ)
def test_an_alternative_name_is_resolved(domain, name, tmp_path):
    real_domain, real, feeds, attributes = READ[domain, name]
    graph, meant = (tx.load(node(d, n, feeds, **attributes)) for d, n in ((domain, name), (real_domain, real)))
    (result,) = graph.nodes
    assert isinstance(result.op, Op)
    assert (result.domain, result.op_type) == (domain or "ai.onnx", name)
    expected = meant.run(feeds, backend="numpy")["y0"]
    for backend in ("numpy", "onnxruntime"):
        np.testing.assert_allclose(graph.run(feeds, backend=backend)["y0"], expected, rtol=1e-5, atol=1e-6)
    assert graph.outputs[0].type == meant.outputs[0].type
    plain = tx.retarget(graph, 17, domains=["ai.onnx"])
    assert all(n.domain == "ai.onnx" and n.op.is_specified_at(17) for n in plain.nodes)
    np.testing.assert_allclose(plain.run(feeds, backend="numpy")["y0"], expected, rtol=1e-5, atol=1e-6)
    tx.export(graph, tmp_path / "same.onnx")
    assert [n.op_type for n in onnx.load(tmp_path / "same.onnx").graph.node] == [name]
    assert tx.default_registry().source(result.op).startswith("tenonnx-")


def refusal(domain, name, registry=None):
    graph = tx.load(node(domain, name, {"x": floats(2)}), **({} if registry is None else {"registry": registry}))
    with pytest.raises(tx.UnsupportedOp) as caught:
        graph.run({"x": floats(2)}, backend="numpy")
    return str(caught.value)


@pytest.mark.parametrize(
    ("domain", "name", "answer"),
    [
        ("com.microsoft", "FooBar", "tenonnx-contrib-ms is installed, and has no such op"),
        ("com.microsoft", "BiasGeluu", "is it BiasGelu"),
        ("com.microsoft", "Softmax", "is it ai.onnx::Softmax"),
        ("", "Convv", "is it Conv"),
        ("", "SparseAttention", "is it com.microsoft::SparseAttention"),
        ("com.microsoft", "WindowedAttention", "use com.microsoft::GroupQueryAttention instead"),
        ("ai.onnx", "BatchNorm", "use ai.onnx::BatchNormalization instead"),
        ("ai.onnx", "SiLU", "use ai.onnx::Swish instead"),
    ],
)
def test_an_unknown_op_is_answered_with_suggestions(domain, name, answer):
    reported = refusal(domain, name)
    assert answer in reported
    assert "pip install" not in reported
    assert " instead; tenonnx ops " in reported or "write a package with the op" in reported


def test_a_missing_family_is_named():
    absent = ("tenonnx-contrib-ms", "tenonnx-extensions", "tenonnx-onnx-ml")
    registry = tx.Registry([p for p in plugins("tenonnx.ops") if p.distribution not in absent])
    assert "--find-links WHEELS tenonnx-contrib-ms" in refusal("com.microsoft", "BiasGelu", registry)
    assert "--find-links WHEELS tenonnx-extensions" in refusal("ai.onnx.contrib", "StringLength", registry)
    assert "--find-links WHEELS tenonnx-onnx-ml" in refusal("ai.onnx.ml", "Scaler", registry)
    assert "no installed package provides" in refusal("", "QuickGelu", registry)  # only a missing family has it


def test_a_family_that_fails_to_load_is_reported():
    broken = [
        Plugin(*(("nowhere_at_all" if field == "value" else getattr(p, field)) for field in Plugin._fields))
        if (p.distribution, p.name) == ("tenonnx-contrib-ms", "com.microsoft")
        else p
        for p in plugins("tenonnx.ops")
    ]
    with pytest.warns(tx.PluginWarning, match="could not be imported"):
        reported = refusal("com.microsoft", "BiasGelu", tx.Registry(broken))
    assert "tenonnx-contrib-ms failed to load" in reported
    assert "pip install" not in reported


def test_an_alias_must_mean_an_op_with_its_domain():
    registry = tx.Registry()
    with pytest.raises(tx.PluginError, match="an op with its domain"):
        registry.add_aliases("com.acme", {"Other": "Relu"})
