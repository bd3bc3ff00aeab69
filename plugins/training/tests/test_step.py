"""The step graph: trained variables, modes and errors."""

import json

import numpy as np
import pytest
from trained_models import X, Y, contents, dropping, linear, normalized

import tenonnx as tx
import tenonnx_training as tt
from tenonnx.errors import InvalidCall, InvalidFeed, NotDifferentiable
from tenonnx_standard.casting import cast
from tenonnx_standard.reduction import reduce_mean


@pytest.fixture(params=["numpy", "onnxruntime"])
def backend(request):
    return request.param


def test_only_what_matches_is_trained(backend):
    step = tt.TrainingStep(linear(), "mean_squared_error", trainable="w", backend=backend)
    step({"x": X, "labels": Y})
    trained = {v.name: v.data.array() for v in step.write_back().variables}
    assert trained["b"].tolist() == [0.5]
    assert np.all(trained["w"] != [[1], [2]])
    assert tt.TrainingStep(linear(), "mean_squared_error", trainable="!w")._step_graph.parameters == ["b"]


def test_batches_may_change_their_size(backend):
    step = tt.TrainingStep(linear(), "mean_squared_error", backend=backend)
    losses = [step({"x": X[:n], "labels": Y[:n]})["loss"] for n in (4, 1, 3, 4)]
    assert losses[3] < losses[0]


def test_a_loss_of_the_file(backend):
    graph = linear()
    error = graph.outputs[0] - graph.input("t", "float32", ("batch", 1))
    graph.output("cost", reduce_mean(error * error, keepdims=0))
    step = tt.TrainingStep(graph, "cost", tt.SGD(0.1), backend=backend)
    assert step.labels is None
    first = step({"x": X, "t": Y})
    assert step({"x": X, "t": Y})["cost"] < first["cost"]


def test_a_loss_of_the_user(backend):
    def quartic(prediction, labels):
        return reduce_mean((prediction - labels) ** 4.0, keepdims=0)

    step = tt.TrainingStep(linear(), quartic, tt.SGD(0.001), backend=backend)
    np.testing.assert_allclose(step({"x": X, "labels": Y})["loss"], np.mean((X @ [[1], [2]] + 0.5 - Y) ** 4), rtol=1e-6)


@pytest.mark.parametrize("function", [lambda p, t: np.mean((p - t) ** 2.0), lambda p, t: np.abs(p - t).mean()])
def test_a_loss_of_the_user_consists_of_ops(function):
    with pytest.raises(InvalidCall, match="uses numpy, and cannot be traced") as caught:
        tt.TrainingStep(linear(), function)
    assert "import tenonnx_standard as ops" in caught.value.do


def test_running_statistics_follow_the_batch(backend):
    step = tt.TrainingStep(normalized(), "mean_squared_error", tt.SGD(0.0), backend=backend)
    result = step({"x": X, "labels": np.zeros_like(X)})
    np.testing.assert_allclose(result["loss"], 1, rtol=1e-4)  # normalized by the batch, not by running statistics
    by_name = {v.name: v.data.array() for v in step.write_back().variables}
    np.testing.assert_allclose(by_name["mean"], 0.9 * 0.5 + 0.1 * X.mean(0), rtol=1e-6)
    np.testing.assert_allclose(by_name["variance"], 0.9 * 2.0 + 0.1 * X.var(0, ddof=1), rtol=1e-6)
    expected = np.mean(((X - by_name["mean"]) / np.sqrt(by_name["variance"] + 1e-5)) ** 2)
    np.testing.assert_allclose(step.evaluate({"x": X, "labels": np.zeros_like(X)})["loss"], expected, rtol=1e-5)


def test_statistics_can_be_frozen():
    step = tt.TrainingStep(normalized(), "mean_squared_error", frozen_statistics=True)
    step({"x": X, "labels": np.zeros_like(X)})
    assert step._step_graph.statistics == []
    assert {v.name: v.data.array()[0] for v in step.write_back().variables}["mean"] == 0.5


def test_dropout_is_only_active_in_training(backend):
    step = tt.TrainingStep(dropping(), "mean_squared_error", tt.SGD(0.0), trainable="w", backend=backend)
    batch = {"x": X, "labels": np.zeros((4, 8), np.float32)}
    losses = [step(batch)["loss"] for _ in range(4)]
    assert len(set(losses)) == 4
    again = tt.TrainingStep(dropping(), "mean_squared_error", tt.SGD(0.0), trainable="w", backend=backend)
    assert [again(batch)["loss"] for _ in range(4)] == losses
    other = tt.TrainingStep(dropping(), "mean_squared_error", tt.SGD(0.0), trainable="w", backend=backend, seed=1)
    assert other(batch)["loss"] not in losses
    whole = np.mean((X @ np.ones((2, 8))) ** 2)
    np.testing.assert_allclose(step.evaluate(batch)["loss"], whole, rtol=1e-6)


