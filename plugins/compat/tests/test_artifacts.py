"""onnxruntime-training's API on plain ONNX files: the documented example, comparison with PyTorch, invalid calls."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from trained_models import EXAMPLES, X, Y, contents, digits, dropping, linear

import tenonnx as tx
import tenonnx_standard as ops
import tenonnx_training as tt
from tenonnx.errors import InvalidCall, InvalidModel
from tenonnx.extend.formats import TrainingState
from tenonnx_compat.training import artifacts
from tenonnx_compat.training.api import CheckpointState, LinearLRScheduler, Module, Optimizer
from tenonnx_compat.training.artifacts import LossType, OptimType

FOLDER = Path(__file__).parents[2] / "training" / "tests" / "pytorch"


def test_the_documented_example_with_the_import_changed(tmp_path):
    """Source: https://onnxruntime.ai/docs/api/python/on_device_training, both pages."""
    _, images, labels = digits()
    model = onnx.load(EXAMPLES / "digits_cnn" / "digits-cnn.onnx")
    artifacts.generate_artifacts(
        model,
        requires_grad=["classifier.weight", "classifier.bias"],
        frozen_params=["block1.conv.weight"],
        loss=artifacts.LossType.CrossEntropyLoss,
        optimizer=artifacts.OptimType.AdamW,
        artifact_directory=tmp_path,
    )
    names = ("checkpoint", "eval_model.onnx", "optimizer_model.onnx", "training_model.onnx")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    state = CheckpointState.load_checkpoint(tmp_path / "checkpoint")
    module = Module(tmp_path / "training_model.onnx", state, tmp_path / "eval_model.onnx", device="cpu")
    optimizer = Optimizer(tmp_path / "optimizer_model.onnx", module)
    before = {name: parameter.data.copy() for name, parameter in state.parameters.items()}
    losses = []
    for epoch in range(2):
        for k in range(0, 320, 32):
            module.train()
            training_loss = module(images[k : k + 32], labels[k : k + 32])
            optimizer.step()
            module.lazy_reset_grad()
            losses.append(training_loss)
        state.properties["epoch"] = epoch
    module.eval()
    eval_loss = module(images[320:480], labels[320:480])
    assert np.mean(losses[-5:]) < np.mean(losses[:5])
    CheckpointState.save_checkpoint(state, tmp_path / "checkpoint")
    module.export_model_for_inferencing(tmp_path / "inference.onnx", ["scores"])
    used = tx.load(tmp_path / "inference.onnx")
    used = tt.evaluate(used, (images[320:480], labels[320:480]), loss="softmax_cross_entropy", batch_size=160)
    assert used["loss"] == pytest.approx(float(eval_loss), rel=1e-5)
    again = CheckpointState.load_checkpoint(tmp_path / "checkpoint")
    assert again.properties["epoch"] == 1
    changed = [name for name, array in before.items() if np.any(array != again.parameters[name].data)]
    assert changed == ["classifier.weight", "classifier.bias"]


def parts(folder, model, **options):
    """Generate artifacts, and load their state, module and optimizer."""
    artifacts.generate_artifacts(model, artifact_directory=folder, **options)
    state = CheckpointState.load_checkpoint(folder / "checkpoint")
    module = Module(folder / "training_model.onnx", state, folder / "eval_model.onnx")
    return state, module, Optimizer(folder / "optimizer_model.onnx", module)


def test_losses_and_statistics_are_those_of_a_training_step(tmp_path):
    data, graph = np.load(FOLDER / "cnn.npz"), tx.load(FOLDER / "cnn.onnx")
    how = {"loss": LossType.CrossEntropyLoss, "optimizer": tt.AdamW(3e-3, weight_decay=1e-2)}
    state, module, optimizer = parts(tmp_path, str(FOLDER / "cnn.onnx"), **how)
    assert optimizer.get_learning_rate() == 3e-3
    losses = []
    for x, labels in zip(data["x"], data["labels"], strict=True):
        losses.append(module(x, labels))
        optimizer.step()
        module.lazy_reset_grad()
    np.testing.assert_allclose(losses, data["adamw"], rtol=1e-4)
    step = tt.TrainingStep(graph, "softmax_cross_entropy", how["optimizer"])
    for x, labels in zip(data["x"], data["labels"], strict=True):
        step({"x": x, "labels": labels})
    for name, array in contents(step.write_back()).items():
        np.testing.assert_allclose(state.parameters[name].data, array, rtol=1e-4, atol=1e-6)


