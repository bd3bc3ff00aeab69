"""Low-rank adapters: trained with frozen weights, saved in a small file, and merged."""

import io
import json

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from trained_models import EXAMPLES, contents, digits, dropping

import tenonnx as tx
import tenonnx_standard as ops
import tenonnx_training as tt
from tenonnx.errors import InvalidCall, InvalidModel
from tenonnx.extend.formats import Tensor, read_tensors, write_tensors


def exported(graph):
    stream = io.BytesIO()
    tx.export(graph, stream)
    onnx.checker.check_model(onnx.load_model_from_string(stream.getvalue()), full_check=True)
    return onnx.load_model_from_string(stream.getvalue())


def tuned(patterns, **options):
    graph, images, labels = digits()
    adapted = tt.lora(graph, patterns, **options)
    history = tt.fit(
        adapted,
        (images[:64], labels[:64]),
        loss="softmax_cross_entropy",
        optimizer=tt.Adam(1e-2),
        epochs=5,
        backend="numpy",
    )
    assert min(epoch["loss"] for epoch in history.epochs) < history.epochs[0]["loss"]
    return graph, adapted, images[64:96]


@pytest.mark.parametrize("patterns", ["classifier.*", ["*.conv*", "classifier.*"]])
def test_only_adapters_are_trained_and_they_merge(patterns, tmp_path):
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
    result, expected = (next(iter(g.run({"images": images[:4]}).values())) for g in (adapted, graph))
    np.testing.assert_allclose(result, expected, rtol=1e-6)
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


def test_one_model_has_several_adapters():
    graph, x = linear(), np.random.default_rng(0).normal(size=(3, 16)).astype(np.float32)
    random = np.random.default_rng(1)
    arrays = {f"first.lora_{k}": random.normal(size=s).astype(np.float32) for k, s in (("A", (2, 16)), ("B", (16, 2)))}
    other = {f"second.lora_{k}": random.normal(size=s).astype(np.float32) for k, s in (("A", (3, 16)), ("B", (16, 3)))}
    both = tt.lora(tt.lora(graph, "first.*", rank=2, name="one"), "second.*", rank=3, name="two")
    both.assign({f"{k.replace('_A', '_A.one').replace('_B', '_B.one')}.weight": v for k, v in arrays.items()})
    both.assign({f"{k.replace('_A', '_A.two').replace('_B', '_B.two')}.weight": v for k, v in other.items()})
    weights = [np.eye(16) + (arrays["first.lora_B"] @ arrays["first.lora_A"]).T]
    weights.append(np.eye(16) + other["second.lora_B"] @ other["second.lora_A"])
    expected = 0.5 * np.maximum(x @ weights[0], 0) @ weights[1].T
    np.testing.assert_allclose(both.run({"x": x}, backend="numpy")["y"], expected, rtol=1e-4, atol=1e-4)
    merged = tt.merged(tt.merged(graph, both, "one"), both, "two")
    np.testing.assert_allclose(merged.run({"x": x}, backend="numpy")["y"], expected, rtol=1e-4, atol=1e-4)


def test_an_adapter_of_a_quantized_weight_is_added_to_its_output():
    graph = tx.Graph(opsets={"ai.onnx": 21})
    weight = graph.variable("w", np.arange(-8, 8, dtype=np.int8).reshape(4, 4))
    x = graph.input("x", "float32", ("batch", 4))
    graph.output("y", x @ ops.cast(weight, to=1))
    graph.nodes[-1].name = "/layer/MatMul"
    adapted = tt.lora(graph, "layer.*", rank=1)
    x, y = np.eye(4, dtype=np.float32), np.ones((4, 4), np.float32)
    history = tt.fit(adapted, (x, y), loss="mean_squared_error", optimizer=tt.Adam(0.1), epochs=20, batch_size=4)
    assert history.losses[-1] < 0.9 * history.losses[0]
    with pytest.raises(InvalidCall, match="not a floating-point initializer"):
        tt.merged(graph, adapted)


