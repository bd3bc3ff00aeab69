"""Huber, focal, Dice and Kullback-Leibler losses, and schedules, against their formulas and against PyTorch."""

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops
import tenonnx_training as tt
from tenonnx.errors import InvalidCall, InvalidFeed

RANDOM = np.random.default_rng(0)
SCORES = RANDOM.standard_normal((4, 6)).astype(np.float32) * 2
MASKS = RANDOM.integers(0, 2, (4, 6)).astype(np.float32)
SHARES = RANDOM.dirichlet(np.ones(6), 4).astype(np.float32)


def losses(loss, labels, steps=2):
    """Losses of some steps that train the scores directly."""
    graph = tx.Graph(opsets={"ai.onnx": 17})
    x = graph.input("x", "float32", (4, 6))
    graph.output("y", ops.add(x, graph.variable("w", SCORES)))
    step = tt.TrainingStep(graph, loss, tt.SGD(0.5), trainable="w", backend="numpy")
    return [step({"x": np.zeros((4, 6), np.float32), "labels": labels})["loss"] for _ in range(steps)]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


FORMULAS = {
    "huber": (
        SCORES * 0 + 0.5,
        lambda z, y: np.where(abs(z - y) <= 1, 0.5 * (z - y) ** 2, abs(z - y) - 0.5).mean(),
    ),
    "focal": (
        MASKS,
        lambda z, y: np.mean(
            np.where(y == 1, 0.25 * (1 - sigmoid(z)) ** 2, 0.75 * sigmoid(z) ** 2)
            * -np.log(np.where(y == 1, sigmoid(z), 1 - sigmoid(z)))
        ),
    ),
    "dice": (
        MASKS,
        lambda z, y: np.mean(1 - (2 * (sigmoid(z) * y).sum(1) + 1) / (sigmoid(z).sum(1) + y.sum(1) + 1)),
    ),
    "kl_divergence": (
        SHARES,
        lambda z, y: np.sum(y * (np.log(y) - z + np.log(np.exp(z).sum(1, keepdims=True)))) / 4,
    ),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_losses_by_name_are_their_formulas_and_fall(name):
    labels, formula = FORMULAS[name]
    first, second = losses(name, labels)
    assert first == pytest.approx(formula(SCORES.astype(np.float64), labels.astype(np.float64)), rel=1e-5)
    assert second < first


def test_losses_and_their_gradients_are_those_of_pytorch():
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    cases = [
        (tt.Huber(0.7), SHARES, lambda z, y: functional.huber_loss(z, y, delta=0.7)),
        (tt.KullbackLeibler(), SHARES, lambda z, y: functional.kl_div(z.log_softmax(-1), y, reduction="batchmean")),
        (tt.Focal(0.0, None), MASKS, functional.binary_cross_entropy_with_logits),
    ]
    for loss, labels, theirs in cases:
        weight = torch.tensor(SCORES, requires_grad=True)
        expected = []
        for _ in range(4):
            cost = theirs(weight, torch.tensor(labels))
            (gradient,) = torch.autograd.grad(cost, weight)
            weight = (weight - 0.5 * gradient).detach().requires_grad_()
            expected.append(cost.item())
        np.testing.assert_allclose(losses(loss, labels, 4), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: tt.Huber(0), "delta"),
        (lambda: tt.Focal(-1.0), "gamma"),
        (lambda: tt.Focal(2.0, 1.5), "alpha"),
        (lambda: tt.Huber(1.0, "none"), "one number"),
    ],
)
def test_settings_that_mean_nothing_are_refused(make, said):
    with pytest.raises(InvalidCall, match=said):
        make()


@pytest.mark.parametrize("loss", ["focal", "dice", "kl_divergence"])
def test_labels_that_mean_nothing_are_refused(loss):
    with pytest.raises(InvalidFeed, match="labels of"):
        losses(loss, MASKS * 3)


def test_a_file_stores_losses_and_schedules_with_their_settings():
    for rate in (tt.OneCycle(0.1, 20), tt.PolynomialDecay(0.1, 20, 2.0), tt.WarmRestarts(0.1, 4, 2)):
        graph = tx.Graph(opsets={"ai.onnx": 17})
        graph.output("y", ops.add(graph.input("x", "float32", ("n", 6)), graph.variable("w", SCORES[0])))
        data = (SCORES, SHARES)
        tt.fit(graph, data, loss=tt.Huber(0.3), optimizer=tt.SGD(rate), trainable="w", backend="numpy")
        step = tt.TrainingStep(graph, backend="numpy")
        assert step._objective.loss == tt.Huber(0.3)
        assert step.optimizer.learning_rate == rate


def test_schedules_are_those_of_pytorch():
    torch = pytest.importorskip("torch")
    schedulers = torch.optim.lr_scheduler
    cases = [
        (tt.OneCycle(0.1, 20), lambda o: schedulers.OneCycleLR(o, 0.1, total_steps=20, cycle_momentum=False)),
        (tt.PolynomialDecay(0.1, 15, 2.0), lambda o: schedulers.PolynomialLR(o, 15, 2.0)),
        (tt.WarmRestarts(0.1, 4, 2, 0.01), lambda o: schedulers.CosineAnnealingWarmRestarts(o, 4, 2, 0.01)),
        (tt.WarmRestarts(0.1, 5), lambda o: schedulers.CosineAnnealingWarmRestarts(o, 5)),
    ]
    for ours, make in cases:
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
        scheduler, expected = make(optimizer), []
        for _ in range(20):
            expected.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        np.testing.assert_allclose([ours(k) for k in range(20)], expected, atol=1e-9)


def test_schedules_by_hand():
    assert [tt.PolynomialDecay(1.0, 4)(k) for k in range(6)] == [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]
    restarts = tt.WarmRestarts(1.0, 2, 2)
    assert [round(restarts(k), 3) for k in (0, 1, 2, 4, 6)] == [1.0, 0.5, 1.0, 0.5, 1.0]
    cycle = tt.OneCycle(1.0, 10, rise=0.3)
    assert max(range(10), key=cycle) == 2
    assert cycle(0) == pytest.approx(1 / 25)
    assert cycle(50) == pytest.approx(1 / 25e4)