def test_stock_onnxruntime_drives_the_files(tmp_path):
    """Two sessions and numpy suffice, as in another language."""
    state, module, optimizer = parts(tmp_path, linear(), loss=LossType.MSELoss, optimizer=OptimType.SGD)
    sessions = {}
    for name in ("training_model", "optimizer_model"):
        onnx.checker.check_model(tmp_path / f"{name}.onnx", full_check=True)
        sessions[name] = onnxruntime.InferenceSession(tmp_path / f"{name}.onnx")
    tensors = {name: parameter.data for name, parameter in state.parameters.items()}
    tensors |= {f"{name}_grad.accumulation.buffer": np.zeros_like(array) for name, array in tensors.items()}
    tensors |= {"training__step": np.asarray(0)}

    def run(name, feeds):
        session = sessions[name]
        replaced = json.loads(session.get_modelmeta().custom_metadata_map["tenonnx.state"])
        expected = [value.name for value in session.get_inputs()]
        known = {**tensors, **feeds}
        results = session.run(None, {name: known[name] for name in expected})
        results = dict(zip([value.name for value in session.get_outputs()], results, strict=True))
        tensors.update({name: results[after] for name, after in replaced.items()})
        return results

    for _ in range(3):
        loss = run("training_model", {"x": X, "target": Y, "lazy_reset_grad": np.asarray(True)})["loss"]
        gradients = {f"{name}_grad": tensors[f"{name}_grad.accumulation.buffer"] for name in ("w", "b")}
        run("optimizer_model", {**gradients, "learning_rate": np.asarray(0.1, np.float32)})
        optimizer.set_learning_rate(0.1)
        assert module(X, Y) == pytest.approx(float(loss), rel=1e-5)
        optimizer.step()
        module.lazy_reset_grad()
    for name, parameter in state.parameters.items():
        np.testing.assert_allclose(parameter.data, tensors[name], rtol=1e-5)


def test_gradients_accumulate_until_they_are_reset(tmp_path):
    state, module, _ = parts(tmp_path, linear(), loss=LossType.L1Loss, optimizer=OptimType.AdamW)
    module(X, Y)
    once = state.parameters["w"].grad.copy()
    module(X, Y)
    np.testing.assert_allclose(state.parameters["w"].grad, 2 * once)
    module.lazy_reset_grad()
    module(X, Y)
    np.testing.assert_allclose(state.parameters["w"].grad, once)


def test_epsilon_of_adamw_is_added_as_onnxruntime_training_does(tmp_path):
    state, module, optimizer = parts(tmp_path, linear("float64"), loss=LossType.MSELoss, optimizer=OptimType.AdamW)
    x, y = X.astype(float), Y.astype(float) * 1e-6
    state.parameters["w"], state.parameters["b"] = np.zeros((2, 1)), np.zeros(1)
    w, m, v = np.zeros((2, 1)), np.zeros((2, 1)), np.zeros((2, 1))
    for t in range(1, 4):
        module(x, y)
        g = state.parameters["w"].grad
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        w = w - 1e-3 * np.sqrt(1 - 0.999**t) / (1 - 0.9**t) * m / (np.sqrt(v) + 1e-6)
        optimizer.step()
        module.lazy_reset_grad()
    np.testing.assert_allclose(state.parameters["w"].data, w, rtol=1e-6)


def test_a_checkpoint_restores_the_state_of_the_optimizer(tmp_path):
    state, module, optimizer = parts(tmp_path, dropping(), loss=LossType.MSELoss, optimizer=OptimType.AdamW)
    y = np.zeros((4, 8), np.float32)

    def train(module, optimizer):
        loss = module(X, y)
        optimizer.step()
        module.lazy_reset_grad()
        return float(loss)

    first = [train(module, optimizer) for _ in range(2)]
    assert first[0] != first[1]
    CheckpointState.save_checkpoint(state, tmp_path / "later", include_optimizer_state=True)
    expected = [train(module, optimizer) for _ in range(3)]
    state = CheckpointState.load_checkpoint(tmp_path / "later")
    module = Module(tmp_path / "training_model.onnx", state)
    optimizer = Optimizer(tmp_path / "optimizer_model.onnx", module)
    assert [train(module, optimizer) for _ in range(3)] == expected