def quantized(kind):
    """``x @ w`` with per-channel 8-bit weights in DequantizeLinear, or blockwise 4-bit ones in MatMulNBits."""
    random = np.random.default_rng(0)
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 32])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", 8])
    if kind == "int8":
        held = {
            "w_quantized": random.integers(-128, 128, (8, 32)).astype(np.int8),
            "w_scale": random.uniform(0.001, 0.002, 8).astype(np.float32),
        }
        nodes = [
            helper.make_node("DequantizeLinear", ["w_quantized", "w_scale"], ["w_float"], axis=0),
            helper.make_node("Transpose", ["w_float"], ["w"], perm=[1, 0]),
            helper.make_node("MatMul", ["x", "w"], ["y"], name="/encoder/query/MatMul"),
        ]
    else:
        held = {
            "w_Q4": random.integers(0, 256, (8, 2, 8)).astype(np.uint8),
            "w_scales": random.uniform(0.01, 0.02, 16).astype(np.float32),
        }
        how = {"K": 32, "N": 8, "bits": 4, "block_size": 16, "domain": "com.microsoft"}
        nodes = [helper.make_node("MatMulNBits", ["x", *held], ["y"], name="/encoder/query/MatMul_Q4", **how)]
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in held.items()]
    graph = helper.make_graph(nodes, kind, [x], [y], tensors)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_frozen_weights_of_few_bits_are_adapted(kind, backend, tmp_path):
    model = quantized(kind)
    graph, random = tx.load(model), np.random.default_rng(1)
    adapted = tt.lora(graph, "*query*", rank=2)
    x = random.normal(size=(64, 32)).astype(np.float32)
    before = graph.run({"x": x}, backend=backend)["y"]
    expected = before + x @ (random.normal(size=(32, 2)) @ random.normal(size=(2, 8)) * 0.1).astype(np.float32)
    how = {"loss": "mean_squared_error", "optimizer": tt.Adam(0.02), "epochs": 40, "batch_size": 64}
    history = tt.fit(adapted, (x, expected), backend=backend, **how)
    assert history.losses[-1] < 0.2 * history.losses[0]
    written = exported(adapted)
    kept = {tensor.name: tensor for tensor in written.graph.initializer}
    assert all(kept[tensor.name] == tensor for tensor in model.graph.initializer)
    assert sorted(kept.keys() - {tensor.name for tensor in model.graph.initializer}) == [
        f"encoder.query.lora_{letter}.default.weight" for letter in "AB"
    ]
    assert {"DequantizeLinear", "MatMulNBits"} & {node.op_type for node in written.graph.node}
    session = onnxruntime.InferenceSession(written.SerializeToString())
    y = adapted.run({"x": x}, backend=backend)["y"]
    assert np.abs(session.run(None, {"x": x})[0] - y).max() < 0.03  # onnxruntime computes in eight bits where it can
    tt.save_adapters(adapted, tmp_path / "adapter.safetensors")
    assert (tmp_path / "adapter.safetensors").stat().st_size < 2048
    again = tt.load_adapters(graph, tmp_path / "adapter.safetensors")
    np.testing.assert_array_equal(again.run({"x": x}, backend=backend)["y"], y)
    with pytest.raises(InvalidCall, match="not a floating-point initializer"):
        tt.merged(graph, adapted)


