"""Files of every age and domain: their modes, and initializers that are inputs, too."""

import io

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from trained_models import EXAMPLES, X, contents

import tenonnx as tx
import tenonnx_training as tt
from tenonnx_standard.loss import softmax_cross_entropy_loss
from tenonnx_standard.shape import transpose

W = np.float32([[1, 0, 2], [0, 1, -1]])
ZEROS = np.zeros((4, 3), np.float32)
START = {"scale": 1.0, "shift": 0.0, "mean": 0.5, "variance": 2.0}


@pytest.fixture(params=["numpy", "onnxruntime"])
def backend(request):
    return request.param


def written(node, opset, initializers, *, ir_version=8, inputs=("x",)):
    """``x @ w`` and one more node, as a file."""
    given = {name: [None, 2] if name == "x" else list(np.shape(initializers[name])) for name in inputs}
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), node],
        "old",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in given.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 3])],
        [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in initializers.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)


def normalising(opset, *, training, **options):
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
    step = tt.TrainingStep(graph, "mean_squared_error", tt.SGD(0.1), trainable="w", backend=backend, **options)
    return step, {"x": X, "target": ZEROS}


MODES = [(opset, training) for opset in (7, 9, 14, 15) for training in (False, True)]


@pytest.mark.parametrize(("opset", "training"), MODES)
def test_batch_normalization_of_every_version(opset, training, backend):
    step, batch = stepped(normalising(opset, training=training), backend)
    h = X @ W
    assert step(batch)["loss"] == pytest.approx(1, rel=1e-4)  # by the statistics of the batch
    found = contents(step.write_back())
    np.testing.assert_allclose(found["mean"], 0.9 * 0.5 + 0.1 * h.mean(0), rtol=1e-6)
    np.testing.assert_allclose(found["variance"], 0.9 * 2.0 + 0.1 * h.var(0), rtol=1e-6)
    used = (X @ found["w"] - found["mean"]) / np.sqrt(found["variance"] + 1e-5)
    assert step.evaluate(batch)["loss"] == pytest.approx(np.mean(used**2), rel=1e-4)


DROPOUTS = [(opset, False) for opset in (7, 10, 12, 13)] + [(12, True), (13, True)]


@pytest.mark.parametrize(("opset", "training"), DROPOUTS)
def test_dropout_of_every_version(opset, training, backend):
    step, batch = stepped(dropping(opset, training=training), backend)
    whole = np.mean((X @ W) ** 2)
    assert step.evaluate(batch)["loss"] == pytest.approx(whole, rel=1e-6)
    losses = [step(batch, learning_rate=0.0)["loss"] for _ in range(200)]
    assert len(set(losses)) > 20
    assert np.mean(losses) == pytest.approx(2 * whole, rel=0.1)  # the ratio of the file is 0.5


def test_initializers_that_are_inputs(backend):
    """As all files up to IR version 3 have them."""
    inputs = ("x", "w", *START)
    model = normalising(7, training=False, ir_version=3, inputs=inputs)
    step, batch = stepped(model, backend)
    assert tx.load(model).inputs[0].name == "x"
    first = step(batch)["loss"]
    assert step(batch)["loss"] < first * 1.01
    graph = step.write_back()
    stream = io.BytesIO()
    tx.export(graph, stream)
    found = onnx.load_model_from_string(stream.getvalue())
    assert found.ir_version == 3
    assert [value.name for value in found.graph.input] == list(inputs)
    changed = [a.name for a, b in zip(model.graph.initializer, found.graph.initializer, strict=True) if a != b]
    assert changed == ["w", "mean", "variance"]
    y = graph.run({"x": X}, backend=backend)["y"]
    assert step.evaluate(batch)["loss"] == pytest.approx(np.mean(y**2), rel=1e-5)


def next_token(logits, target):
    loss, _ = softmax_cross_entropy_loss(transpose(logits, perm=[0, 2, 1]), target)
    return loss


def test_a_decoder_of_contributed_ops_is_tuned(backend):
    pytest.importorskip("tenonnx_contrib_ms")
    path = EXAMPLES / "decoder" / "decoder.onnx"
    graph = tx.load(path)
    loss = tt.FunctionLoss(next_token, tx.TensorType(tx.DType.int64, ("batch", "sequence")))
    options = {"trainable": ["layers.*", "first_norm.weight", "embedding.weight"], "backend": backend}
    step = tt.TrainingStep(graph, tt.Objective(loss, output="logits"), tt.Adam(3e-3), **options)
    batch = dict(np.load(EXAMPLES / "decoder" / "samples.npz"))
    batch["target"] = np.roll(batch["input_ids"], -1, axis=1)
    losses = [step(batch)["loss"] for _ in range(4)]
    assert losses[3] < 0.9 * losses[0]
    assert step.evaluate(batch)["loss"] < losses[3]
    stream = io.BytesIO()
    tx.export(step.write_back(), stream)
    found, original = onnx.load_model_from_string(stream.getvalue()), onnx.load(path)
    assert found.graph.node == original.graph.node
    changed = {a.name for a, b in zip(found.graph.initializer, original.graph.initializer, strict=True) if a != b}
    assert changed == set(step.made.parameters)
