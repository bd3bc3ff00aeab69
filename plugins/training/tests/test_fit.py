"""Fit: epochs, resuming, stopping, checkpoints and failures."""

import io
import re

import numpy as np
import pytest
from trained_models import X, Y, contents, digits, dropping, linear

import tenonnx as tx
import tenonnx_training as tt
from tenonnx.errors import InvalidCall, InvalidFeed
from tenonnx.graph.training import TrainingState

OPTIONS = {"loss": "mean_squared_error", "optimizer": tt.Adam(0.05), "batch_size": 2}


@pytest.fixture(params=["numpy", "onnxruntime"])
def backend(request):
    return request.param


def reloaded(graph):
    """``graph`` after a round trip through a file with its training state."""
    stream = io.BytesIO()
    tx.export(graph, stream, include_training_state=True)
    return tx.load(stream.getvalue())


def test_the_digits_network_learns_in_seconds(backend):
    graph, images, labels = digits()
    history = tt.fit(
        graph,
        {"images": images[:600], "labels": labels[:600]},
        loss="softmax_cross_entropy",
        optimizer=tt.Adam(tt.CosineDecay(8e-3, steps=10 * 19)),
        epochs=10,
        metrics=["accuracy"],
        validation=(images[600:], labels[600:]),
        backend=backend,
    )
    assert len(history.losses) == 10 * 19
    assert history.epochs[-1]["validation_accuracy"] > 0.97
    result = graph.run({"images": images[600:]}, backend=backend)["scores"].argmax(1)
    assert np.mean(result == labels[600:]) == pytest.approx(history.epochs[-1]["validation_accuracy"])


def test_a_run_in_two_parts_equals_one_run(backend):
    data = {"x": X, "labels": np.tile(Y, (1, 8))}
    options = {**OPTIONS, "trainable": "w", "backend": backend}
    whole, parts = dropping(), dropping()
    expected = tt.fit(whole, data, epochs=3, **options).losses
    first = tt.fit(parts, data, epochs=2, **options).losses
    parts = reloaded(parts)
    assert first + tt.fit(parts, data, epochs=1, **options).losses == expected
    np.testing.assert_array_equal(contents(parts)["w"], contents(whole)["w"])


