"""A loss for each of several outputs."""

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops
import tenonnx_training as tt

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((12, 3)).astype(np.float32)
MASK = (RANDOM.random((12, 2)) > 0.5).astype(np.float32)
BOX = RANDOM.standard_normal((12, 2)).astype(np.float32)
LOSS = {"mask": "binary_cross_entropy", "box": tt.Huber(0.5)}
WEIGHTS = {"mask": 2.0, "box": 0.5}
DATA = {"x": X, "mask": MASK, "box": BOX}
OPTIONS = {"optimizer": tt.SGD(0.1), "backend": "numpy", "batch_size": 5}


def two_heads(*, with_loss=False):
    """A model with a mask and a box output, optionally with the sum of their losses as an output."""
    graph = tx.Graph("heads", opsets={"ai.onnx": 21})
    x = graph.input("x", "float32", ("n", 3))
    w, v = (np.random.default_rng(k).standard_normal((3, 2)).astype(np.float32) for k in (1, 2))
    mask, box = x @ graph.variable("w", w), x @ graph.variable("v", v)
    if with_loss:
        truth, expected = (graph.input(name, "float32", ("n", 2)) for name in ("mask_labels", "box_labels"))
        first, second = tt.BinaryCrossEntropy()(mask, truth), tt.Huber(0.5)(box, expected)
        graph.output("total", first * 2.0 + second * 0.5)
        return graph
    graph.output("mask", ops.sigmoid(mask))
    graph.output("box", box)
    return graph


def fitted(data=None, graph=None, **options):
    graph = two_heads() if graph is None else graph
    given = {"loss": LOSS, "loss_weights": WEIGHTS, "epochs": 2, **OPTIONS, **options}
    return graph, tt.fit(graph, DATA if data is None else data, **given)


def test_the_loss_is_the_weighted_sum():
    graph, result = fitted()
    data = {"x": X, "mask_labels": MASK, "box_labels": BOX}
    alone, expected = fitted(data, two_heads(with_loss=True), loss="total", loss_weights=None)
    np.testing.assert_allclose(result.losses, expected.losses, rtol=1e-6)
    for name in "wv":
        np.testing.assert_allclose(graph[name].data.array(), alone[name].data.array(), rtol=1e-6)
    last = result.epochs[-1]
    assert last["loss"] == pytest.approx(2 * last["mask/loss"] + 0.5 * last["box/loss"])


@pytest.mark.parametrize(
    "data",
    [
        (X, MASK, BOX),
        {"x": X, "mask/labels": MASK, "box/labels": BOX},
        {"x": X, "mask": MASK, "box/labels": BOX},
    ],
)
def test_labels_by_order_or_name(data):
    assert fitted(data)[1].losses == fitted()[1].losses


def test_labels_have_the_names_that_are_given():
    named = {"labels": {"mask": "truth"}}
    assert fitted({"x": X, "truth": MASK, "box": BOX}, **named)[1].losses == fitted()[1].losses


def test_metrics_by_output():
    metrics = {
        "mask": ["binary_cross_entropy", tt.RocAuc()],
        "box": ["mean_absolute_error", lambda p, y: np.ptp(p - y)],
    }
    graph, result = fitted(metrics=metrics, validation=DATA)
    last = result.epochs[-1]
    results = graph.run({"x": X})
    assert last["validation_box/mean_absolute_error"] == pytest.approx(np.abs(results["box"] - BOX).mean(), rel=1e-5)
    assert last["validation_box/<lambda>"] == pytest.approx(np.ptp(results["box"] - BOX), rel=1e-5)
    measured = tt.evaluate(graph, DATA, metrics, loss=LOSS, loss_weights=WEIGHTS, backend="numpy")
    for name, value in measured.items():
        assert value == pytest.approx(last[f"validation_{name}"], rel=1e-6)
    assert measured["loss"] == pytest.approx(2 * measured["mask/loss"] + 0.5 * measured["box/loss"])
    assert set(measured) == {"loss", *(f"mask/{n}" for n in ("loss", "binary_cross_entropy", "roc_auc"))} | {
        f"box/{n}" for n in ("loss", "mean_absolute_error", "<lambda>")
    }


@pytest.mark.parametrize("size", [1, 5, 12])
def test_the_mean_does_not_depend_on_the_batch_size(size):
    loss = {"mask": tt.SoftmaxCrossEntropy(ignore_index=-1), "box": "mean_squared_error"}
    labels = np.where(np.arange(12) % 3, MASK.argmax(1), -1)
    data = {"x": X, "mask": labels, "box": BOX}
    result = tt.evaluate(two_heads(), data, loss=loss, batch_size=size, backend="numpy")
    whole = tt.evaluate(two_heads(), data, loss=loss, batch_size=12, backend="numpy")
    assert result == pytest.approx(whole, rel=1e-5)


def test_sample_weights_count_in_all_losses():
    weights = np.float32(np.arange(12) % 2)
    result = tt.evaluate(two_heads(), {**DATA, "s": weights}, loss=LOSS, sample_weights="s", backend="numpy")
    odd = {name: array[1::2] for name, array in DATA.items()}
    assert result == pytest.approx(tt.evaluate(two_heads(), odd, loss=LOSS, backend="numpy"), rel=1e-6)


def test_a_resumed_training_has_the_losses_of_before(tmp_path):
    metrics = {"mask": [tt.RocAuc()]}
    _, whole = fitted(metrics=metrics, epochs=2)
    graph, _ = fitted(metrics=metrics, callbacks=[tt.EverySteps(4, tt.Training.stop)])
    graph.save(tmp_path / "state.safetensors")
    again = tx.load(tmp_path / "state.safetensors")
    result = tt.fit(again, DATA, metrics=metrics, backend="numpy")
    assert result.epochs[-1] == pytest.approx(whole.epochs[-1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": {}}, "no output has a loss"),
        ({"loss": {"nothing": "huber"}}, 'loss names "nothing"'),
        ({"loss": {"box": "nothing"}, "loss_weights": None}, 'is called "nothing"'),
        ({"loss_weights": {"boxes": 1.0}}, 'loss_weights names "boxes"'),
        ({"loss_weights": {"box": -1.0}}, "negative or not finite"),
        ({"labels": {"boxes": "y"}}, 'labels names "boxes"'),
        ({"metrics": {"boxes": ["huber"]}}, 'metrics names "boxes"'),
        ({"metrics": ["huber"]}, "metrics of several outputs are not named by output"),
        ({"loss": "huber"}, "and one loss for all"),
        ({"sample_weights": "x"}, 'name "x" is already used'),
    ],
)
def test_mismatched_losses_and_metrics(options, message):
    with pytest.raises(tx.InvalidCall, match=message):
        fitted(**options)


def test_labels_that_are_missing_or_mean_nothing():
    with pytest.raises(tx.InvalidFeed, match="box/labels"):
        fitted({"x": X, "mask": MASK})
    with pytest.raises(tx.InvalidFeed, match="outside of 0 to 1"):
        fitted({**DATA, "mask": MASK * 3})
