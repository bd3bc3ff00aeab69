"""Triplet, InfoNCE and CTC losses: values and gradients, against their definitions and against PyTorch."""

import itertools

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_training as tt

RANDOM = np.random.default_rng(0)
EMBEDDED = RANDOM.standard_normal((6, 4)).astype(np.float32)
KINDS = np.int64([0, 1, 0, 2, 1, 0])
SCORES = RANDOM.standard_normal((3, 5, 4)).astype(np.float32)
LABELS = np.int64([[1, 1, -1], [2, 3, 1], [3, -1, -1]])


def trained(loss, x, labels, backend="numpy"):
    """The loss, and its gradient by ``x``: the change of a zero weight, added to ``x``, in a step of size 1."""
    graph = tx.Graph("weights", opsets={"ai.onnx": 21})
    w = graph.variable("w", x)
    graph.output("y", graph.input("x", "float32", ("batch", *x.shape[1:])) + w)
    options = {"loss": loss, "optimizer": tt.SGD(1.0), "trainable": "w", "backend": backend, "batch_size": len(x)}
    history = tt.fit(graph, {"x": np.zeros_like(x), "labels": labels}, shuffle=False, **options)
    return history.losses[0], x - graph["w"].data.array()


def triplets(distance, margin):
    """The mean over all triplets in a loop."""
    n = range(len(KINDS))
    result = [
        max(distance(a, p) - distance(a, other) + margin, 0)
        for a, p, other in itertools.product(n, n, n)
        if a != p and KINDS[a] == KINDS[p] != KINDS[other]
    ]
    return np.mean(result)


def by_numpy(name):
    if name == "triplet":
        return triplets(lambda i, j: np.linalg.norm(EMBEDDED[i] - EMBEDDED[j] + 1e-6), 0.7)
    if name == "info_nce":
        unit = EMBEDDED / np.linalg.norm(EMBEDDED, axis=1, keepdims=True)
        similar = np.exp(unit @ unit.T / 0.5)
        np.fill_diagonal(similar, 0)
        pairs = [(i, j) for i in range(6) for j in range(6) if i != j and KINDS[i] == KINDS[j]]
        return np.mean([-np.log(similar[i, j] / similar[i].sum()) for i, j in pairs])
    odds = np.exp(SCORES.astype(np.float64))
    odds /= odds.sum(-1, keepdims=True)
    result = []
    for p, padded in zip(odds, LABELS, strict=True):
        expected, total = [k for k in padded if k >= 0], 0.0
        for path in itertools.product(range(4), repeat=5):
            if [k for k, _ in itertools.groupby(path) if k] == expected:
                total += np.prod([p[t, k] for t, k in enumerate(path)])
        result.append(-np.log(total) / len(expected))
    return np.mean(result)


CASES = {
    "triplet": (tt.Triplet(0.7), EMBEDDED, KINDS),
    "info_nce": (tt.InfoNCE(0.5), EMBEDDED, KINDS),
    "ctc": (tt.CTC(), SCORES, LABELS),
}


@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
@pytest.mark.parametrize("name", CASES)
def test_losses_are_those_of_their_definitions(name, backend):
    assert trained(*CASES[name], backend)[0] == pytest.approx(by_numpy(name), rel=1e-5)


def torch_loss(name, torch, x):
    from torch.nn import functional

    if name == "triplet":
        n = range(len(KINDS))
        chosen = [t for t in itertools.product(n, n, n) if t[0] != t[1] and KINDS[t[0]] == KINDS[t[1]] != KINDS[t[2]]]
        anchor, positive, negative = (x[list(part)] for part in zip(*chosen, strict=True))
        return functional.triplet_margin_loss(anchor, positive, negative, margin=0.7)
    if name == "info_nce":
        unit = functional.normalize(x, dim=1)
        scores = (unit @ unit.T / 0.5).masked_fill(torch.eye(6, dtype=torch.bool), -1e9)
        pairs = [(i, j) for i in range(6) for j in range(6) if i != j and KINDS[i] == KINDS[j]]
        rows, labels = zip(*pairs, strict=True)
        return functional.cross_entropy(scores[list(rows)], torch.tensor(labels))
    lengths = torch.tensor((LABELS >= 0).sum(1))
    scores = functional.log_softmax(x, -1).transpose(0, 1)
    return functional.ctc_loss(scores, torch.tensor(LABELS.clip(0)), torch.tensor([5, 5, 5]), lengths)


@pytest.mark.parametrize("name", CASES)
def test_losses_and_gradients_are_those_of_pytorch(name):
    torch = pytest.importorskip("torch")
    loss, x, labels = CASES[name]
    weights = torch.tensor(x, requires_grad=True)
    expected = torch_loss(name, torch, weights)
    expected.backward()
    result, gradient = trained(loss, x, labels)
    assert result == pytest.approx(expected.item(), rel=1e-5)
    np.testing.assert_allclose(gradient, weights.grad.numpy(), atol=2e-6)


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_the_slopes(name):
    loss, x, labels = CASES[name]
    _, gradient = trained(loss, x, labels)
    way = RANDOM.standard_normal(x.shape).astype(np.float32)
    up, down = (trained(loss, x + sign * 1e-2 * way, labels)[0] for sign in (1, -1))
    assert (up - down) / 2e-2 == pytest.approx(float((gradient * way).sum()), rel=2e-2, abs=1e-3)


@pytest.mark.parametrize("name", ["triplet", "info_nce"])
def test_a_batch_without_pairs_counts_as_zero(name):
    loss, gradient = trained(name, EMBEDDED, np.arange(6))
    assert loss == 0
    assert not gradient.any()


def test_labels_of_none_are_blanks_throughout():
    labels = np.full((3, 2), -1)
    odds = SCORES - np.log(np.exp(SCORES).sum(-1, keepdims=True))
    assert trained("ctc", SCORES, labels)[0] == pytest.approx(-odds[..., 0].sum(1).mean(), rel=1e-5)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([[0, 1]] * 3, "contain the blank 0"),
        ([[4, 1]] * 3, "is not a class"),
        ([[-1, 1]] * 3, "padded before their end"),
        ([[1, 1, 1, 1]] * 3, "longer than the scores"),
        ([[1, 2, 1, 2, 1, 2]] * 3, "longer than the scores"),
    ],
)
def test_labels_of_ctc_that_mean_nothing(labels, message):
    with pytest.raises(tx.InvalidFeed, match=message):
        trained("ctc", SCORES, np.int64(labels))


@pytest.mark.parametrize(
    ("made", "message"), [(lambda: tt.Triplet(0), "margin"), (lambda: tt.InfoNCE(-1.0), "temperature")]
)
def test_settings_that_mean_nothing(made, message):
    with pytest.raises(tx.InvalidCall, match=message):
        made()


@pytest.mark.parametrize(("name", "x"), [("triplet", SCORES), ("info_nce", SCORES), ("ctc", EMBEDDED)])
def test_predictions_of_another_rank(name, x):
    with pytest.raises(tx.InvalidCall, match=f"{name}: .* are not of shape"):
        trained(name, x, np.zeros(len(x), np.int64))