def test_an_interrupted_epoch_is_finished(backend, tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    whole, parts = linear(), linear()
    batches = [{"x": X[k : k + 1], "labels": Y[k : k + 1]} for k in range(4)]
    expected = tt.fit(whole, batches, epochs=1, backend=backend, **OPTIONS).losses

    def stopping():
        yield from batches[:2]
        raise KeyboardInterrupt

    history = tt.fit(parts, stopping(), epochs=1, backend=backend, checkpoint=path, **OPTIONS)
    assert history.interrupted
    assert history.losses == expected[:2]
    rest = tt.fit(tx.load(path), batches, epochs=1, backend=backend, **OPTIONS)
    assert rest.losses == expected[2:]


@pytest.mark.filterwarnings("ignore:.*float64 is cast to float32")
def test_data_comes_in_several_forms():
    runs = [
        tt.fit(linear(), data, epochs=1, shuffle=False, **OPTIONS).losses
        for data in (
            {"x": X, "anything": Y},
            {"x": X.tolist(), "labels": Y.tolist()},
            (X, Y),
            [(X[:2], Y[:2]), (X[2:], Y[2:])],
            iter([{"x": X[:2], "labels": Y[:2]}, {"x": X[2:], "labels": Y[2:]}]),
        )
    ]
    assert runs == [runs[0]] * 5


def test_the_seed_decides_the_order():
    runs = [tt.fit(linear(), (X, Y), epochs=3, seed=seed, **OPTIONS).losses for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


def test_a_callback_can_end_the_training():
    seen = []

    def enough(measured):
        seen.append(measured["validation_loss"])
        return len(seen) == 2

    history = tt.fit(linear(), (X, Y), epochs=9, validation=(X, Y), callbacks=[enough], **OPTIONS)
    assert [epoch["validation_loss"] for epoch in history.epochs] == seen
    assert len(seen) == 2


def test_a_nan_loss_keeps_the_last_good_state(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    graph = linear()
    tt.fit(graph, (X, Y), epochs=1, checkpoint=path, **OPTIONS)
    good = contents(graph)["w"].copy()
    bad = [(X, Y), (np.full_like(X, np.inf), Y)]
    with pytest.raises(tt.TrainingFailed, match="at step 4") as caught:
        tt.fit(graph, bad, epochs=1, checkpoint=path, **OPTIONS)
    assert "clip_norm" in caught.value.do
    np.testing.assert_array_equal(contents(graph)["w"], good)
    np.testing.assert_array_equal(contents(tx.load(path))["w"], good)


def test_a_loss_that_leads_nowhere_keeps_what_was_good(tmp_path):
    """The last loss of an epoch is finite, but the update makes parameters infinite."""
    path = tmp_path / "checkpoint.safetensors"
    graph = linear()
    options = {"loss": "mean_squared_error", "optimizer": "sgd", "checkpoint": path}
    tt.fit(graph, (X, Y), epochs=1, **options)
    good, saved = contents(graph), path.read_bytes()
    with pytest.raises(tt.TrainingFailed, match='"w" became infinite or NaN'):
        tt.fit(graph, [(X, Y + np.float32(1e15))], epochs=1, **{**options, "optimizer": tt.SGD(1e30)})
    for name, array in contents(graph).items():
        np.testing.assert_array_equal(array, good[name])
    assert path.read_bytes() == saved


def test_infinities_of_the_file_may_stay():
    graph = linear()
    graph.variable("mask", np.float32([0, -np.inf]))
    tt.fit(graph, (X, Y), epochs=1, **OPTIONS)
    assert contents(graph)["mask"].tolist() == [0, -np.inf]


def test_numbers_of_numpy_are_numbers(tmp_path):
    options = {"optimizer": tt.SGD(np.float32(0.1)), "seed": np.int64(3), "checkpoint": tmp_path / "c.safetensors"}
    tt.fit(linear(), (X, Y), loss="mean_squared_error", **options, epochs=np.int64(1), batch_size=np.int32(2))
    settings = tx.load(options["checkpoint"]).training_state.settings
    assert settings["seed"] == 3
    assert settings["optimizer"]["learning_rate"] == pytest.approx(0.1)


def interrupted(data, after, **options):
    """A graph whose training on ``data`` was interrupted after ``after`` batches, and the losses so far."""
    graph, seen = linear(), []
    trained = tt.TrainingStep.train

    def stopping(step, batch):
        if len(seen) == after:
            raise KeyboardInterrupt
        result = trained(step, batch)
        seen.append(result.mean("loss"))
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tt.TrainingStep, "train", stopping)
        tt.fit(graph, data, **options)
    return graph, seen


def test_the_rest_of_an_epoch_may_have_another_batch_size():
    graph, _ = interrupted((X, Y), 1, **OPTIONS, shuffle=False)
    assert graph.training_state.settings["samples"] == 2
    small = {**OPTIONS, "batch_size": 1}
    history = tt.fit(graph, (X, Y), shuffle=False, **small)
    assert len(history.losses) == 2
    graph, _ = interrupted([(X[:1], Y[:1]), (X[1:], Y[1:])], 1, **OPTIONS)
    with pytest.raises(InvalidFeed, match="cannot resume epoch 1 after 1 samples"):
        tt.fit(graph, [(X, Y)], **OPTIONS)


def test_an_epoch_of_which_nothing_is_left_is_measured_before_the_next():
    calls = []

    def validation():
        if not calls:
            calls.append(1)
            raise KeyboardInterrupt
        yield X, Y

    class Anew:
        def __iter__(self):
            return validation()

    graph = linear()
    assert tt.fit(graph, (X, Y), validation=Anew(), **OPTIONS).interrupted
    assert graph.training_state.settings["samples"] == 4
    history = tt.fit(graph, (X, Y), validation=Anew(), **OPTIONS)
    assert [epoch["epoch"] for epoch in history.epochs] == [1, 2]
    assert all({"loss", "validation_loss"} <= set(epoch) for epoch in history.epochs)
    assert len(history.losses) == 2


@pytest.mark.parametrize(
    "settings",
    [{"epoch": "x"}, {"samples": -1}, {"seed": 1.5}, {"optimizer": "x"}, {"optimizer": {"name": ["adam"]}}],
)
def test_settings_that_mean_nothing(settings):
    graph = linear()
    tt.fit(graph, (X, Y), **OPTIONS)
    state = graph.training_state
    graph.training_state = TrainingState(state.tensors, {**state.settings, **settings})
    with pytest.raises(InvalidCall) as caught:
        tt.fit(graph, (X, Y), **OPTIONS)
    assert caught.value.do


def test_rows_of_unequal_lengths():
    with pytest.raises(InvalidFeed, match='"x" is not an array'):
        tt.fit(linear(), {"x": [[1, 2], [3]], "labels": Y}, **OPTIONS)


def test_data_that_runs_dry():
    graph = linear()
    with pytest.raises(InvalidFeed, match="epoch 2") as caught:
        tt.fit(graph, iter([(X, Y)]), epochs=2, **OPTIONS)
    assert "exhausted" in caught.value.given
    assert graph.training_state.settings["epoch"] == 1


def test_validation_data_that_runs_dry():
    with pytest.raises(InvalidFeed, match="epoch 2") as caught:
        tt.fit(linear(), (X, Y), epochs=2, validation=iter([(X, Y)]), **OPTIONS)
    assert "exhausted" in caught.value.given


def test_labels_that_are_not_numbers():
    graph, images, labels = digits()
    with pytest.raises(InvalidFeed, match='"labels" got a feed that is not int64'):
        tt.fit(graph, (images[:9], labels[:9].astype(str)), loss="softmax_cross_entropy", epochs=1)


def test_a_batch_of_numbers_that_are_too_large_stops_before_anything_changes():
    graph = linear()
    with pytest.warns(UserWarning, match="float64 is cast"), pytest.raises(InvalidFeed, match="range of float32"):
        tt.fit(graph, [(X.astype("float64"), Y), (X.astype("float64") * 1e300, Y)], epochs=1, **OPTIONS)
    assert contents(graph)["b"].tolist() == [0.5]


@pytest.mark.parametrize("data", [{"x": X, "labels": Y[:2]}, 3, [3], [(X,)], {"x": X[:0], "labels": Y[:0]}])
def test_invalid_data(data):
    with pytest.raises((InvalidFeed, InvalidCall)):
        tt.fit(linear(), data, epochs=1, **OPTIONS)


@pytest.mark.parametrize("wrong", [{"epochs": -1}, {"batch_size": 0}, {"epochs": "3"}, {"batch_size": 2.5}])
def test_numbers_without_meaning(wrong):
    with pytest.raises(InvalidCall, match="epochs"):
        tt.fit(linear(), (X, Y), **{**OPTIONS, **wrong})


def test_state_of_another_optimizer_or_model():
    graph = linear()
    tt.fit(graph, (X, Y), epochs=1, **OPTIONS)
    with pytest.raises(InvalidCall, match="adam, whose state sgd"):
        tt.TrainingStep(graph, "mean_squared_error", tt.SGD())
    partly = linear()
    tt.fit(partly, (X, Y), epochs=1, trainable="w", **OPTIONS)
    with pytest.raises(InvalidCall, match="lacks trainable parameters") as caught:
        tt.TrainingStep(partly, "mean_squared_error", trainable="*")
    assert "b__adam_m" in caught.value.given
    other = dropping()
    other.training_state = partly.training_state
    with pytest.raises(InvalidCall, match="another model"):
        tt.TrainingStep(other, "mean_squared_error", trainable="w")


def test_a_bar_is_shown_on_request(capsys):
    tt.fit(linear(), (X, Y), epochs=2, progress=True, **OPTIONS)
    shown = capsys.readouterr().err
    first, second = shown.splitlines()
    assert re.fullmatch(r"epoch 1: loss [\d.]+  [\d,]+ samples/s  \d+:\d\d:\d\d left", first)
    assert re.fullmatch(r"epoch 2: loss [\d.]+  [\d,]+ samples/s", second)
