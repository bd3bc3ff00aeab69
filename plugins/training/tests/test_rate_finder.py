"""The learning rate range test."""

import math
from xml.etree import ElementTree

import numpy as np
import pytest
from trained_models import X, Y, digits, linear

import tenonnx as tx
import tenonnx_training as tt

LINEAR = {"loss": "mean_squared_error", "optimizer": tt.SGD(1.0), "backend": "numpy"}


def test_the_suggestion_trains():
    _, images, labels = digits()
    data = images[:256].reshape(256, 64), labels[:256]
    graph = tx.Graph("untrained", opsets={"ai.onnx": 21})
    graph.output("y", graph.input("x", "float32", ("n", 64)) @ graph.variable("w", np.zeros((64, 10), np.float32)))
    options = {"loss": "softmax_cross_entropy", "optimizer": tt.SGD(1.0), "batch_size": 64, "backend": "numpy"}
    result = tt.find_learning_rate(graph, data, low=1e-5, high=100.0, steps=60, **options)
    assert not graph["w"].data.array().any()
    assert 1e-5 < result.suggestion < result.rates[-1] / 10
    history = tt.fit(graph, data, epochs=5, **{**options, "optimizer": tt.SGD(result.suggestion)})
    assert history.epochs[-1]["loss"] < 0.7 * np.log(10)


def test_rates_grow_by_one_factor():
    result = tt.find_learning_rate(linear(), (X, Y), low=1e-6, high=1e-2, steps=9, **LINEAR)
    np.testing.assert_allclose(result.rates, np.geomspace(1e-6, 1e-2, 9))
    assert len(result.losses) == 9


def test_the_search_ends_where_the_loss_diverges():
    result = tt.find_learning_rate(linear(), (X, Y), low=1e-3, high=1e3, steps=60, **LINEAR)
    assert len(result.losses) < 60
    assert max(result.losses) > result.losses[0]


def test_the_loss_is_that_of_training_at_these_rates():
    result = tt.find_learning_rate(linear(), (X, Y), low=1e-4, high=1e-2, steps=3, shuffle=False, **LINEAR)
    step = tt.TrainingStep(linear(), "mean_squared_error", tt.SGD(1.0), backend="numpy")
    losses = [step({"x": X, "labels": Y}, learning_rate=rate)["loss"] for rate in (1e-4, 1e-3, 1e-2)]
    assert result.losses == pytest.approx(losses)


def test_the_picture_shows_the_suggestion(tmp_path):
    result = tt.find_learning_rate(linear(), (X, Y), low=1e-5, high=1.0, steps=30, **LINEAR)
    result.save(tmp_path / "rates.svg")
    root = ElementTree.parse(tmp_path / "rates.svg").getroot()
    assert result._repr_html_() == (tmp_path / "rates.svg").read_text("utf-8")
    texts = [each.text for each in root if each.tag.endswith("text")]
    assert f"{result.suggestion:.2g}" in texts
    assert "1e-05" in texts[0]


@pytest.mark.parametrize("wrong", [{"low": 0}, {"low": 1.0, "high": 0.5}, {"steps": 1}, {"high": math.inf}])
def test_invalid_ranges(wrong):
    with pytest.raises(tx.InvalidCall, match="invalid range of learning rates"):
        tt.find_learning_rate(linear(), (X, Y), **wrong, **LINEAR)


def test_a_loss_that_does_not_fall():
    result = tt.RateSearch([1e-3, 1e-2, 1e-1], [1.0, 2.0, 3.0])
    with pytest.raises(tx.InvalidCall, match="does not fall at any learning rate"):
        _ = result.suggestion
    assert result.to_svg().endswith("</svg>")
