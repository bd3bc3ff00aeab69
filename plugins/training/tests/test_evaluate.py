"""Evaluation of whole data sets, sample weights, and early stopping."""

import json

import numpy as np
import pytest
from sklearn.metrics import f1_score
from trained_models import EXAMPLES, X, Y, contents, digits, linear

import tenonnx as tx
import tenonnx_training as tt
from tenonnx.errors import InvalidCall
from tenonnx_cli import main


def test_a_model_is_measured_on_all_of_a_data_set():
    graph, images, labels = digits()
    result = tt.evaluate(graph, (images[:90], labels[:90]), ["accuracy", tt.F1()], loss="softmax_cross_entropy")
    scores = graph.run({"images": images[:90]}, backend="numpy")
    scores = next(iter(scores.values()))
    assert result["accuracy"] == pytest.approx(np.mean(scores.argmax(1) == labels[:90]))
    assert result["f1"] == pytest.approx(f1_score(labels[:90], scores.argmax(1), average="macro"))
    alone = tt.evaluate(graph, [(images[:50], labels[:50]), (images[50:90], labels[50:90])], ["accuracy"])
    assert alone == {"accuracy": pytest.approx(result["accuracy"])}
    numbers = tt.evaluate(linear(), (X, Y), ["mean_absolute_error"], batch_size=3)
    assert numbers == {"mean_absolute_error": pytest.approx(np.abs(X @ [[1], [2]] + 0.5 - Y).mean())}
    with pytest.raises(InvalidCall, match="a loss nor a metric"):
        tt.evaluate(graph, (images, labels))