def test_one_weight_has_several_adapters():
    graph, x = linear(), np.random.default_rng(0).normal(size=(3, 16)).astype(np.float32)
    both = tt.lora(tt.lora(graph, "first.*", rank=2, name="one"), "first.*", rank=3, name="two")
    added = [value.name for value in both.variables if ".lora_" in value.name]
    assert added == [f"first.lora_{letter}.{name}.weight" for name in ("one", "two") for letter in "AB"]
    random = np.random.default_rng(1)
    by_name = {v.name: random.normal(size=v.shape).astype(np.float32) for v in both.variables if v.name in added}
    both.assign(by_name)
    a1, b1, a2, b2 = (by_name[name] for name in added)
    whole = np.eye(16, dtype=np.float32) + (b1 @ a1).T + (b2 @ a2).T
    expected = 0.5 * np.maximum(x @ whole, 0)
    np.testing.assert_allclose(both.run({"x": x}, backend="numpy")["y"], expected, rtol=1e-4, atol=1e-4)
    merged = tt.merged(tt.merged(graph, both, "one"), both, "two")
    np.testing.assert_allclose(merged.run({"x": x}, backend="numpy")["y"], expected, rtol=1e-4, atol=1e-4)
    step = tt.TrainingStep(both, "mean_squared_error", trainable="*.two.*", backend="numpy")
    step({"x": x, "labels": 0 * x})
    step.write_back()
    moved = [v.name for v in both.variables if v.name in by_name and np.any(v.data.array() != by_name[v.name])]
    assert moved == added[2:]


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_the_scale_of_a_peft_file_is_in_its_configuration(dtype, tmp_path):
    """PEFT writes adapter_model.safetensors, and adapter_config.json with lora_alpha and r."""
    random, kind = np.random.default_rng(0), {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}[dtype]
    arrays = {letter: random.normal(size=shape).astype(kind) for letter, shape in (("A", (2, 16)), ("B", (16, 2)))}
    path = tmp_path / "adapter_model.safetensors"
    tensors = [
        Tensor(f"base_model.model.first.lora_{letter}.weight", dtype, array.shape, array.nbytes, array.tobytes)
        for letter, array in arrays.items()
    ]
    write_tensors(path, tensors, {"format": "pt"})
    with pytest.raises(InvalidCall, match="lacks lora_alpha or r") as caught:
        tt.load_adapters(linear(), path)
    assert caught.value.do == "scale=alpha / rank"
    (tmp_path / "adapter_config.json").write_text(json.dumps({"r": 2, "lora_alpha": 8}))
    graph, x = linear(), np.eye(16, dtype=np.float32)
    whole = x + 4 * (arrays["B"].astype(np.float32) @ arrays["A"].astype(np.float32)).T
    result = tt.load_adapters(graph, path).run({"x": x}, backend="numpy")["y"]
    np.testing.assert_allclose(result, 0.5 * np.maximum(whole, 0), rtol=1e-4, atol=1e-5)
    (tmp_path / "adapter_config.json").write_text(json.dumps({"r": 0, "lora_alpha": 8}))
    with pytest.raises(InvalidCall, match="scale of the adapters"):
        tt.load_adapters(graph, path)


def ranks_of(graph):
    return {v.name: v.shape[0] for v in graph.variables if ".lora_A." in v.name}


def test_ranks_by_pattern(tmp_path):
    patterns = ["*.conv*", "classifier.*"]
    graph, adapted, images = tuned(patterns, rank={"classifier.*": 4, "*": 2}, alpha=8)
    assert sorted(set(ranks_of(adapted).values())) == [2, 4]
    assert [rank for name, rank in ranks_of(adapted).items() if "classifier" in name] == [4]
    y = next(iter(adapted.run({"images": images}).values()))
    whole = next(iter(tt.merged(graph, adapted).run({"images": images}).values()))
    np.testing.assert_allclose(whole, y, rtol=1e-4, atol=1e-5)
    tt.save_adapters(adapted, tmp_path / "adapter.safetensors")
    again = tt.load_adapters(graph, tmp_path / "adapter.safetensors")
    np.testing.assert_array_equal(next(iter(again.run({"images": images}).values())), y)


@pytest.mark.parametrize(
    ("rank", "message"),
    [
        ({}, "not a positive integer"),
        ({"*": 0}, "not a positive integer"),
        ({"classifier.*": 2}, "no pattern of rank matches"),
        ({"nothing": 2, "*": 1}, 'pattern of rank "nothing" matches no adapted weight'),
    ],
)
def test_ranks_that_do_not_fit(rank, message):
    with pytest.raises(InvalidCall, match=message):
        tt.lora(digits()[0], ["*.conv*", "classifier.*"], rank=rank)


def test_scales_of_modules_that_are_damaged():
    adapted = tt.lora(digits()[0], ["*.conv*", "classifier.*"], rank={"classifier.*": 4, "*": 2}, alpha=8)
    for text in ("{}", "[", '"x"', "null", "[" * 100_000, "1" * 400):
        adapted.metadata["tenonnx.lora.default"] = text
        with pytest.raises(InvalidCall, match="unknown scale of the adapter of"):
            tt.merged(digits()[0], adapted)


def test_patterns_of_ranks_and_alphas_of_peft(tmp_path):
    adapted = tt.lora(linear(), "first.*", rank=4, alpha=6)
    tt.save_adapters(adapted, tmp_path / "own.safetensors")
    entries, _ = read_tensors(tmp_path / "own.safetensors", mapped=False)
    arrays = {name: np.frombuffer(entry.region.view(), np.uint8) for name, entry in entries.items()}
    tensors = [Tensor(n, e.dtype, e.shape, arrays[n].nbytes, arrays[n].tobytes) for n, e in entries.items()]
    write_tensors(tmp_path / "adapter_model.safetensors", tensors, {"format": "pt"})
    config = {"r": 2, "lora_alpha": 8, "rank_pattern": {"first": 4}, "alpha_pattern": {"fir.*": 6}}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    result = tt.load_adapters(linear(), tmp_path / "adapter_model.safetensors")
    assert json.loads(result.metadata["tenonnx.lora.default"]) == {"first": 1.5}
    for settings in ("[" * 100_000, json.dumps(config | {"lora_alpha": 10**400})):
        (tmp_path / "adapter_config.json").write_text(settings)
        with pytest.raises(InvalidCall, match="scale of the adapters"):
            tt.load_adapters(linear(), tmp_path / "adapter_model.safetensors")


