"""Files of all opset versions and domains: training modes, and initializers that are graph inputs."""

import io

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from trained_models import EXAMPLES, X, contents

import tenonnx as tx
import tenonnx_training as tt
from tenonnx_standard.loss import softmax_cross_entropy_loss
from tenonnx_standard.shapes import transpose

W = np.float32([[1, 0, 2], [0, 1, -1]])
ZEROS = np.zeros((4, 3), np.float32)
START = {"scale": 1.0, "shift": 0.0, "mean": 0.5, "variance": 2.0}


@pytest.fixture(params=["numpy", "onnxruntime"])
def backend(request):
    return request.param


def written(node, opset, initializers, *, ir_version=8, inputs=("x",)):
    """A file with ``x @ w`` and one more node."""
    given = {name: [None, 2] if name == "x" else list(np.shape(initializers[name])) for name in inputs}
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), node],
        "old",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in given.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 3])],
        [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in initializers.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)


def normalizing(opset, *, training, **options):
    outputs = ["y", *["m", "v", "saved_m", "saved_v"][: 4 if opset < 14 else 2] * training]
    attributes = {"training_mode": 1} if training and opset >= 14 else {}
    node = helper.make_node("BatchNormalization", ["h", *START], outputs, **attributes)
    statistics = {name: np.full(3, number, np.float32) for name, number in START.items()}
    return written(node, opset, {"w": W, **statistics}, **options)


def dropping(opset, *, training=False, ratio=0.5):
    given, attributes, held = ["h"], {}, {"w": W}
    if opset < 12:
        attributes = {"ratio": ratio}
    else:
        given, held = ["h", "ratio"], {"w": W, "ratio": np.float32(ratio)}
        if training:
            given, held = [*given, "mode"], {**held, "mode": np.bool_(True)}
    return written(helper.make_node("Dropout", given, ["y"], **attributes), opset, held)


def stepped(model, backend, **options):
    graph = tx.load(model)
    step = tt.TrainingStep(graph, "mean_squared_error", tt.SGD(0.1), backend=backend, **options)
    return step, {"x": X, "labels": ZEROS}


MODES = [(opset, training) for opset in (7, 9, 14, 15) for training in (False, True)]


@pytest.mark.parametrize(("opset", "training"), MODES)
def test_batch_normalization_of_every_version(opset, training, backend):
    step, batch = stepped(normalizing(opset, training=training), backend)
    h = X @ W
    assert step(batch)["loss"] == pytest.approx(1, rel=1e-4)  # normalized by the batch
    result = contents(step.write_back())
    np.testing.assert_allclose(result["mean"], 0.9 * 0.5 + 0.1 * h.mean(0), rtol=1e-6)
    unbiased = opset >= 14 or not training  # a node that is already in training mode keeps its definition
    np.testing.assert_allclose(result["variance"], 0.9 * 2.0 + 0.1 * h.var(0, ddof=int(unbiased)), rtol=1e-6)
    used = (X @ result["w"] - result["mean"]) / np.sqrt(result["variance"] + 1e-5) * result["scale"] + result["shift"]
    assert step.evaluate(batch)["loss"] == pytest.approx(np.mean(used**2), rel=1e-4)


DROPOUTS = [(opset, False) for opset in (7, 10, 12, 13)] + [(12, True), (13, True)]


@pytest.mark.parametrize(("opset", "training"), DROPOUTS)
def test_dropout_of_every_version(opset, training, backend):
    step, batch = stepped(dropping(opset, training=training), backend)
    whole = np.mean((X @ W) ** 2)
    assert step.evaluate(batch)["loss"] == pytest.approx(whole, rel=1e-6)
    losses = [step(batch, learning_rate=0.0)["loss"] for _ in range(200)]
    assert len(set(losses)) > 20
    assert np.mean(losses) == pytest.approx(2 * whole, rel=0.1)  # the file has a ratio of 0.5


