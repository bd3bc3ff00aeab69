"""Checks of training data before the first step."""

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops
import tenonnx_training as tt
from tenonnx_cli import main
from tenonnx_training.data_checks import InvalidSample


def classifier():
    graph = tx.Graph(opsets={"ai.onnx": 17})
    x = graph.input("x", "float32", ("n", 2))
    graph.output("z", x @ graph.variable("w", np.ones((2, 3), np.float32)))
    return graph


X = np.arange(40, dtype=np.float32).reshape(20, 2)
LABELS = np.arange(20) % 3


def changed(array, place, value):
    array = array.copy()
    array[place] = value
    return array


@pytest.mark.parametrize(
    ("data", "options", "sample", "message"),
    [
        ({"x": changed(X, (13, 1), np.nan), "labels": LABELS}, {}, 13, "element [1]"),
        ({"x": changed(X, (4, 0), np.inf), "labels": LABELS}, {}, 4, "1 of 40 elements are not finite"),
        ({"x": X, "labels": changed(LABELS, 17, 9)}, {}, 17, "9"),
        ({"x": X, "labels": changed(LABELS, 3, -2)}, {}, 3, "-2"),
        ({"x": X, "labels": changed(LABELS.astype(np.float32), 6, 0.5)}, {}, 6, "is not a class number"),
        ({"x": X, "labels": LABELS, "s": changed(np.ones(20, np.float32), 5, -1)}, {"sample_weights": "s"}, 5, "-1"),
        ({"x": X, "labels": LABELS, "s": np.zeros(20, np.float32)}, {"sample_weights": "s"}, 0, "all sample weights"),
    ],
)
def test_a_sample_that_cannot_be_trained_on_is_named_before_the_first_step(data, options, sample, message):
    graph = classifier()
    with pytest.raises(InvalidSample) as caught:
        tt.fit(graph, data, loss="softmax_cross_entropy", backend="numpy", batch_size=4, **options)
    assert caught.value.sample == sample
    assert message in str(caught.value)
    assert graph.training_state is None
    np.testing.assert_array_equal(graph["w"], np.ones((2, 3)))


def test_validation_data_is_checked_too():
    wrong = {"x": changed(X, (2, 0), np.nan), "labels": LABELS}
    with pytest.raises(InvalidSample, match="sample 2"):
        tt.fit(classifier(), (X, LABELS), validation=wrong, loss="softmax_cross_entropy", backend="numpy")


def test_a_model_that_handles_missing_numbers_may_read_them():
    graph = tx.Graph(opsets={"ai.onnx": 17})
    x = graph.input("x", "float32", ("n", 2))
    filled = ops.where(ops.isnan(x), 0.0, x)
    graph.output("z", filled @ graph.variable("w", np.ones((2, 3), np.float32)))
    history = tt.fit(graph, (changed(X, (3, 1), np.nan), LABELS), loss="softmax_cross_entropy", backend="numpy")
    assert np.isfinite(history.losses).all()


@pytest.mark.parametrize(("line", "message"), [("1,,2", '"x" holds nan'), ("1,2,9", "9")])
def test_the_command_names_the_line_of_a_table(line, message, tmp_path, capsys):
    tx.export(classifier(), tmp_path / "m.onnx")
    rows = [f"{i / 10},{i / 5},{i % 3}" for i in range(30)]
    (tmp_path / "data.csv").write_text("\n".join(["a,b,labels", *rows[:17], line, *rows[17:]]) + "\n")
    files = [str(tmp_path / "m.onnx"), "--data", str(tmp_path / "data.csv"), "-o", str(tmp_path / "o.onnx")]
    assert main(["train", *files, "--loss", "softmax_cross_entropy"]) == 2
    output = capsys.readouterr().err
    assert message in output
    assert "line 19 of" in output
    assert not (tmp_path / "o.onnx").exists()


class Shuffling:
    """Batches in a new order at each iteration."""

    def __init__(self):
        self.random = np.random.default_rng(0)

    def __iter__(self):
        for k in self.random.permutation(5):
            yield X[4 * k : 4 * k + 4], LABELS[4 * k : 4 * k + 4]


class OfEpoch(Shuffling):
    """Batches in an order that depends on the epoch."""

    def set_epoch(self, number):
        self.random = np.random.default_rng(number)


def interrupted(loader):
    for k, batch in enumerate(loader):
        if k == 3:
            raise KeyboardInterrupt
        yield batch


@pytest.mark.parametrize(("loader", "noted"), [(Shuffling(), True), (OfEpoch(), False)])
def test_an_epoch_that_a_shuffling_loader_resumes_is_noted(loader, noted):
    graph = classifier()
    tt.fit(graph, interrupted(loader), loss="softmax_cross_entropy", backend="numpy")
    history = tt.fit(graph, loader, backend="numpy")
    assert any("same order" in note for note in history.notes) == noted