def test_a_pattern_of_peft_that_takes_exponential_time_by_backtracking(tmp_path):
    held = {"A": np.zeros((2, 16), np.float32), "B": np.zeros((16, 2), np.float32)}
    tensors = [Tensor(f"{'a' * 40}.lora_{k}.weight", "F32", v.shape, v.nbytes, v.tobytes) for k, v in held.items()]
    write_tensors(tmp_path / "adapter_model.safetensors", tensors, {"format": "pt"})
    settings = {"r": 2, "lora_alpha": 8, "alpha_pattern": {"((a+)+)+!": 6}}
    (tmp_path / "adapter_config.json").write_text(json.dumps(settings))
    with pytest.raises(InvalidCall, match="match no module"):
        tt.load_adapters(linear(), tmp_path / "adapter_model.safetensors")


@pytest.mark.parametrize("text", ["[" * 100_000, "[]", '{"first": 1}', "{"])
def test_damaged_names_of_merged_parameters(text, tmp_path):
    adapted = tt.lora(linear(), "first.*", rank=4, alpha=6)
    tt.save_adapters(adapted, tmp_path / "own.safetensors")
    entries, told = read_tensors(tmp_path / "own.safetensors", mapped=False)
    arrays = {name: bytes(entry.region.view()) for name, entry in entries.items()}
    tensors = [Tensor(n, e.dtype, e.shape, len(arrays[n]), lambda n=n: arrays[n]) for n, e in entries.items()]
    write_tensors(tmp_path / "damaged.safetensors", tensors, told | {"tenonnx.lora.made_of": text})
    with pytest.raises(InvalidModel, match="lists no parameters by module"):
        tt.load_adapters(linear(), tmp_path / "damaged.safetensors")


def test_dropout_of_adapters_is_only_active_in_training():
    graph, images, labels = digits()
    plain, dropped = (tt.lora(graph, "classifier.*", rank=2, dropout=share, seed=1) for share in (0.0, 0.5))
    data, options = (images[:64], labels[:64]), {"loss": "softmax_cross_entropy", "backend": "numpy"}
    for each in (plain, dropped):
        each.assign({n.name: np.full(n.shape, 0.05, np.float32) for n in each.variables if ".lora_B." in n.name})
    result, expected = (next(iter(g.run({"images": images[:8]}).values())) for g in (dropped, plain))
    np.testing.assert_array_equal(result, expected)
    assert tt.evaluate(dropped, data, loss="softmax_cross_entropy") == tt.evaluate(
        plain, data, loss="softmax_cross_entropy"
    )
    assert tt.fit(dropped, data, **options).losses != tt.fit(plain, data, **options).losses
    np.testing.assert_allclose(
        next(iter(tt.merged(graph, dropped).run({"images": images[:8]}).values())),
        next(iter(dropped.run({"images": images[:8]}).values())),
        rtol=1e-4,
        atol=1e-5,
    )
    with pytest.raises(InvalidCall, match="not between 0 and 1"):
        tt.lora(graph, "classifier.*", dropout=1.0)


def test_one_percent_of_the_parameters_is_trained():
    """Rank 2 adapters of 512 x 512 weights."""
    graph = tx.Graph(opsets={"ai.onnx": 21})
    weight = graph.variable("layer.weight", np.eye(512, dtype=np.float32))
    graph.output("y", graph.input("x", "float32", ("batch", 512)) @ weight)
    adapted = tt.lora(graph, "*", rank=2)
    trained = tt.TrainingStep(adapted, "mean_squared_error", backend="numpy")._step_graph.parameters
    sizes = {v.name: v.data.array().size for v in adapted.variables if v.data is not None}
    assert sum(sizes[name] for name in trained) / sizes["layer.weight"] < 0.01


