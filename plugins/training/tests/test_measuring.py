"""Metrics of values and of arrays against scikit-learn, over complete and resumed epochs."""

import numpy as np
import pytest
from sklearn import metrics as reference
from test_fit import interrupted
from trained_models import X, Y, contents, linear

import tenonnx as tx
import tenonnx_training as tt
from tenonnx.errors import InvalidCall, InvalidFeed
from tenonnx_training.measuring import Measuring
from tenonnx_training.objective import Objective
from tenonnx_training.step_graph import evaluation_graph

random = np.random.default_rng(0)
SCORES = random.normal(size=(60, 7)).astype(np.float32).round(1)
CLASSES = random.integers(0, 7, 60)
BINARY = random.random((60, 1)).astype(np.float32).round(1)
TRUTH = random.integers(0, 2, 60)


def passing(*shape):
    graph = tx.Graph(opsets={"ai.onnx": 21})
    graph.output("y", graph.input("x", "float32", ("batch", *shape)))
    return graph


def measured(metric, predictions, labels, batch=16):
    """Compute a metric in a graph, batch by batch."""
    loss = "softmax_cross_entropy" if predictions.shape[1:] == (7,) else "mean_squared_error"
    graph, made = evaluation_graph(passing(*predictions.shape[1:]), Objective(loss, metrics=[metric]), [])
    program, gathered = graph.compile("numpy"), Measuring(made.scalars, made.metrics)
    for start in range(0, len(labels), batch):
        part = slice(start, start + batch)
        gathered.add(
            made.measurement(program({"x": predictions[part], "labels": labels[part]}), {"labels": labels[part]}, 16)
        )
    return gathered.values()


SOFTMAX = np.exp(SCORES) / np.exp(SCORES).sum(axis=1, keepdims=True)

EXPECTED = {
    "accuracy": reference.accuracy_score(CLASSES, SCORES.argmax(axis=1)),
    "f1": reference.f1_score(CLASSES, SCORES.argmax(axis=1), average="macro"),
    "roc_auc": reference.roc_auc_score(CLASSES, SOFTMAX, multi_class="ovr"),
    "perplexity": np.exp(reference.log_loss(CLASSES, SOFTMAX)),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_metrics_of_classes(name):
    predictions = SOFTMAX if name == "roc_auc" else SCORES
    result = measured(name, predictions[:48], CLASSES[:48])  # three full batches
    assert measured(name, predictions, CLASSES, batch=60)[name] == pytest.approx(EXPECTED[name], rel=1e-5)
    assert result.keys() == {"loss", name}


@pytest.mark.parametrize("average", ["macro", "micro", "weighted"])
def test_averages_of_f1(average):
    expected = reference.f1_score(CLASSES, SCORES.argmax(axis=1), average=average)
    assert tt.F1(average)(SCORES, CLASSES) == pytest.approx(expected)


@pytest.mark.parametrize("k", [1, 2, 6])
def test_top_k(k):
    distinct = SCORES + np.arange(7, dtype=np.float32) / 1000
    expected = reference.top_k_accuracy_score(CLASSES, distinct, k=k)
    assert measured(tt.TopK(k), distinct, CLASSES, batch=60)[f"top_{k}"] == pytest.approx(expected)


def test_metrics_of_two_classes_and_of_numbers():
    labels = TRUTH.reshape(-1, 1).astype(np.float32)
    assert tt.RocAuc()(BINARY, labels) == pytest.approx(reference.roc_auc_score(TRUTH, BINARY[:, 0]))
    assert tt.F1()(BINARY, labels) == pytest.approx(reference.f1_score(TRUTH, BINARY[:, 0] > 0.5))
    result = measured("mean_absolute_error", BINARY, labels, batch=60)["mean_absolute_error"]
    assert result == pytest.approx(reference.mean_absolute_error(labels, BINARY), rel=1e-6)
    with pytest.raises(InvalidFeed, match="no positive or no negative"):
        tt.RocAuc()(BINARY, np.zeros(60))
    with pytest.raises(InvalidCall, match="average"):
        tt.F1("none")
    with pytest.raises(InvalidCall, match="number of classes"):
        tt.TopK(0)


def largest_error(predictions, labels):
    assert isinstance(predictions, np.ndarray)
    return np.abs(predictions - labels).max()


def test_a_metric_may_be_a_function_of_arrays():
    """It receives the whole epoch at once, rather than batches whose results are averaged."""
    graph = linear()
    before = contents(graph)
    options = {"loss": "mean_squared_error", "optimizer": tt.SGD(0.0), "batch_size": 2, "backend": "numpy"}
    history = tt.fit(graph, (X, Y), metrics=[largest_error], validation=(X, Y), **options)
    expected = np.abs(X @ before["w"] + before["b"] - Y).max()
    assert history.epochs[0]["largest_error"] == pytest.approx(expected)
    assert history.epochs[0]["validation_largest_error"] == pytest.approx(expected)
    with pytest.raises(InvalidCall, match='metric "<lambda>" returned something other'):
        tt.fit(graph, (X, Y), metrics=[lambda found, labels: np.abs(found - labels)], **options)


def test_the_metrics_of_a_resumed_epoch_cover_the_epoch():
    options = {
        "loss": "mean_squared_error",
        "optimizer": tt.SGD(0.1),
        "batch_size": 2,
        "metrics": ["mean_absolute_error"],
    }
    whole = tt.fit(linear(), (X, Y), **options)
    graph, _ = interrupted((X, Y), 1, **options)
    resumed = tt.fit(graph, (X, Y), **options)
    assert len(resumed.losses) == 1
    assert resumed.epochs[0] == pytest.approx(whole.epochs[0])
    graph, _ = interrupted((X, Y), 1, **options)
    graph.training_state.settings["sums"] = {"loss": "many"}
    with pytest.raises(InvalidCall, match='invalid "sums"'):
        tt.fit(graph, (X, Y), **options)


def test_metrics_of_arrays_cover_a_resumed_epoch_too():
    options = {"loss": "mean_squared_error", "optimizer": tt.SGD(0.1), "batch_size": 2, "metrics": [largest_error]}
    whole = tt.fit(linear(), (X, Y), **options)
    graph, _ = interrupted((X, Y), 1, **options)
    assert len(graph.training_state.tensors["training__predictions"].array()) == 2
    resumed = tt.fit(graph, (X, Y), **options)
    assert resumed.epochs[0] == pytest.approx(whole.epochs[0])
    assert "training__predictions" not in graph.training_state.tensors
    assert not any("is resumed" in note for note in resumed.notes)


def test_metrics_that_a_resumed_epoch_cannot_have_are_noted():
    options = {"loss": "mean_squared_error", "optimizer": tt.SGD(0.1), "batch_size": 2}
    graph, _ = interrupted((X, Y), 1, **options)
    notes = tt.fit(graph, (X, Y), metrics=["mean_absolute_error", largest_error], **options).notes
    assert "epoch 1 is resumed: its mean_absolute_error, largest_error will cover the remaining samples only" in notes


# ----- errors that are raised immediately -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "advice"),
    [({"lr": 0.1}, "tt.Adam"), ({"batch_sizes": 3}, "did you mean batch_size?")],
)
@pytest.mark.parametrize("backend", ["numpy", "auto"])
def test_fit_refuses_options_that_it_lacks_by_its_own_list(wrong, advice, backend, monkeypatch):
    monkeypatch.setattr("tenonnx_training.training_step.step_graph", lambda *_: pytest.fail("too late"))
    with pytest.raises(InvalidCall, match=f'fit has no option "{next(iter(wrong))}"') as caught:
        tt.fit(linear(), (X, Y), loss="mean_squared_error", backend=backend, **wrong)
    assert "batch_size" in caught.value.available
    assert advice in caught.value.do