def test_the_step_of_an_old_file_is_a_newer_file(tmp_path):
    step, batch = stepped(normalizing(7, training=False), "numpy")
    step.export(tmp_path / "step.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "step.onnx")
    result = dict(zip([output.name for output in session.get_outputs()], session.run(None, batch), strict=True))
    assert result["loss"] == pytest.approx(step(batch, learning_rate=0.1)["loss"], rel=1e-5)
    np.testing.assert_allclose(result["w/next"], step.program.state["w"], rtol=1e-5, atol=1e-6)


def test_initializers_that_are_inputs(backend):
    """All initializers are inputs up to IR version 3."""
    inputs = ("x", "w", *START)
    model = normalizing(7, training=False, ir_version=3, inputs=inputs)
    step, batch = stepped(model, backend)
    assert tx.load(model).inputs[0].name == "x"
    first = step(batch)["loss"]
    assert step(batch)["loss"] < first * 1.01
    graph = step.write_back()
    stream = io.BytesIO()
    tx.export(graph, stream)
    result = onnx.load_model_from_string(stream.getvalue())
    assert result.ir_version == 3
    assert [value.name for value in result.graph.input] == list(inputs)
    changed = [a.name for a, b in zip(model.graph.initializer, result.graph.initializer, strict=True) if a != b]
    assert {*changed} - {"shift"} == {"w", "scale", "mean", "variance"}
    y = graph.run({"x": X}, backend=backend)["y"]
    assert step.evaluate(batch)["loss"] == pytest.approx(np.mean(y**2), rel=1e-5)


def next_token(logits, labels):
    loss, _ = softmax_cross_entropy_loss(transpose(logits, perm=[0, 2, 1]), labels)
    return loss


def test_a_decoder_of_contributed_ops_is_tuned(backend):
    pytest.importorskip("tenonnx_contrib_ms")
    path = EXAMPLES / "decoder" / "decoder.onnx"
    graph = tx.load(path)
    loss = tt.FunctionLoss(next_token, tx.TensorType(tx.DType.int64, ("batch", "sequence")))
    options = {"trainable": ["layers.*", "first_norm.weight", "embedding.weight"], "backend": backend}
    step = tt.TrainingStep(graph, loss, tt.Adam(3e-3), output="logits", **options)
    batch = dict(np.load(EXAMPLES / "decoder" / "samples.npz"))
    batch["labels"] = np.roll(batch["input_ids"], -1, axis=1)
    losses = [step(batch)["loss"] for _ in range(4)]
    assert losses[3] < 0.9 * losses[0]
    assert step.evaluate(batch)["loss"] < losses[3]
    stream = io.BytesIO()
    tx.export(step.write_back(), stream)
    result, original = onnx.load_model_from_string(stream.getvalue()), onnx.load(path)
    assert result.graph.node == original.graph.node
    changed = {a.name for a, b in zip(result.graph.initializer, original.graph.initializer, strict=True) if a != b}
    assert changed == set(step._step_graph.parameters)


def test_a_dropout_that_an_old_file_wants_is_off_in_use(backend):
    """Up to opset 6, Dropout drops unless ``is_test`` is set, and its mask has the dtype of the data."""
    node = helper.make_node("Dropout", ["h"], ["d", "mask"], ratio=0.5)
    model = written(node, 6, {"w": W})
    model.graph.node.append(helper.make_node("Mul", ["d", "mask"], ["y"]))
    step, batch = stepped(model, backend)
    whole = np.mean((X @ W) ** 2)
    assert step.evaluate(batch)["loss"] == pytest.approx(whole, rel=1e-6)
    losses = [step(batch, learning_rate=0.0)["loss"] for _ in range(200)]
    assert np.mean(losses) == pytest.approx(2 * whole, rel=0.1)


def test_normalization_in_training_without_its_statistics_is_off_in_use(backend):
    model = normalizing(15, training=True)
    del model.graph.node[1].output[1:]
    step, batch = stepped(model, backend)
    y = (X @ W - 0.5) / np.sqrt(2 + 1e-5)
    assert step.evaluate(batch)["loss"] == pytest.approx(np.mean(y**2), rel=1e-5)


def test_normalization_by_position_is_off_in_use():
    """Separate statistics for every position, which was allowed up to opset 8."""
    arrays = {name: np.full((2, 3), number, np.float32) + np.arange(3) / 4 for name, number in START.items()}
    outputs = ["y", "m", "v", "saved_m", "saved_v"]
    node = helper.make_node("BatchNormalization", ["x", *START], outputs, spatial=0)
    graph = helper.make_graph(
        [node],
        "by_position",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 2, 3])],
        [onnx.numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 7)], ir_version=8)
    step = tt.TrainingStep(tx.load(model), "mean_squared_error", tt.SGD(0.1), trainable="scale", backend="numpy")
    x = np.random.default_rng(0).normal(size=(5, 2, 3)).astype(np.float32)
    y = arrays["scale"] * (x - arrays["mean"]) / np.sqrt(arrays["variance"] + 1e-5) + arrays["shift"]
    batch = {"x": x, "labels": np.zeros_like(x)}
    assert step.evaluate(batch)["loss"] == pytest.approx(np.mean(y**2), rel=1e-5)
    assert step(batch)["loss"] != pytest.approx(np.mean(y**2), rel=0.1)