def tied(kind):
    """A weight with two readers: both plain, one transposed, or one a Gather."""
    graph = tx.Graph(opsets={"ai.onnx": 17})
    weight = graph.variable("w.weight", np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32))
    x = graph.input("x", "float32", ("batch", 4))
    if kind == "twice":
        graph.output("y", ops.tanh(x @ weight) @ weight)
    elif kind == "turned":
        graph.output("y", ops.tanh(x @ weight) @ ops.transpose(weight, perm=[1, 0]))
    elif kind == "gemm":
        graph.output("y", ops.gemm(ops.tanh(x @ weight), weight, transB=1))
    else:
        graph.output("y", ops.gather(weight, [1, 2]) @ ops.tanh(x @ weight))
    return graph


@pytest.mark.parametrize("kind", ["twice", "turned", "gemm"])
def test_a_weight_of_several_nodes_has_one_pair(kind):
    graph, random = tied(kind), np.random.default_rng(1)
    adapted = tt.lora(graph, "w.*", rank=2, alpha=3)
    pair = {v.name: random.normal(size=v.shape).astype(np.float32) for v in adapted.variables if ".lora_" in v.name}
    assert len(pair) == 2
    adapted.assign(pair)
    down, up = pair["w.lora_A.default.weight"], pair["w.lora_B.default.weight"]
    whole = graph["w.weight"].data.array() + 1.5 * (up @ down).T
    x = random.normal(size=(3, 4)).astype(np.float32)
    expected = np.tanh(x @ whole) @ (whole if kind == "twice" else whole.T)
    for each in (adapted, tt.merged(graph, adapted)):
        np.testing.assert_allclose(each.run({"x": x}, backend="numpy")["y"], expected, rtol=1e-5, atol=1e-5)


def test_other_consumers_of_a_weight_do_not_change():
    graph = tied("table")
    adapted = tt.lora(graph, "w.*", rank=1)
    with pytest.raises(InvalidCall, match="other nodes read it") as caught:
        tt.merged(graph, adapted)
    assert "Gather" in caught.value.given


def test_weights_with_one_path_are_distinguished():
    """An attention without biases after export: constants with made-up names below one module."""
    graph, random = tx.Graph(opsets={"ai.onnx": 17}), np.random.default_rng(0)
    y = graph.input("x", "float32", ("batch", 4))
    for k in (1, 2):
        y = y @ graph.variable(f"onnx::MatMul_{k}", random.normal(size=(4, 4)).astype(np.float32))
        graph.nodes[-1].name = f"/attention/MatMul_{k}"
    graph.output("y", y)
    adapted = tt.lora(graph, "attention.*", rank=1)
    assert sum(".lora_A." in v.name for v in adapted.variables) == 2


def test_patterns_are_those_of_trainable():
    graph = linear()
    adapted = tt.lora(graph, ["*", "!first.*"], rank=1)
    assert not any(v.name.startswith("first.lora") for v in adapted.variables)
    assert any(".lora_A." in v.name for v in adapted.variables)
    for patterns in (["first.*", "third.*"], ["first.*", "!third.*"]):
        with pytest.raises(InvalidCall, match="with a fixed weight matches") as caught:
            tt.lora(graph, patterns)
        assert caught.value.given == "third.*"
    with pytest.raises(InvalidCall, match="the adapters match no weight of the graph"):
        tt.lora(graph, ["*", "!*"])


def test_adapters_without_a_place():
    graph = linear()
    with pytest.raises(InvalidCall, match="fixed weight matches") as caught:
        tt.lora(graph, "third.*")
    assert "first.weight" in caught.value.available
    with pytest.raises(InvalidCall, match="rank"):
        tt.lora(graph, "first.*", rank=0)
    with pytest.raises(InvalidCall, match='adapters named "default"'):
        tt.save_adapters(graph, "nowhere")


def test_a_merged_model_is_in_inference_mode():
    """Merging a graph with Dropout in training mode gives one in inference mode."""
    graph = dropping(0.5)
    node = graph.nodes[-1]
    node.inputs = (*node.inputs[:2], graph.variable("training", np.array(True)))
    adapted = tt.lora(graph, "w", rank=1)
    adapted.assign({name: np.ones_like(v) for name, v in contents(adapted).items() if ".lora_" in name})
    x = np.ones((3, 2), np.float32)
    result = tt.merged(graph, adapted)
    np.testing.assert_array_equal(result.run({"x": x})["y"], np.full((3, 8), 4))
    assert np.any(tt.merged(graph, adapted, keep_training_form=True).run({"x": x})["y"] != 4)