def test_the_command_line_measures(tmp_path, capsys):
    _, images, labels = digits()
    np.savez(tmp_path / "data.npz", images=images[:64], labels=labels[:64])
    arguments = [str(EXAMPLES / "digits_cnn" / "digits-cnn.onnx"), "--data", str(tmp_path / "data.npz")]
    assert main(["evaluate", *arguments, "--metric", "accuracy", "--loss", "softmax_cross_entropy", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["loss"] > 0
    assert main(["evaluate", *arguments, "--metric", "accuracy"]) == 0
    assert capsys.readouterr().out == f"accuracy {result['accuracy']:.6g}\n"
    assert main(["evaluate", *arguments]) == 2


def test_samples_have_weights():
    weights = np.float32([1, 0, 2, 1])
    step = tt.TrainingStep(linear(), "mean_squared_error", tt.SGD(0.1), sample_weights="weights", backend="numpy")
    each = ((X @ [[1], [2]] + 0.5 - Y) ** 2)[:, 0]
    batch = {"x": X, "labels": Y, "weights": weights}
    assert step(batch)["loss"] == pytest.approx(np.average(each, weights=weights), rel=1e-6)
    doubled = tt.TrainingStep(linear(), "mean_squared_error", tt.SGD(0.1), backend="numpy")
    rows = [0, 2, 2, 3]
    doubled({"x": X[rows], "labels": Y[rows]})
    for name, array in contents(step.write_back()).items():
        np.testing.assert_allclose(array, contents(doubled.write_back())[name], rtol=1e-6)
    graph, images, labels = digits()
    data = {"images": images[:64], "labels": labels[:64], "importance": np.ones(64, np.float32)}
    plain = tt.evaluate(graph, (images[:64], labels[:64]), loss="softmax_cross_entropy")["loss"]
    options = {"loss": "softmax_cross_entropy", "optimizer": tt.SGD(0.0), "frozen_statistics": True, "batch_size": 64}
    history = tt.fit(graph, data, sample_weights="importance", validation=data, **options)
    assert history.epochs[0]["validation_loss"] == pytest.approx(plain, rel=1e-5)
    with pytest.raises(InvalidCall, match="the custom loss does not take sample weights"):
        tt.TrainingStep(linear(), lambda a, b: tt.MeanSquaredError()(a, b), sample_weights="weights")


def test_patience_restores_the_best_epoch(tmp_path):
    graph, path = linear(), tmp_path / "best.safetensors"
    seen = []
    optimizer = tt.SGD(lambda step: (0.05, 0.05, 0.5, 0.5, 0.5, 0.5)[step])
    history = tt.fit(
        graph,
        (X, Y),
        loss="mean_squared_error",
        optimizer=optimizer,
        epochs=6,
        batch_size=4,
        validation=(X, Y),
        patience=2,
        checkpoint=path,
        callbacks=[lambda measured: seen.append(measured["epoch"])],
        backend="numpy",
    )
    assert seen == [1, 2, 3, 4]
    losses = [epoch["validation_loss"] for epoch in history.epochs]
    assert losses[1] == min(losses)
    for held in (graph, tx.load(path)):
        assert tt.evaluate(held, (X, Y), loss="mean_squared_error")["loss"] == pytest.approx(losses[1], rel=1e-5)
    assert graph.training_state.settings["epoch"] == 2


def test_patience_watches_what_there_is():
    options = {"loss": "mean_squared_error", "epochs": 5, "optimizer": tt.SGD(0.0), "backend": "numpy"}
    history = tt.fit(linear(), (X, Y), patience=tt.Patience(1, monitor="loss"), **options)
    assert len(history.epochs) == 2
    with pytest.raises(InvalidCall, match='"f1" is monitored, but not measured'):
        tt.fit(linear(), (X, Y), patience=tt.Patience(1, monitor="f1"), **options)
    with pytest.raises(InvalidCall, match="number of epochs"):
        tt.Patience(0)


def test_a_callback_ends_the_training():
    history = tt.fit(
        linear(), (X, Y), loss="mean_squared_error", epochs=9, callbacks=[lambda found: found["epoch"] == 2]
    )
    assert len(history.epochs) == 2


def test_options_for_the_class_axis_and_ignored_labels(tmp_path, capsys):
    graph = tx.Graph(opsets={"ai.onnx": 17})
    random = np.random.default_rng(0)
    w = graph.variable("w", random.normal(size=(3, 4)).astype(np.float32))
    graph.output("y", graph.input("x", "float32", ("batch", 4, 3)) @ w)
    tx.export(graph, tmp_path / "model.onnx")
    x, labels = random.normal(size=(9, 4, 3)).astype(np.float32), random.integers(0, 4, (9, 4))
    labels[:5] = -100
    np.savez(tmp_path / "data.npz", x=x, labels=labels, shares=np.ones(9, np.float32))
    files = [str(tmp_path / "model.onnx"), "--data", str(tmp_path / "data.npz")]
    output = ["--ignore-index", "-100", "--class-axis", "-1", "--labels", "labels", "--json"]
    right = np.mean((x @ w.data.array()).argmax(-1)[5:] == labels[5:])
    for loss in ([], ["--loss", "softmax_cross_entropy", "--sample-weights", "shares"]):
        assert main(["evaluate", *files, *loss, *output, "--metric", "accuracy"]) == 0
        assert json.loads(capsys.readouterr().out)["accuracy"] == pytest.approx(right)
    assert main(["evaluate", *files, "--labels", "labels", "--metric", "accuracy"]) == 2
    assert "class_axis=-1" in capsys.readouterr().err
    assert main(["evaluate", *files, *output, "--loss", "mean_squared_error"]) == 2
    assert "classification loss" in capsys.readouterr().err
    out = ["-o", str(tmp_path / "tuned.onnx"), "--metric", "accuracy"]
    np.savez(tmp_path / "train.npz", x=x, labels=labels)
    files[2] = str(tmp_path / "train.npz")
    assert main(["train", *files, "--loss", "softmax_cross_entropy", *output, *out, "--lr", "0"]) == 0
    assert json.loads(capsys.readouterr().out)["epochs"][0]["accuracy"] == pytest.approx(right)


def of_scores(*shape):
    """A graph that returns its input, as scores or numbers."""
    graph = tx.Graph(opsets={"ai.onnx": 21})
    graph.output("y", graph.input("x", "float32", ("batch", *shape)))
    return graph


DRAWN = np.random.default_rng(0)
SCORES = DRAWN.normal(size=(50, 5)).astype(np.float32)
LABELS = DRAWN.integers(0, 5, 50)
LOGARITHMS = SCORES - np.log(np.exp(SCORES).sum(1, keepdims=True))


@pytest.mark.parametrize("batch_size", [7, 50])
@pytest.mark.parametrize("weights", [None, (0.2, 1.0, 2.0, 0.5, 3.0)])
@pytest.mark.parametrize("ignored", [0, 41])  # number of leading labels to ignore; 41 covers some batches entirely
@pytest.mark.parametrize("name", ["softmax_cross_entropy", "negative_log_likelihood"])
def test_a_loss_among_the_metrics_is_a_mean_of_what_counts(name, ignored, weights, batch_size):
    labels = np.where(np.arange(50) < ignored, -100, LABELS)
    scores = SCORES if name == "softmax_cross_entropy" else LOGARITHMS
    loss = tt.losses.LOSSES[name](weights=weights, ignore_index=-100)
    share = np.ones(50) if weights is None else np.array(weights)[LABELS]
    share[:ignored] = 0
    expected = -np.average(LOGARITHMS[np.arange(50), LABELS], weights=share)
    for given in ({"metrics": [loss]}, {"metrics": [loss], "loss": loss}):
        result = tt.evaluate(of_scores(5), {"x": scores, "labels": labels}, batch_size=batch_size, **given)
        assert list(result.values()) == pytest.approx([expected] * len(result), rel=1e-5)
        assert name in result


def test_a_loss_as_metric_masks_labels_itself():
    labels = np.where(np.arange(50) < 9, -100, LABELS)
    with pytest.raises(tx.InvalidFeed, match="a label is outside of the classes 0 to 4"):
        tt.evaluate(of_scores(5), {"x": SCORES, "labels": labels}, ["softmax_cross_entropy"])
    summed = tt.evaluate(of_scores(5), (SCORES, LABELS), [tt.SoftmaxCrossEntropy(reduction="sum")], batch_size=7)
    assert summed["softmax_cross_entropy"] == pytest.approx(-LOGARITHMS[np.arange(50), LABELS].sum(), rel=1e-5)
    with pytest.raises(tx.InvalidCall, match="sample weights were given without a loss"):
        tt.evaluate(of_scores(5), {"x": SCORES, "labels": LABELS, "w": SCORES[:, 0]}, ["accuracy"], sample_weights="w")


NUMBERS = ["mean_absolute_error", "mean_squared_error", tt.MeanAbsoluteError(), tt.MeanSquaredError()]


@pytest.mark.parametrize("metric", NUMBERS, ids=str)
@pytest.mark.parametrize("shape", [(50,), (50, 1)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_labels_of_one_column_may_have_either_shape(metric, shape, dtype):
    prediction = SCORES[:, :1]
    labels = (prediction * 3).round().reshape(shape).astype(dtype)
    distance = np.abs(prediction[:, 0] - labels.reshape(-1))
    result = tt.evaluate(of_scores(1), (prediction, labels), [metric], batch_size=7)
    (name,) = result
    assert result[name] == pytest.approx(np.mean(distance if "absolute" in name else distance**2), rel=1e-5)


@pytest.mark.parametrize("metric", NUMBERS[:2])
def test_numbers_of_another_shape_are_not_broadcast(metric):
    for labels in (SCORES[:, 0], SCORES[:, :1], SCORES[:, :, None]):
        with pytest.raises(tx.InvalidFeed, match="labels and prediction differ in shape"):
            tt.evaluate(of_scores(5), (SCORES, labels), [metric])
    with pytest.raises(tx.InvalidFeed, match="labels and prediction differ in shape"):
        tt.evaluate(of_scores(50), (np.ones((50, 50), np.float32), np.ones(50, np.float32)), [metric])
