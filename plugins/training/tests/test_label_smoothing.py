"""Label smoothing against PyTorch's formula in numpy."""

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_training as tt

RNG = np.random.default_rng(0)
WEIGHTS = [0.5, 2.0, 1.0, 3.0]


def by_formula(scores, labels, share, weights, ignored, reduction):
    """CrossEntropyLoss(weight, ignore_index, reduction, label_smoothing) with classes along axis 1."""
    classes = scores.shape[1]
    weight = np.ones(classes) if weights is None else np.asarray(weights)
    log = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    held = labels != ignored
    taken = np.where(held, labels, 0)
    own = -np.take_along_axis(log, taken[:, None], 1)[:, 0] * weight[taken]
    all_of_them = -(log * weight.reshape(1, -1, *[1] * (log.ndim - 2))).sum(1)
    total = (((1 - share) * own + share / classes * all_of_them) * held).sum()
    return total if reduction == "sum" else total / (weight[taken] * held).sum()


def computed(loss, scores, labels):
    graph = tx.Graph(opsets={"ai.onnx": 17})
    prediction, known = graph.input("scores", "float32", scores.shape), graph.input("labels", "int64", labels.shape)
    with graph.building():
        graph.output("loss", loss(prediction, known))
    feeds = {"scores": scores, "labels": labels}
    slope = tx.grad(graph, of="loss", wrt="scores").run(feeds)["scores/grad"]
    return graph.run(feeds)["loss"], slope


@pytest.mark.parametrize("shape", [(6, 4), (3, 4, 5)])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("ignored", [None, -100])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_losses_are_those_of_the_formula(shape, reduction, ignored, weights):
    scores = RNG.normal(size=shape).astype(np.float32)
    labels = RNG.integers(0, 4, (shape[0], *shape[2:]))
    if ignored is not None:
        labels.reshape(-1)[::3] = ignored
    loss = tt.SoftmaxCrossEntropy(
        weights=weights, ignore_index=ignored, reduction=reduction, class_axis=1, label_smoothing=0.1
    )

    def expected(s):
        return by_formula(s, labels, 0.1, weights, ignored, reduction)

    result, slope = computed(loss, scores, labels)
    np.testing.assert_allclose(result, expected(scores.astype(np.float64)), rtol=1e-5)
    direction = RNG.normal(size=shape)
    step = 1e-5
    moved = [expected(scores.astype(np.float64) + sign * step * direction) for sign in (1, -1)]
    np.testing.assert_allclose((slope * direction).sum(), (moved[0] - moved[1]) / (2 * step), rtol=1e-3, atol=1e-5)


def test_no_smoothing_is_what_it_was():
    scores, labels = RNG.normal(size=(5, 4)).astype(np.float32), RNG.integers(0, 4, 5)
    result, _ = computed(tt.SoftmaxCrossEntropy(), scores, labels)
    np.testing.assert_allclose(result, by_formula(scores, labels, 0.0, None, None, "mean"), rtol=1e-5)


@pytest.mark.parametrize("share", [-0.1, 1.5, "a lot"])
def test_smoothing_is_a_share(share):
    with pytest.raises(tx.InvalidCall, match="is not between 0 and 1"):
        tt.SoftmaxCrossEntropy(label_smoothing=share)