def nested(node, opset, held):
    """``x @ w`` and a node in a function within another function."""
    model = written(node, opset, held)
    inner, given = model.graph.node[1], ["h", *node.input[1:]]
    standard = helper.make_opsetid("", opset)
    own = helper.make_opsetid("own", 1)
    functions = [("Inner", inner), ("Outer", helper.make_node("Inner", given, ["y"], domain="own"))]
    for name, body in functions:
        model.functions.append(helper.make_function("own", name, given, ["y"], [body], [standard, own]))
    model.graph.node[1].CopyFrom(helper.make_node("Outer", given, ["y"], domain="own"))
    model.opset_import.append(own)
    return model


def test_dropout_in_a_function(backend):
    model = dropping(13)
    step, batch = stepped(nested(model.graph.node[1], 13, {"w": W, "ratio": np.float32(0.5)}), backend)
    plain, _ = stepped(model, backend)
    assert step.notes == plain.notes
    losses = [step(batch, learning_rate=0.0)["loss"] for _ in range(3)]
    assert losses == [plain(batch, learning_rate=0.0)["loss"] for _ in range(3)]
    assert len(set(losses)) == 3
    assert step.evaluate(batch)["loss"] == pytest.approx(np.mean((X @ W) ** 2), rel=1e-6)


def test_normalization_in_a_function(backend):
    model = normalizing(15, training=False)
    arrays = {name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer for name in [tensor.name]}
    runs = []
    for given in (model, nested(model.graph.node[1], 15, arrays)):
        step, batch = stepped(given, backend)
        runs.append(([step(batch)["loss"], step.evaluate(batch)["loss"]], contents(step.write_back())))
    assert runs[0][0] == runs[1][0]
    assert not np.array_equal(runs[0][1]["mean"], arrays["mean"])
    for name, array in runs[0][1].items():
        np.testing.assert_array_equal(array, runs[1][1][name])


def test_noise_in_a_function_follows_the_seed(backend):
    node = helper.make_node("RandomNormalLike", ["h"], ["y"])

    def losses(seed):
        model = nested(node, 17, {"w": W})
        model.graph.node[1].output[0] = "noise"
        model.graph.node.append(helper.make_node("Add", ["h", "noise"], ["y"]))
        step, batch = stepped(model, backend, seed=seed)
        return [step.evaluate(batch)["loss"], *(step(batch)["loss"] for _ in range(2)), step.evaluate(batch)["loss"]]

    assert losses(1) == losses(1)
    assert len({*losses(1), *losses(2)}) == 6  # steps and evaluations do not share random numbers
