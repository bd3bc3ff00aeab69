"""Low-rank adapters: trained alone, a small file, merged into the same file with other initializers."""

import io

import numpy as np
import onnx
import pytest
from trained_models import EXAMPLES, digits

import tenonnx as tx
import tenonnx_standard as ops
import tenonnx_training as tt
from tenonnx.errors import InvalidCall


def exported(graph):
    stream = io.BytesIO()
    tx.export(graph, stream)
    onnx.checker.check_model(onnx.load_model_from_string(stream.getvalue()), full_check=True)
    return onnx.load_model_from_string(stream.getvalue())


def tuned(patterns, **options):
    graph, images, labels = digits()
    adapted = tt.lora(graph, patterns, **options)
    history = tt.fit(
        adapted, (images[:64], labels[:64]), loss="softmax_cross_entropy", optimizer=tt.Adam(1e-2), epochs=5,
        frozen_statistics=True, backend="numpy",
    )  # fmt: skip
    assert min(epoch["loss"] for epoch in history.epochs) < history.epochs[0]["loss"]
    return graph, adapted, images[64:96]


@pytest.mark.parametrize("patterns", ["classifier.*", ["*.conv*", "classifier.*"]])
def test_adapters_alone_are_trained_and_merge(patterns, tmp_path):
    graph, adapted, images = tuned(patterns, rank=2, alpha=4)
    before = {v.name: v.data.array() for v in digits()[0].variables}
    for value in adapted.variables:
        if value.name in before:
            assert value.data.array().tobytes() == before[value.name].tobytes()
        else:
            assert ".lora_" in value.name
            assert np.any(value.data.array())
    y = next(iter(adapted.run({"images": images}).values()))
    whole = tt.merged(graph, adapted)
    np.testing.assert_allclose(next(iter(whole.run({"images": images}).values())), y, rtol=1e-4, atol=1e-5)
    ours, theirs = exported(whole), onnx.load(EXAMPLES / "digits_cnn" / "digits-cnn.onnx")
    assert ours.graph.node == theirs.graph.node
    changed = [a.name for a, b in zip(ours.graph.initializer, theirs.graph.initializer, strict=True) if a != b]
    assert len(changed) == sum(".lora_A." in v.name for v in adapted.variables)
    assert all(name.endswith(".weight") for name in changed)
    exported(adapted)
    tt.save_adapters(adapted, tmp_path / "adapter.safetensors")
    again = tt.load_adapters(graph, tmp_path / "adapter.safetensors")
    np.testing.assert_array_equal(next(iter(again.run({"images": images}).values())), y)


def test_nothing_changes_before_training():
    graph, images, _ = digits()
    adapted = tt.lora(graph, "classifier.*", rank=1)
    found, expected = (next(iter(g.run({"images": images[:4]}).values())) for g in (adapted, graph))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert [v.name for v in adapted.outputs] == [v.name for v in graph.outputs]
    assert len(graph.nodes) < len(adapted.nodes)


def test_an_adapter_file_is_small_and_named_as_peft_does(tmp_path):
    _, adapted, _ = tuned("classifier.*", rank=1)
    path = tmp_path / "adapter.safetensors"
    tt.save_adapters(adapted, path)
    assert path.stat().st_size < 4096
    text = path.read_bytes()[:2048]
    for letter in "AB":
        assert f"base_model.model.classifier.lora_{letter}.weight".encode() in text


def linear():
    graph = tx.Graph(opsets={"ai.onnx": 21})
    weights = [graph.variable(f"{name}.weight", np.eye(16, dtype=np.float32)) for name in ("first", "second")]
    x = graph.input("x", "float32", ("batch", 16))
    y = ops.gemm(ops.relu(x @ weights[0]), weights[1], transB=1, alpha=0.5)
    graph.output("y", y)
    return graph


def test_several_adapters_stand_side_by_side():
    graph, x = linear(), np.random.default_rng(0).normal(size=(3, 16)).astype(np.float32)
    random = np.random.default_rng(1)
    held = {f"first.lora_{k}": random.normal(size=s).astype(np.float32) for k, s in (("A", (2, 16)), ("B", (16, 2)))}
    other = {f"second.lora_{k}": random.normal(size=s).astype(np.float32) for k, s in (("A", (3, 16)), ("B", (16, 3)))}
    both = tt.lora(tt.lora(graph, "first.*", rank=2, name="one"), "second.*", rank=3, name="two")
    both.assign({f"{k.replace('_A', '_A.one').replace('_B', '_B.one')}.weight": v for k, v in held.items()})
    both.assign({f"{k.replace('_A', '_A.two').replace('_B', '_B.two')}.weight": v for k, v in other.items()})
    weights = [np.eye(16) + (held["first.lora_B"] @ held["first.lora_A"]).T]
    weights.append(np.eye(16) + other["second.lora_B"] @ other["second.lora_A"])
    expected = 0.5 * np.maximum(x @ weights[0], 0) @ weights[1].T
    np.testing.assert_allclose(both.run({"x": x}, backend="numpy")["y"], expected, rtol=1e-4, atol=1e-4)
    merged = tt.merged(tt.merged(graph, both, "one"), both, "two")
    np.testing.assert_allclose(merged.run({"x": x}, backend="numpy")["y"], expected, rtol=1e-4, atol=1e-4)


def test_a_quantised_weight_is_adapted_beside():
    graph = tx.Graph(opsets={"ai.onnx": 21})
    weight = graph.variable("w", np.arange(-8, 8, dtype=np.int8).reshape(4, 4))
    x = graph.input("x", "float32", ("batch", 4))
    graph.output("y", x @ ops.cast(weight, to=1))
    graph.nodes[-1].name = "/layer/MatMul"
    adapted = tt.lora(graph, "layer.*", rank=1)
    x, y = np.eye(4, dtype=np.float32), np.ones((4, 4), np.float32)
    history = tt.fit(adapted, (x, y), loss="mean_squared_error", optimizer=tt.Adam(0.1), epochs=20, batch_size=4)
    assert history.losses[-1] < 0.9 * history.losses[0]
    with pytest.raises(InvalidCall, match="weights that are variables"):
        tt.merged(graph, adapted)


def test_adapters_without_a_place():
    graph = linear()
    with pytest.raises(InvalidCall, match="fixed weight must match") as caught:
        tt.lora(graph, "third.*")
    assert "first.weight" in caught.value.available
    with pytest.raises(InvalidCall, match="rank"):
        tt.lora(graph, "first.*", rank=0)
    with pytest.raises(InvalidCall, match='adapters called "default"'):
        tt.save_adapters(graph, "nowhere")