def test_labels_of_a_loss_of_ones_own():
    def hinge(prediction, labels):
        return tt.SoftmaxCrossEntropy()(prediction, labels)

    with pytest.raises(tx.TenonnxError) as caught:
        tt.fit(linear(), (X, np.int64([0, 0, 0, 0])), loss=hinge)
    assert "tt.FunctionLoss(function, labels=" in caught.value.do
    step = tt.TrainingStep(linear(), lambda found, labels: tt.MeanSquaredError()(found, labels))
    with pytest.raises(InvalidFeed) as caught:
        step({"x": X, "labels": np.int64([1, 2, 3, 4])})
    assert "tt.FunctionLoss(function, labels=" in caught.value.do


def test_metrics_of_one_name_carry_the_settings_in_which_they_differ():
    random = np.random.default_rng(0)
    x, labels = random.standard_normal((60, 3)).astype(np.float32), random.integers(0, 3, 60)
    graph = tx.Graph(opsets={"ai.onnx": 17})
    graph.output("z", graph.input("x", "float32", ("n", 3)) @ graph.variable("w", np.eye(3, dtype=np.float32)))
    result = tt.evaluate(graph, (x, labels), [tt.F1(), tt.F1(average="micro"), tt.F1(average="weighted"), "accuracy"])
    assert {*result} == {"f1(average=macro)", "f1(average=micro)", "f1(average=weighted)", "accuracy"}
    assert result["f1(average=micro)"] == pytest.approx(result["accuracy"])
    most, least = lambda p, t: float(p.max()), lambda p, t: float(p.min())
    assert tt.evaluate(graph, (x, labels), [most, least]) == pytest.approx(
        {"<lambda>": float(x.max()), "<lambda>_2": float(x.min())}
    )
    assert {*tt.evaluate(graph, (x, labels), [tt.F1(average="micro")])} == {"f1"}
