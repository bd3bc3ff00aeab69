"""Losses: values and errors."""

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_training as tt
from tenonnx.errors import InvalidCall, InvalidFeed

SCORES = np.float32([[2, 0, -1], [0, 1, 3]])
LABELS = np.int64([0, 1])


def value(loss, prediction, labels):
    """Compute a loss as a graph."""
    from tenonnx.op.build import Builder
    from tenonnx.op.call import interpreting

    graph = tx.Graph()
    p = graph.input("p", "float32", prediction.shape)
    t = graph.input("t", str(labels.dtype), labels.shape)
    with interpreting(Builder(graph)):
        graph.output("cost", loss(p, t))
    return graph.run({"p": prediction, "t": labels}, backend="numpy")["cost"]


def log_softmax(x):
    return x - np.log(np.exp(x).sum(1, keepdims=True))


def test_cross_entropy_of_classes():
    each = -log_softmax(SCORES)[[0, 1], LABELS]
    np.testing.assert_allclose(value(tt.SoftmaxCrossEntropy(), SCORES, LABELS), each.mean(), rtol=1e-6)
    np.testing.assert_allclose(value(tt.SoftmaxCrossEntropy(reduction="sum"), SCORES, LABELS), each.sum(), rtol=1e-6)
    weighted = (each * [1, 3]).sum() / 4
    np.testing.assert_allclose(value(tt.SoftmaxCrossEntropy([1, 3, 5]), SCORES, LABELS), weighted, rtol=1e-6)
    ignoring = tt.SoftmaxCrossEntropy(ignore_index=1)
    np.testing.assert_allclose(value(ignoring, SCORES, LABELS), each[0], rtol=1e-6)
    likelihood = tt.NegativeLogLikelihood(weights=[1, 3, 5])
    np.testing.assert_allclose(value(likelihood, log_softmax(SCORES), LABELS), weighted, rtol=1e-6)


def test_losses_of_elements():
    labels = np.float32([[1, 0, 0], [0, 1, 0.5]])
    difference = SCORES - labels
    np.testing.assert_allclose(value(tt.MeanSquaredError(), SCORES, labels), (difference**2).mean(), rtol=1e-6)
    np.testing.assert_allclose(value(tt.MeanAbsoluteError("sum"), SCORES, labels), abs(difference).sum(), rtol=1e-6)
    p = 1 / (1 + np.exp(-SCORES))
    expected = -(labels * np.log(p) + (1 - labels) * np.log(1 - p)).mean()
    np.testing.assert_allclose(value(tt.BinaryCrossEntropy(), SCORES, labels), expected, rtol=1e-5)
    far = np.float32([[1000, -1000]])
    np.testing.assert_allclose(value(tt.BinaryCrossEntropy(), far, np.float32([[0, 0]])), 500)


@pytest.mark.parametrize("label", [-1, 3])
def test_a_label_out_of_range_is_refused(label):
    kind = tx.TensorType(tx.DType.float32, ("n", 3))
    with pytest.raises(InvalidFeed, match="classes 0 to 2"):
        tt.SoftmaxCrossEntropy().check(kind, np.int64([0, label]))
    tt.SoftmaxCrossEntropy(ignore_index=label).check(kind, np.int64([0, label]))


def test_an_invalid_probability_is_refused():
    with pytest.raises(InvalidFeed, match="outside of 0 to 1"):
        tt.BinaryCrossEntropy().check(tx.TensorType(tx.DType.float32, ("n",)), np.float32([0, 2]))


@pytest.mark.parametrize("kind", [tt.SoftmaxCrossEntropy, tt.MeanSquaredError])
def test_a_loss_is_one_number(kind):
    with pytest.raises(InvalidCall, match="one number"):
        kind(reduction="none")


def test_classes_need_an_axis():
    with pytest.raises(InvalidCall, match="class axis"):
        tt.SoftmaxCrossEntropy().labels_type(tx.TensorType(tx.DType.float32, ("n",)))
