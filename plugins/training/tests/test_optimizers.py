"""Each optimizer against its formula, step by step."""

import json
import math

import numpy as np
import pytest
from trained_models import X, Y, contents, linear

import tenonnx_training as tt
from tenonnx.errors import InvalidCall


def gradient(w, b):
    error = X @ w + b - Y
    return 2 * X.T @ error / len(X), 2 * error.mean(0)


def sgd(p, g, s, t):
    return p - 0.05 * (g + 0.1 * p)


def momentum(p, g, s, t):
    s["v"] = 0.9 * s.get("v", 0) + g
    return p - 0.05 * s["v"]


def nesterov(p, g, s, t):
    s["v"] = 0.9 * s.get("v", 0) + g
    return p - 0.05 * (g + 0.9 * s["v"])


def adagrad(p, g, s, t):
    s["h"] = s.get("h", 0.1) + g * g
    return p - 0.05 / (1 + (t - 1) * 0.01) * g / (np.sqrt(s["h"]) + 1e-10)


def adam(p, g, s, t, rate=0.05):
    s["m"] = 0.9 * s.get("m", 0) + 0.1 * g
    s["v"] = 0.999 * s.get("v", 0) + 0.001 * g * g
    return p - rate * (s["m"] / (1 - 0.9**t)) / (np.sqrt(s["v"] / (1 - 0.999**t)) + 1e-8)


def adamw(p, g, s, t):
    return adam(p * (1 - 0.05 * 0.1), g, s, t)


OPTIMIZERS = [
    (tt.SGD(0.05, weight_decay=0.1), sgd),
    (tt.Momentum(0.05), momentum),
    (tt.Momentum(0.05, nesterov=True), nesterov),
    (tt.Adagrad(0.05, rate_decay=0.01, initial_sum=0.1), adagrad),
    (tt.Adam(0.05), adam),
    (tt.AdamW(0.05, weight_decay=0.1), adamw),
    (tt.Adam(tt.LinearDecay(0.05, 0.01, 4)), lambda p, g, s, t: adam(p, g, s, t, 0.05 - 0.01 * (t - 1))),
]


@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
@pytest.mark.parametrize(("optimizer", "formula"), OPTIMIZERS, ids=lambda x: getattr(x, "name", ""))
def test_steps_follow_the_formula(optimizer, formula, backend):
    step = tt.TrainingStep(linear(), "mean_squared_error", optimizer, backend=backend)
    w, b, slots = np.float64([[1], [2]]), np.float64([0.5]), ({}, {})
    for count in range(1, 5):
        step({"x": X, "labels": Y})
        gw, gb = gradient(w, b)
        w, b = formula(w, gw, slots[0], count), formula(b, gb, slots[1], count)
        np.testing.assert_allclose(step.program.state["w"], w, rtol=2e-5, atol=1e-6)
        np.testing.assert_allclose(step.program.state["b"], b, rtol=2e-5, atol=1e-6)


def test_slots_of_adam_are_its_moments():
    """Files have the moments under these names, and a resumed training may use other betas."""
    graph = linear()
    step = tt.TrainingStep(graph, "mean_squared_error", tt.Adam(0.05, beta1=0.8, beta2=0.99))
    g, _ = gradient(np.float64([[1], [2]]), np.float64([0.5]))
    step({"x": X, "labels": Y})
    held = step.write_back().training_state.tensors
    np.testing.assert_allclose(held["w__adam_m"].array(), 0.2 * g, rtol=1e-6)
    np.testing.assert_allclose(held["w__adam_v"].array(), 0.01 * g * g, rtol=1e-6)
    w, b = contents(graph)["w"], contents(graph)["b"]
    again = tt.TrainingStep(graph, "mean_squared_error", tt.Adam(0.05))
    again({"x": X, "labels": Y})
    slots = {"m": held["w__adam_m"].array(), "v": held["w__adam_v"].array()}
    expected = adam(w, gradient(w, b)[0], slots, 2)
    np.testing.assert_allclose(again.program.state["w"], expected, rtol=1e-6)


def test_clipping_bounds_the_common_norm():
    step = tt.TrainingStep(linear(), "mean_squared_error", tt.SGD(1.0), clip_norm=0.5)
    step({"x": X, "labels": Y})
    moved = np.concatenate([(step.program.state["w"] - [[1], [2]]).ravel(), step.program.state["b"] - [0.5]])
    gw, gb = gradient(np.float64([[1], [2]]), np.float64([0.5]))
    direction = np.concatenate([gw.ravel(), gb])
    np.testing.assert_allclose(moved, -0.5 * direction / np.linalg.norm(direction), rtol=1e-5)
    tame = tt.TrainingStep(linear(), "mean_squared_error", tt.SGD(1.0), clip_norm=1e6, loss_scale=64.0)
    tame({"x": X, "labels": Y})
    np.testing.assert_allclose(tame.program.state["w"], [[1], [2]] - gw, rtol=1e-5)


def test_schedules():
    cosine = tt.CosineDecay(1.0, 12, warmup=2, floor=0.1)
    assert [cosine(0), cosine(1), cosine(2)] == [0.5, 1.0, 1.0]
    np.testing.assert_allclose([cosine(7), cosine(12), cosine(99)], [0.55, 0.1, 0.1])
    assert [tt.StepDecay(1.0, 3, 0.5)(k) for k in (0, 2, 3, 6)] == [1, 1, 0.5, 0.25]


@pytest.mark.parametrize(
    "wrong", [{"learning_rate": -1.0}, {"weight_decay": "a"}, {"beta1": 1.0}, {"epsilon": math.nan}]
)
def test_numbers_without_meaning_are_refused(wrong):
    with pytest.raises(InvalidCall, match="Adam"):
        tt.Adam(**wrong)


def schedule(step):
    return 0.1


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        (np.float32(0.5), 0.5),
        (
            tt.LinearDecay(np.float32(1), 0.5, np.int64(9)),
            {"schedule": "LinearDecay", "first": 1, "last": 0.5, "steps": 9},
        ),
        (tt.StepDecay(1.0, 3), {"schedule": "StepDecay", "first": 1.0, "every": 3, "factor": 0.1}),
        (schedule, None),
    ],
)
def test_files_tell_the_learning_rate(rate, expected):
    result = json.loads(json.dumps(tt.SGD(rate, weight_decay=np.float64(0.25)).settings()))
    assert result == {"learning_rate": expected, "weight_decay": 0.25}


def test_an_unknown_name_lists_the_known():
    with pytest.raises(InvalidCall, match="adamax") as caught:
        tt.TrainingStep(linear(), "mean_squared_error", "adamax")
    assert "adamw" in caught.value.available