def test_notes_say_what_a_file_cannot_show():
    trains, note = tt.TrainingStep(linear(), "mean_squared_error", trainable="w").notes
    assert trains == "trains 1 of 2 variables: w"
    assert "no BatchNormalization and no Dropout" in note
    notes = tt.TrainingStep(linear(), "mean_squared_error").notes
    assert any("single-element initializers" in note and note.endswith("b") for note in notes)


def test_half_precision_has_wide_moments(backend):
    step = tt.TrainingStep(linear("float16"), "mean_squared_error", tt.Adam(0.01), backend=backend, loss_scale=8.0)
    batch = {"x": X.astype(np.float16), "labels": Y.astype(np.float16)}
    losses = [step(batch)["loss"] for _ in range(30)]
    assert losses[-1] < losses[0]
    assert step.program.state["w"].dtype == np.float16
    assert step.program.state["w__adam_m"].dtype == np.float32


def test_double_precision_stays_double(backend):
    step = tt.TrainingStep(linear("float64"), "mean_squared_error", backend=backend)
    step({"x": X.astype(np.float64), "labels": Y.astype(np.float64)})
    assert step.program.state["w__adam_v"].dtype == np.float64


def test_a_pattern_that_matches_nothing():
    with pytest.raises(InvalidCall, match='"head') as caught:
        tt.TrainingStep(linear(), "mean_squared_error", trainable=["w", "head.*"])
    assert caught.value.available == "w, b"


def test_an_unknown_loss_or_output():
    with pytest.raises(InvalidCall, match="no loss and no value") as caught:
        tt.TrainingStep(linear(), "hinge")
    assert "mean_squared_error" in caught.value.available
    with pytest.raises(InvalidCall, match='no value "z"'):
        tt.TrainingStep(linear(), "mean_squared_error", output="z")


@pytest.mark.parametrize("loss", ["y", lambda prediction, labels: prediction - labels, lambda *_: 3.0])
def test_a_loss_that_is_not_a_scalar_is_refused(loss):
    with pytest.raises(InvalidCall, match="one floating-point number"):
        tt.TrainingStep(linear(), loss)
    if not isinstance(loss, str) and loss(1, 1) != 3:
        with pytest.raises(InvalidCall, match=r"metric .* one floating-point number"):
            tt.TrainingStep(linear(), "mean_squared_error", metrics=[loss])


