"""Files: a tuned model differs only in trained initializers; an exported training step is self-contained."""

import io
import json

import numpy as np
import onnx
import onnxruntime
import pytest
from trained_models import EXAMPLES, X, Y, digits, linear

import tenonnx as tx
import tenonnx_training as tt

CNN = EXAMPLES / "digits_cnn" / "digits-cnn.onnx"


def written(graph, **options):
    stream = io.BytesIO()
    tx.export(graph, stream, **options)
    return onnx.ModelProto.FromString(stream.getvalue())


def without_contents(model, names):
    bare = onnx.ModelProto.FromString(model.SerializeToString())
    for tensor in bare.graph.initializer:
        if tensor.name in names:
            kept = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
            tensor.CopyFrom(kept)
    return bare


@pytest.fixture(scope="module")
def tuned():
    graph, images, labels = digits()
    options = {"loss": "softmax_cross_entropy", "epochs": 1, "batch_size": 100}
    tt.fit(graph, (images[:200], labels[:200]), trainable=["classifier.*", "*.scale"], **options)
    return graph


def test_only_trained_initializers_differ(tuned):
    original, result = onnx.load(CNN), written(tuned)
    changed = {name for name, array in arrays(original).items() if not np.array_equal(array, arrays(result)[name])}
    statistics = {f"block{k}.norm.{name}" for k in (1, 2) for name in ("mean", "variance")}
    assert changed == {"classifier.weight", "classifier.bias", "block1.norm.scale", "block2.norm.scale"} | statistics
    assert without_contents(result, changed) == without_contents(original, changed)


def arrays(model):
    return {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def test_state_is_named_after_parameter_and_optimizer(tuned):
    result = arrays(written(tuned, include_training_state=True, opset_version=13))
    assert result["classifier.bias__adam_m"].shape == (10,)
    assert result["classifier.bias__adam_v"].any()
    assert result["training__step"] == 2
    onnx.checker.check_model(written(tuned, include_training_state=True), full_check=True)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adagrad", "adam", "adamw"])
def test_every_optimizer_resumes_from_a_file(optimizer):
    graph = linear()
    step = tt.TrainingStep(graph, "mean_squared_error", optimizer)
    losses = [step({"x": X, "labels": Y})["loss"] for _ in range(4)]
    other = linear()
    step = tt.TrainingStep(other, "mean_squared_error", optimizer)
    for _ in range(2):
        step({"x": X, "labels": Y})
    again = tx.load(written(step.write_back(), include_training_state=True))
    step = tt.TrainingStep(again, "mean_squared_error", optimizer)
    assert [step({"x": X, "labels": Y})["loss"] for _ in range(2)] == losses[2:]


@pytest.mark.parametrize("opset", [17, 21])
def test_a_step_file_runs_on_any_runtime(opset):
    """Driven by the metadata only: they map outputs to inputs; other inputs have defaults or are data."""
    graph, images, labels = digits()
    step = tt.TrainingStep(graph, "softmax_cross_entropy", backend="onnxruntime")
    stream = io.BytesIO()
    step.export(stream, opset_version=opset, domains=["ai.onnx"])
    model = onnx.ModelProto.FromString(stream.getvalue())
    onnx.checker.check_model(model, full_check=True)
    state = json.loads(next(entry.value for entry in model.metadata_props if entry.key == "tenonnx.state"))
    session = onnxruntime.InferenceSession(stream.getvalue(), providers=["CPUExecutionProvider"])
    names, held = [output.name for output in session.get_outputs()], {}
    for start in range(0, 96, 32):
        batch = {"images": images[start : start + 32], "labels": labels[start : start + 32]}
        result = dict(zip(names, session.run(None, {**batch, **held}), strict=True))
        held = {name: result[after] for name, after in state.items()}
        assert result["loss"] == pytest.approx(step(batch)["loss"], rel=1e-5)


def test_the_step_in_the_form_of_the_standard():
    """Driven by the specification: outputs of the algorithm replace the initializers to which they are bound."""
    graph, images, labels = digits()
    step = tt.TrainingStep(graph, "softmax_cross_entropy", backend="numpy")
    model = written(graph, post_export_hooks=[tt.training_info(step)])
    onnx.checker.check_model(model, full_check=True)
    assert without_contents(model, ()).graph == onnx.load(CNN).graph
    (info,) = model.training_info
    everything = [*model.graph.initializer, *info.algorithm.initializer]
    initializers = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in everything}
    whole = onnx.ModelProto.FromString(model.SerializeToString())
    del whole.training_info[:]
    whole.graph.CopyFrom(info.algorithm)
    whole.graph.initializer.extend(model.graph.initializer)
    for start in (0, 32):
        batch = {"images": images[start : start + 32], "labels": labels[start : start + 32]}
        del whole.graph.initializer[:]
        whole.graph.initializer.extend(
            onnx.numpy_helper.from_array(np.asarray(a), name) for name, a in initializers.items()
        )
        session = onnxruntime.InferenceSession(whole.SerializeToString(), providers=["CPUExecutionProvider"])
        result = dict(zip([o.name for o in session.get_outputs()], session.run(None, batch), strict=True))
        initializers.update({entry.key: result[entry.value] for entry in info.update_binding})
        assert result["loss"] == pytest.approx(step(batch)["loss"], rel=1e-4)