def test_outputs_buffers_and_schedules(tmp_path):
    how = {"loss": LossType.BCEWithLogitsLoss, "optimizer": OptimType.AdamW, "additional_output_names": ["y"]}
    state, module, optimizer = parts(tmp_path, linear(), **how)
    assert module.input_names() == ["x", "target"]
    assert module.output_names() == ["loss", "y"]
    loss, y = module(X, Y / 2)
    np.testing.assert_allclose(y, X @ state.parameters["w"].data + 0.5)
    assert module.eval()(X, Y / 2)[0] == pytest.approx(float(loss), rel=1e-6)
    assert module.get_parameters_size() == 3
    module.copy_buffer_to_parameters(np.float32([3, 4, 5]))
    assert module.get_contiguous_parameters().tolist() == [3, 4, 5]
    assert state.parameters["w"].data.tolist() == [[3], [4]]
    assert state.parameters["w"].requires_grad
    schedule = LinearLRScheduler(optimizer, 2, 4, 0.1)
    rates = [optimizer.get_learning_rate()]
    for _ in range(5):
        schedule.step()
        rates.append(optimizer.get_learning_rate())
    assert rates == pytest.approx([0, 0.05, 0.1, 0.05, 0, 0])


def test_a_loss_that_the_model_computes(tmp_path):
    graph = linear()
    graph.output("cost", ops.reduce_mean(graph["y"] * graph["y"], keepdims=0))
    how = {"optimizer": tt.Adagrad(0.1, initial_sum=0.5), "loss_input_names": ["cost"]}
    _, module, optimizer = parts(tmp_path, graph, **how)
    losses = []
    for _ in range(3):
        losses.append(float(module(X)))
        optimizer.step()
        module.lazy_reset_grad()
    step = tt.TrainingStep(graph, "cost", tt.Adagrad(0.1, initial_sum=0.5))
    assert losses == pytest.approx([step({"x": X})["cost"] for _ in range(3)], rel=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ort_format": True}, "does not support ort_format"),
        ({"nominal_checkpoint": True}, "does not support nominal_checkpoint"),
        ({"requires_grad": ["v"]}, 'trainable "v" matches no'),
        ({"additional_output_names": ["z"]}, "unknown additional outputs"),
        ({"loss_input_names": ["z"]}, "unknown inputs of a loss"),
    ],
)
def test_invalid_arguments_are_refused(tmp_path, options, message):
    with pytest.raises(InvalidCall, match=message):
        artifacts.generate_artifacts(linear(), loss=LossType.MSELoss, artifact_directory=tmp_path, **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (artifacts.STATE, "[" * 100_000),
        (artifacts.STATE, "[]"),
        (artifacts.STATE, '{"x": 1}'),
        (artifacts.STATE, '{"x": "nothing"}'),
        ("tenonnx.learning_rate", "x"),
    ],
)
def test_damaged_metadata(key, text, tmp_path):
    artifacts.generate_artifacts(linear(), ["w", "b"], loss=LossType.MSELoss, artifact_directory=tmp_path)
    model = onnx.load(tmp_path / "training_model.onnx")
    onnx.helper.set_model_props(model, {**{p.key: p.value for p in model.metadata_props}, key: text})
    onnx.save(model, tmp_path / "training_model.onnx")
    state = CheckpointState.load_checkpoint(tmp_path / "checkpoint")
    with pytest.raises(InvalidModel, match="damaged"):
        Module(tmp_path / "training_model.onnx", state)


def test_damaged_settings_of_a_checkpoint():
    graph = linear()
    for settings in ({"requires_grad": 1}, {"requires_grad": [], "properties": [1]}):
        graph.training_state = TrainingState({}, settings)
        with pytest.raises(InvalidModel, match="settings are damaged"):
            CheckpointState(graph)


def test_invalid_calls_of_a_module_are_refused(tmp_path):
    state, module, optimizer = parts(tmp_path, linear(), loss=LossType.MSELoss, optimizer=OptimType.SGD)
    with pytest.raises(InvalidCall, match="wrong number of arguments of Module") as caught:
        module(X)
    assert caught.value.available == "x, target"
    with pytest.raises(InvalidCall, match="no gradients"):
        optimizer.step()
    with pytest.raises(InvalidCall, match="dtype or shape of"):
        state.parameters["w"] = np.zeros(3)
    with pytest.raises(InvalidCall, match="vector of 3 numbers"):
        module.copy_buffer_to_parameters(np.zeros(5))
    with pytest.raises(InvalidCall, match="evaluation model"):
        Module(tmp_path / "training_model.onnx", state).eval()(X, Y)
    with pytest.raises(InvalidCall, match="CPU"):
        Module(tmp_path / "training_model.onnx", state, device="cuda")
    with pytest.raises(InvalidCall, match="state is not a CheckpointState"):
        Module(tmp_path / "training_model.onnx", "checkpoint")
    with pytest.raises(InvalidCall, match="is not a checkpoint"):
        CheckpointState.load_checkpoint(tmp_path / "training_model.onnx")
    with pytest.raises(InvalidCall, match="not from a checkpoint"):
        CheckpointState(linear())