WRONG = [
    ({"clip_norm": 0.0}, "clip_norm"),
    ({"clip_norm": "1"}, "clip_norm"),
    ({"loss_scale": -1.0}, "loss_scale"),
    ({"loss_scale": 0}, "loss_scale"),
    ({"seed": -1}, "seed"),
    ({"seed": 2**63}, "seed"),
    ({"seed": "one"}, "seed"),
    ({"trainable": "!*"}, "variable to train"),
    ({"optimizer": tt.Adam}, "optimizer"),
    ({"loss": None}, "loss"),
    ({"loss": tt.MeanSquaredError}, "loss"),
    ({"metrics": [tt.MeanSquaredError]}, "metric"),
    ({"nonsense": 3}, "option"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG)
def test_options_without_meaning(wrong, message):
    with pytest.raises(InvalidCall, match=message) as caught:
        tt.TrainingStep(linear(), **{"loss": "mean_squared_error", **wrong})
    assert caught.value.given or wrong == {"loss": None}


def test_labels_have_a_name_of_their_own():
    with pytest.raises(InvalidCall, match='name "x" is already used in graph "linear"'):
        tt.TrainingStep(linear(), "mean_squared_error", labels="x")


@pytest.mark.parametrize("wrong", [{"optimizer": tt.AdamW}, {"loss": tt.BinaryCrossEntropy}])
def test_a_class_in_place_of_an_object(wrong):
    with pytest.raises(InvalidCall) as caught:
        tt.TrainingStep(linear(), **{"loss": "mean_squared_error", **wrong})
    assert caught.value.do == f"tt.{next(iter(wrong.values())).__name__}()"


def test_scales_may_be_numbers_of_numpy():
    options = {"loss_scale": np.float32(8), "clip_norm": np.float64(1)}
    step = tt.TrainingStep(linear(), "mean_squared_error", **options)
    step({"x": X, "labels": Y})
    assert np.isfinite(step.program.state["w"]).all()
    assert json.loads(json.dumps(step.write_back().training_state.settings))["loss_scale"] == 8


def test_names_may_look_like_patterns():
    graph = linear()
    graph.variables[0].name = "layers[0].w"
    assert tt.TrainingStep(graph, "mean_squared_error", trainable="layers[0].w")._step_graph.parameters == [
        "layers[0].w"
    ]
    assert tt.TrainingStep(graph, "mean_squared_error", trainable="!layers[0].w")._step_graph.parameters == ["b"]
    assert tt.TrainingStep(graph, "mean_squared_error", trainable="layers[[]*")._step_graph.parameters == [
        "layers[0].w"
    ]


def test_a_step_is_written_with_its_state_after_training(tmp_path):
    graph = linear()
    tt.fit(graph, (X, Y), loss="mean_squared_error")
    step = tt.TrainingStep(graph, "mean_squared_error")
    step.export(tmp_path / "step.onnx", include_training_state=True)
    held = contents(tx.load(tmp_path / "step.onnx"))
    np.testing.assert_array_equal(held["w__adam_m"], step.program.state["w__adam_m"])


def test_feeds_that_are_the_step_s_own_are_not_offered():
    step = tt.TrainingStep(dropping(), "mean_squared_error", trainable="w")
    for call in (step, step.evaluate):
        for wrong in ({"x": X}, {"x": X, "labels": X, "training__step": np.int64(1)}):
            with pytest.raises(InvalidFeed) as caught:
                call(wrong)
            assert caught.value.available == "x: float32[batch, 2], labels: float32[batch, 8]"


@pytest.mark.parametrize("rate", [lambda step: None, float("nan"), -0.1, "0.1"])
def test_a_learning_rate_is_a_number(rate):
    step = tt.TrainingStep(linear(), "mean_squared_error")
    with pytest.raises(InvalidCall, match="learning rate"):
        step({"x": X, "labels": Y}, learning_rate=rate)
    assert step.steps == 0


def test_reserved_names_are_refused():
    graph = linear()
    graph.input("learning_rate", "float32", ())
    with pytest.raises(InvalidCall, match='name "learning_rate" is already used'):
        tt.TrainingStep(graph, "mean_squared_error")


def test_one_of_two_outputs_is_trained(backend):
    graph = linear()
    v = graph.variable("v", np.ones((1, 3), np.float32))
    graph.output("z", graph.outputs[0] @ v)
    labels = np.zeros((4, 3), np.float32)
    step = tt.TrainingStep(graph, "mean_squared_error", tt.SGD(0.01), output="z", backend=backend)
    losses = [step({"x": X, "labels": labels})["loss"] for _ in range(3)]
    assert losses == sorted(losses, reverse=True)
    first = tt.TrainingStep(graph, "mean_squared_error", tt.SGD(0.01), backend=backend)
    assert "the loss does not depend on v" in first.notes
    first({"x": X, "labels": Y})
    np.testing.assert_array_equal(first.program.state["v"], contents(graph)["v"])
    assert [output.name for output in first.write_back().outputs] == ["y", "z"]


def test_every_break_of_the_path_is_named():
    graph = linear()
    graph.output("z", cast(cast(graph.outputs[0], to=tx.DType.int64), to=tx.DType.float32))
    graph.outputs = graph.outputs[1:]
    with pytest.raises(NotDifferentiable, match="path") as caught:
        tt.TrainingStep(graph, "mean_squared_error")
    assert "Cast" in caught.value.given


def rounded():
    """``x @ w`` scaled by a rounded number, and an unused variable."""
    graph = linear()
    number = graph.variable("number", np.float32([2.5]))
    graph.variable("idle", np.ones(2, np.float32))
    scaled = graph.outputs[0] * cast(cast(number, to=tx.DType.int64), to=tx.DType.float32)
    graph.output("z", scaled)
    return graph


OF_Z = {"loss": "mean_squared_error", "output": "z"}


def test_variables_without_a_gradient_are_left_out():
    step = tt.TrainingStep(rounded(), optimizer=tt.AdamW(0.1, weight_decay=0.5), **OF_Z)
    assert step._step_graph.parameters == ["w", "b"]
    assert any("not trained, being no weights of layers" in note and note.endswith(": idle") for note in step.notes)
    assert "not trained, since the loss does not depend on them: number" in step.notes
    named = tt.TrainingStep(rounded(), trainable=["w", "idle"], **OF_Z)
    assert "the loss does not depend on idle" in named.notes
    step({"x": X, "labels": Y})
    assert contents(step.write_back())["number"].tolist() == [2.5]


def test_variables_without_a_gradient_cannot_be_requested():
    with pytest.raises(NotDifferentiable, match="path leads to number") as caught:
        tt.TrainingStep(rounded(), trainable=["w", "number"], **OF_Z)
    assert "Cast" in caught.value.given
    assert "trainable" in caught.value.do


def test_a_batch_that_does_not_fit_changes_nothing(backend):
    step = tt.TrainingStep(linear(), "mean_squared_error", backend=backend)
    for wrong in ({"x": X}, {"x": X, "labels": Y, "z": Y}, {"x": X.astype("complex64"), "labels": Y}):
        with pytest.raises(InvalidFeed):
            step(wrong)
    assert step.steps == 0
    assert step.program.state["w"].tolist() == [[1], [2]]


def test_labels_are_checked():
    graph = linear()
    graph.output("p", tx.Value.__add__(graph.outputs[0], graph.variable("more", np.zeros((1, 3), np.float32))))
    step = tt.TrainingStep(graph, "softmax_cross_entropy", output="p")
    with pytest.raises(InvalidFeed, match="label"):
        step({"x": X, "labels": np.int64([0, 1, 2, 3])})
