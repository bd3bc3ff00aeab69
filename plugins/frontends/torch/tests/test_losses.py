"""Losses and metrics of training against PyTorch and scikit-learn: weights, masks, batches, columns and axes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn import metrics as sk
from torch.nn import functional

import tenonnx as tx
import tenonnx_standard as ops
import tenonnx_training as tt
from tenonnx.errors import InvalidCall, InvalidFeed, TenonnxError

RANDOM = np.random.default_rng(0)
CLASSES, SAMPLES, LENGTH = 5, 23, 7
WEIGHTS = [0.5, 2.0, 1.0, 0.1, 3.0]


def normal(*shape):
    return RANDOM.normal(size=shape).astype(np.float32)


def passing(*shape, activation=None):
    """A graph that returns its input, or an activation of it."""
    graph = tx.Graph(opsets={"ai.onnx": 21})
    x = graph.input("x", "float32", ("batch", *shape))
    graph.output("y", x if activation is None else getattr(ops, activation)(x))
    return graph


#: Shape of a sample's scores, class axis, and options of the loss.
FORMS = {
    "rows": ((CLASSES,), 1, {}),
    "pixels": ((CLASSES, LENGTH, 3), 1, {}),
    "tokens": ((LENGTH, CLASSES), -1, {"class_axis": -1}),
    "open_tokens": (("length", CLASSES), -1, {}),
    "square_tokens": ((CLASSES, CLASSES), -1, {"class_axis": -1}),
    "square_first": ((CLASSES, CLASSES), 1, {"class_axis": 1}),
    "middle": ((LENGTH, CLASSES, 3), 2, {"class_axis": 2}),
}


def drawn(form, masked):
    """Random scores in PyTorch's and in the form's layout, and labels, optionally masked."""
    sizes, axis, options = FORMS[form]
    scores = normal(SAMPLES, *(LENGTH if size == "length" else size for size in sizes))
    torch_scores = np.moveaxis(scores, axis, 1)
    labels = RANDOM.integers(0, CLASSES, (SAMPLES, *torch_scores.shape[2:]))
    if masked:
        labels[RANDOM.random(labels.shape) < 0.4] = -100
        labels[8:16] = -100  # an entire batch
    return sizes, options, scores, np.ascontiguousarray(torch_scores), labels


def expected_loss(scores, labels, weights, shares, reduction):
    each = functional.cross_entropy(
        torch.tensor(scores), torch.tensor(labels), weight=weights and torch.tensor(weights), reduction="none"
    )
    counted = torch.tensor(labels != -100).float()
    if weights:
        counted *= torch.tensor(weights)[torch.tensor(labels).clamp(min=0)]
    shares = torch.tensor(shares).reshape(-1, *[1] * (each.ndim - 1))
    total = (each * shares).sum()
    return float(total / (counted * shares).sum() if reduction == "mean" else total)


@pytest.mark.parametrize("kind", [tt.SoftmaxCrossEntropy, tt.NegativeLogLikelihood])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("masked", [False, True], ids=["all", "masked"])
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["alike", "weighted"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_losses_of_classes(kind, form, masked, weights, reduction):
    sizes, options, scores, torch_scores, labels = drawn(form, masked)
    if masked:
        options = {**options, "ignore_index": -100}
    x = scores
    if kind is tt.NegativeLogLikelihood:
        axis = FORMS[form][1]
        x = torch.log_softmax(torch.tensor(scores), axis).numpy()
    loss = kind(weights, reduction=reduction, **options)
    plain = expected_loss(torch_scores, labels, weights, np.ones(SAMPLES, np.float32), reduction)
    assert float(
        functional.cross_entropy(
            torch.tensor(torch_scores), torch.tensor(labels), weights and torch.tensor(weights), reduction=reduction
        )
    ) == pytest.approx(plain, rel=1e-5)
    for size in (SAMPLES, 8):
        result = tt.evaluate(passing(*sizes), {"x": x, "labels": labels}, loss=loss, batch_size=size, backend="numpy")
        assert result["loss"] == pytest.approx(plain, rel=2e-6), size
    for shares in (np.ones(SAMPLES, np.float32), RANDOM.random(SAMPLES).astype(np.float32)):
        data = {"x": x, "labels": labels, "shares": shares}
        result = tt.evaluate(passing(*sizes), data, loss=loss, sample_weights="shares", batch_size=8, backend="numpy")
        assert result["loss"] == pytest.approx(
            expected_loss(torch_scores, labels, weights, shares, reduction), rel=2e-6
        )


ELEMENTS = {
    tt.MeanSquaredError: functional.mse_loss,
    tt.MeanAbsoluteError: functional.l1_loss,
    tt.BinaryCrossEntropy: functional.binary_cross_entropy_with_logits,
}


@pytest.mark.parametrize("kind", ELEMENTS)
@pytest.mark.parametrize("sizes", [(), (1,), (4,), (4, 3)], ids=str)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
def test_losses_of_elements(kind, sizes, reduction, weighted):
    x, labels = normal(SAMPLES, *sizes), RANDOM.integers(0, 2, (SAMPLES, *sizes)).astype(np.float32)
    shares = RANDOM.random(SAMPLES).astype(np.float32) if weighted else np.ones(SAMPLES, np.float32)
    each = ELEMENTS[kind](torch.tensor(x), torch.tensor(labels), reduction="none")
    wide = torch.tensor(shares).reshape(-1, *[1] * (each.ndim - 1)).expand(each.shape)
    expected = (each * wide).sum() / (wide.sum() if reduction == "mean" else 1)
    data = {"x": x, "labels": labels, "shares": shares}
    for size in (SAMPLES, 8):
        result = tt.evaluate(
            passing(*sizes), data, loss=kind(reduction), sample_weights="shares", batch_size=size, backend="numpy"
        )
        assert result["loss"] == pytest.approx(float(expected), rel=2e-6)


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["alike", "weighted"])
def test_the_gradient_of_a_masked_loss(weights):
    """From a step of plain gradient descent on scores that are parameters."""
    graph = tx.Graph(opsets={"ai.onnx": 21})
    scores, labels = normal(6, CLASSES), np.int64([0, -100, 3, 4, -100, 1])
    x = graph.input("x", "float32", ("batch", CLASSES))
    bias = graph.variable("bias", normal(CLASSES))
    graph.output("y", ops.gemm(x, graph.variable("w", np.eye(CLASSES, dtype=np.float32)), bias))
    before = {v.name: v.data.array().copy() for v in graph.variables}
    step = tt.TrainingStep(graph, tt.SoftmaxCrossEntropy(weights, -100), tt.SGD(1.0), backend="numpy")
    step({"x": scores, "labels": labels})
    w, b = (torch.tensor(before[name], requires_grad=True) for name in ("w", "bias"))
    functional.cross_entropy(
        torch.tensor(scores) @ w + b, torch.tensor(labels), weights and torch.tensor(weights)
    ).backward()
    after = {v.name: v.data.array() for v in step.write_back().variables}
    for name, tensor in (("w", w), ("bias", b)):
        np.testing.assert_allclose(before[name] - after[name], tensor.grad.numpy(), rtol=2e-6, atol=1e-7)
    step({"x": scores, "labels": np.full(6, -100)})  # all labels are ignored: no update
    for name, array in after.items():
        np.testing.assert_array_equal({v.name: v.data.array() for v in step.write_back().variables}[name], array)


def test_batches_in_which_nothing_counts():
    _, _, x, _, labels = drawn("rows", True)
    graph = tx.Graph(opsets={"ai.onnx": 21})
    w = graph.variable("w", np.eye(CLASSES, dtype=np.float32))
    graph.output("y", ops.gemm(graph.input("x", "float32", ("batch", CLASSES)), w))
    loss = tt.SoftmaxCrossEntropy(ignore_index=-100)
    options = {"loss": loss, "optimizer": tt.SGD(0.0), "batch_size": 8, "shuffle": False, "backend": "numpy"}
    history = tt.fit(graph, (x, labels), metrics=["accuracy", "f1"], validation=(x, labels), **options)
    counted = labels != -100
    expected = float(functional.cross_entropy(torch.tensor(x), torch.tensor(labels)))
    (epoch,) = history.epochs
    assert np.isnan(history.losses[1])
    for prefix in ("", "validation_"):
        assert epoch[f"{prefix}loss"] == pytest.approx(expected, rel=1e-6)
        assert epoch[f"{prefix}accuracy"] == pytest.approx(
            sk.accuracy_score(labels[counted], x[counted].argmax(1)), rel=1e-6
        )
        assert epoch[f"{prefix}f1"] == pytest.approx(
            sk.f1_score(labels[counted], x[counted].argmax(1), average="macro")
        )
    nothing = tt.evaluate(passing(CLASSES), (x, np.full(SAMPLES, -100)), ["accuracy", "f1", "perplexity"], loss=loss)
    assert all(map(np.isnan, nothing.values()))
    halves = [(x[:10], labels[:10]), (x[:0], labels[:0]), (x[10:], labels[10:])]
    assert tt.evaluate(passing(CLASSES), halves, loss=loss)["loss"] == pytest.approx(expected, rel=1e-6)
    with pytest.raises(InvalidFeed, match="the batch is empty"):
        tt.TrainingStep(graph, loss)({"x": x[:0], "labels": labels[:0]})


# ----- metrics --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [name for name in FORMS if "square" not in name and name != "middle"])
@pytest.mark.parametrize("masked", [False, True], ids=["all", "masked"])
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside"])
def test_metrics_of_classes(form, masked, beside):
    sizes, options, scores, torch_scores, labels = drawn(form, masked)
    flat = np.moveaxis(torch_scores, 1, -1).reshape(-1, CLASSES)
    counted = labels.reshape(-1) != -100
    rows, truth = flat[counted], labels.reshape(-1)[counted]
    shares = torch.softmax(torch.tensor(rows).double(), 1).numpy()
    loss = tt.SoftmaxCrossEntropy(ignore_index=-100 if masked else None, **options) if beside else None
    averages = ("macro", "micro", "weighted")
    metrics = ["accuracy", tt.TopK(2), "perplexity"]
    result = tt.evaluate(passing(*sizes), (scores, labels), metrics, loss=loss, batch_size=8, backend="numpy")
    assert result["accuracy"] == pytest.approx(sk.accuracy_score(truth, rows.argmax(1)), rel=1e-6)
    assert result["top_2"] == pytest.approx(sk.top_k_accuracy_score(truth, rows, k=2), rel=1e-6)
    assert result["perplexity"] == pytest.approx(np.exp(sk.log_loss(truth, shares)), rel=1e-5)
    for average in averages:
        result = tt.evaluate(passing(*sizes), (scores, labels), [tt.F1(average)], loss=loss, backend="numpy")
        assert result["f1"] == pytest.approx(sk.f1_score(truth, rows.argmax(1), average=average))
    if form == "rows":
        probabilities = torch.softmax(torch.tensor(scores), 1).numpy()
        result = tt.evaluate(passing(*sizes), (probabilities, labels), ["roc_auc"], loss=loss, backend="numpy")
        expected = sk.roc_auc_score(truth, probabilities[labels != -100], multi_class="ovr")
        assert result["roc_auc"] == pytest.approx(expected)


@pytest.mark.parametrize("columns", [(), (1,)], ids=str)
@pytest.mark.parametrize("dtype", ["int64", "int32", "float32", "bool", "uint8"])
@pytest.mark.parametrize("ends", ["scores", "sigmoid"])
@pytest.mark.parametrize("loss", [None, "binary_cross_entropy"])
@pytest.mark.parametrize("flat", [False, True], ids=["column", "flat"])
def test_one_column(columns, dtype, ends, loss, flat):
    """Labels of any dtype, as a column or flat; the final activation or the loss determines the kind of numbers."""
    x = normal(40, *columns)
    scores = x.reshape(-1)
    truth = ((scores > 0) ^ (RANDOM.random(40) < 0.2)).astype(int)
    labels = truth.astype(dtype).reshape(-1) if flat else truth.astype(dtype).reshape(x.shape)
    graph = passing(*columns, activation="sigmoid" if ends == "sigmoid" else None)
    result = tt.evaluate(graph, (x, labels), ["accuracy", "f1", "roc_auc"], loss=loss, batch_size=16, backend="numpy")
    assert result["accuracy"] == pytest.approx(sk.accuracy_score(truth, scores > 0))
    assert result["f1"] == pytest.approx(sk.f1_score(truth, scores > 0))
    assert result["roc_auc"] == pytest.approx(sk.roc_auc_score(truth, scores))
    perfect = tt.evaluate(graph, (x, (x > 0).astype(dtype)), ["accuracy"], backend="numpy")
    assert perfect == {"accuracy": 1.0}


@pytest.mark.parametrize("dtype", ["int64", "float32", "bool"])
@pytest.mark.parametrize("loss", [None, "binary_cross_entropy"])
def test_several_labels_for_a_sample(dtype, loss):
    x = normal(40, 4)
    truth = ((x > 0) ^ (RANDOM.random(x.shape) < 0.2)).astype(int)
    labels = truth.astype(dtype)
    result = tt.evaluate(passing(4), (x, labels), ["accuracy", "roc_auc"], loss=loss, backend="numpy")
    assert result["accuracy"] == pytest.approx(sk.accuracy_score(truth, x > 0))
    assert result["roc_auc"] == pytest.approx(sk.roc_auc_score(truth, x))
    for average in ("macro", "micro", "weighted"):
        result = tt.evaluate(passing(4), (x, labels), [tt.F1(average)], loss=loss, backend="numpy")
        assert result["f1"] == pytest.approx(sk.f1_score(truth, x > 0, average=average))


def test_distances():
    x, labels = normal(21, 3), normal(21, 3)
    result = tt.evaluate(passing(3), (x, labels), ["mean_absolute_error"], batch_size=8, backend="numpy")
    assert result["mean_absolute_error"] == pytest.approx(sk.mean_absolute_error(labels, x), rel=1e-6)


# ----- errors ---------------------------------------------------------------------------------------------------------


def test_probabilities_are_not_taken_for_logarithms():
    x, labels = normal(8, CLASSES), RANDOM.integers(0, CLASSES, 8)
    with pytest.raises(InvalidCall, match="logarithms") as caught:
        tt.evaluate(passing(CLASSES, activation="softmax"), (x, labels), loss="negative_log_likelihood")
    assert "softmax_cross_entropy" in caught.value.do
    shares = torch.softmax(torch.tensor(x), 1).numpy()
    with pytest.raises(InvalidFeed, match="numbers above 0"):
        tt.evaluate(passing(CLASSES), (shares, labels), loss="negative_log_likelihood")


def test_an_ambiguous_axis_has_to_be_given():
    x, labels = normal(8, CLASSES, CLASSES), RANDOM.integers(0, CLASSES, (8, CLASSES))
    for options in ({"loss": "softmax_cross_entropy"}, {"metrics": ["accuracy"]}):
        with pytest.raises(InvalidCall, match="class axis is ambiguous") as caught:
            tt.evaluate(passing(CLASSES, CLASSES), (x, labels), **options)
        assert "class_axis=-1" in caught.value.do
    for axis in (1, -1):
        loss = tt.SoftmaxCrossEntropy(class_axis=axis)
        result = tt.evaluate(passing(CLASSES, CLASSES), (x, labels), ["accuracy", "f1"], loss=loss)
        chosen = x.argmax(axis).reshape(-1)
        assert result["accuracy"] == pytest.approx(sk.accuracy_score(labels.reshape(-1), chosen))
        assert result["f1"] == pytest.approx(sk.f1_score(labels.reshape(-1), chosen, average="macro"))
    with pytest.raises(InvalidCall, match="class_axis is not an axis of the scores"):
        tt.evaluate(passing(CLASSES, CLASSES), (x, labels), loss=tt.SoftmaxCrossEntropy(class_axis=0))


def test_labels_like_those_of_hugging_face():
    graph = tx.Graph(opsets={"ai.onnx": 21})
    w = graph.variable("w", normal(4, CLASSES))
    graph.output("y", graph.input("x", "float32", ("batch", LENGTH, 4)) @ w)
    x, labels = normal(8, LENGTH, 4), RANDOM.integers(0, CLASSES, (8, LENGTH))
    with pytest.raises(InvalidFeed) as caught:
        tt.fit(graph, (x, labels), loss="softmax_cross_entropy")
    assert "class_axis=-1" in caught.value.do
    labels[0] = -100
    with pytest.raises(InvalidFeed, match="-100") as caught:
        tt.fit(graph, (x, labels), loss=tt.SoftmaxCrossEntropy(class_axis=-1))
    assert "ignore_index=-100" in caught.value.do
    history = tt.fit(graph, (x, labels), loss=tt.SoftmaxCrossEntropy(ignore_index=-100, class_axis=-1))
    assert np.isfinite(history.losses).all()


@pytest.mark.parametrize(
    ("labels", "what"),
    [(np.full(8, CLASSES), "classes 0 to 4"), (np.full(8, -1), "classes 0 to 4"), (normal(8, 3), "predictions")],
)
def test_labels_that_fit_no_class(labels, what):
    with pytest.raises(TenonnxError, match=what):
        tt.evaluate(passing(CLASSES), (normal(8, CLASSES), labels), ["accuracy"])


def test_labels_of_one_column_are_0_and_1():
    with pytest.raises(InvalidFeed, match="not all 0 or 1"):
        tt.evaluate(passing(1), (normal(8, 1), np.full((8, 1), 2)), ["accuracy"])
