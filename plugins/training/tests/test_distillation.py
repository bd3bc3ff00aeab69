"""Distillation from a teacher: the loss against its definition in numpy."""

import json

import numpy as np
import pytest
from trained_models import X, Y, linear

import tenonnx as tx
import tenonnx_training as tt
from tenonnx_cli import main
from tenonnx_standard.axis_activation import softmax
from tenonnx_standard.reduction import reduce_mean

RNG = np.random.default_rng(0)
IMAGES, LABELS = RNG.normal(size=(12, 5)).astype("float32"), np.arange(12) % 3
W, V = (RNG.normal(size=(5, 3)).astype("float32") for _ in range(2))
HOW = {"optimizer": tt.SGD(0.1), "backend": "numpy"}


def scoring(weights, opset=21, *, probabilities=False, name="x"):
    """``x @ weights``, or its softmax."""
    graph = tx.Graph("scoring", opsets={"ai.onnx": opset})
    y = graph.input(name, "float32", ("n", weights.shape[0])) @ graph.variable("w", weights)
    graph.output("y", softmax(y) if probabilities else y)
    return graph


def log_softmax(x):
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def divergence(student, teacher, heat):
    """The mean divergence of softmaxes at a temperature, times the squared temperature."""
    s, t = log_softmax(student / heat), log_softmax(teacher / heat)
    return heat**2 * (np.exp(t) * (t - s)).sum(-1)


@pytest.mark.parametrize("probabilities", [False, True])
@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
def test_the_loss_of_classes(probabilities, backend):
    """The teacher may have another opset version, another input name, and a final softmax."""
    teacher = scoring(V, 11, probabilities=probabilities, name="images")
    student = scoring(W, probabilities=probabilities)
    how = {**HOW, "backend": backend}
    step = tt.TrainingStep(
        student, "softmax_cross_entropy", teacher=teacher, temperature=3.0, teacher_weight=0.25, **how
    )
    hard = -log_softmax(IMAGES @ W)[np.arange(12), LABELS].mean()
    expected = 0.75 * hard + 0.25 * divergence(IMAGES @ W, IMAGES @ V, 3.0).mean()
    assert step({"x": IMAGES, "labels": LABELS})["loss"] == pytest.approx(expected, rel=1e-5)
    assert "the loss is 0.75 by labels and 0.25 by the teacher" in step.notes
    # gradient of the mean loss by scores: cross-entropy, and T * (softmax(s/T) - softmax(t/T))
    s, t = IMAGES @ W, IMAGES @ V
    by_scores = 0.75 * (np.exp(log_softmax(s)) - np.eye(3)[LABELS])
    by_scores += 0.25 * 3.0 * (np.exp(log_softmax(s / 3)) - np.exp(log_softmax(t / 3)))
    np.testing.assert_allclose(step.program.state["w"], W - 0.1 * IMAGES.T @ by_scores / 12, rtol=1e-4, atol=1e-6)


def test_ignored_labels_and_weights_count_in_both_parts():
    labels, weights = np.where(LABELS == 2, -100, LABELS), RNG.uniform(0.5, 2, 12).astype("float32")
    loss = tt.SoftmaxCrossEntropy(ignore_index=-100)
    step = tt.TrainingStep(
        scoring(W), loss, teacher=scoring(V), teacher_weight=1.0, temperature=1, sample_weights="share", **HOW
    )
    share = weights * (labels >= 0)
    expected = (share * divergence(IMAGES @ W, IMAGES @ V, 1.0)).sum() / share.sum()
    assert step({"x": IMAGES, "labels": labels, "share": weights})["loss"] == pytest.approx(expected, rel=1e-5)


def test_distillation_of_numbers_uses_the_loss_itself():
    teacher = linear()
    teacher.assign({"w": np.float32([[0.0], [1.0]])})
    step = tt.TrainingStep(linear(), "mean_squared_error", teacher=teacher, **HOW)
    ours, theirs = X @ [[1.0], [2.0]] + 0.5, X @ [[0.0], [1.0]] + 0.5
    expected = 0.5 * np.mean((ours - Y) ** 2) + 0.5 * np.mean((ours - theirs) ** 2)
    assert step({"x": X, "labels": Y})["loss"] == pytest.approx(expected, rel=1e-5)


def test_labels_of_their_own_are_compared_by_sigmoids():
    labels = (LABELS[:, None] == np.arange(3)).astype("float32")
    step = tt.TrainingStep(
        scoring(W), "binary_cross_entropy", teacher=scoring(V), teacher_weight=1.0, temperature=2.0, **HOW
    )
    s, p = IMAGES @ W / 2, 1 / (1 + np.exp(-IMAGES @ V / 2))
    expected = 4 * np.mean(np.logaddexp(0, s) - s * p)
    assert step({"x": IMAGES, "labels": labels})["loss"] == pytest.approx(expected, rel=1e-5)


def test_each_of_several_outputs_has_the_output_of_its_name():
    def both(*weights):
        graph = tx.Graph("both", opsets={"ai.onnx": 21})
        x = graph.input("x", "float32", ("n", 5))
        for name, contents in zip("ab", weights, strict=True):
            graph.output(name, x @ graph.variable(f"w_{name}", contents))
        return graph

    loss = {"a": "mean_squared_error", "b": "mean_absolute_error"}
    step = tt.TrainingStep(both(W, V), loss, teacher=both(V, W), teacher_weight=1.0, **HOW)
    zeros = np.zeros((12, 3), "float32")
    result = step({"x": IMAGES, "a": zeros, "b": zeros})
    difference = IMAGES @ W - IMAGES @ V
    assert result["a/loss"] == pytest.approx(np.mean(difference**2), rel=1e-5)
    assert result["b/loss"] == pytest.approx(np.mean(abs(difference)), rel=1e-5)


def test_a_student_learns_from_a_teacher_on_wrong_labels():
    student = scoring(np.zeros((5, 3), "float32"))
    how = {**HOW, "optimizer": tt.SGD(1.0), "epochs": 60, "temperature": 1.0, "teacher_weight": 1.0}
    tt.fit(student, (IMAGES, np.zeros(12, int)), loss="softmax_cross_entropy", teacher=scoring(V), **how)
    result = student.run({"x": IMAGES})["y"].argmax(1)
    np.testing.assert_array_equal(result, (IMAGES @ V).argmax(1))


def test_resuming_needs_the_teacher_again(tmp_path):
    student, data = scoring(W), (IMAGES, LABELS)
    how = {"loss": "softmax_cross_entropy", "teacher": scoring(V), "temperature": 3.0, "teacher_weight": 0.25, **HOW}
    whole = scoring(W)
    tt.fit(whole, data, epochs=2, **how)
    tt.fit(student, data, **how)
    student.save(tmp_path / "state.safetensors")
    with pytest.raises(tx.InvalidCall, match="the teacher is missing") as caught:
        tt.fit(tx.load(tmp_path / "state.safetensors"), data, backend="numpy")
    assert "--teacher-weight 0" in caught.value.do
    resumed = tx.load(tmp_path / "state.safetensors")
    tt.fit(resumed, data, teacher=scoring(V), backend="numpy")
    np.testing.assert_array_equal(resumed["w"].data.array(), whole["w"].data.array())
    tt.fit(resumed, data, teacher_weight=0, backend="numpy")


@pytest.mark.parametrize(
    ("how", "match"),
    [
        ({"teacher": "no-such-file.onnx"}, "no-such-file"),
        ({"teacher": scoring(np.ones((5, 4), "float32"))}, "differ in type"),
        ({"teacher": scoring(V), "temperature": 0}, "invalid temperature"),
        ({"teacher": scoring(V), "teacher_weight": 1.5}, "invalid temperature or teacher_weight"),
        ({"teacher": scoring(V), "loss": lambda p, y: reduce_mean((p - y) * p, keepdims=0)}, "unsupported loss"),
        ({"temperature": 2.0}, "the teacher is missing"),
    ],
)
def test_teachers_that_do_not_fit(how, match):
    options = {"loss": "softmax_cross_entropy", **HOW, **how}
    with pytest.raises(tx.TenonnxError, match=match):
        tt.TrainingStep(scoring(W), **options)


def test_a_teacher_with_other_inputs():
    teacher = linear()
    teacher.output("z", teacher.input("mask", "float32", ("batch", 1)) * 1.0)
    with pytest.raises(tx.InvalidCall, match="inputs that the model lacks") as caught:
        tt.TrainingStep(linear(), "mean_squared_error", teacher=teacher, **HOW)
    assert caught.value.given == "mask"


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tx.export(scoring(W), "student.onnx")
    tx.export(scoring(V), "teacher.onnx")
    np.savez("rows.npz", x=IMAGES, labels=LABELS)
    return ["train", "student.onnx", "--data", "rows.npz", "--loss", "softmax_cross_entropy", "--backend", "numpy"]


def test_the_command_is_fit(files, capsys):
    flags = ["--teacher", "teacher.onnx", "--temperature", "3", "--teacher-weight", "0.25", "-o", "tuned.onnx"]
    assert main([*files, *flags]) == 0
    assert "0.25 by the teacher" in capsys.readouterr().err
    student = scoring(W)
    how = {"teacher": "teacher.onnx", "temperature": 3, "teacher_weight": 0.25, "backend": "numpy"}
    tt.fit(student, (IMAGES, LABELS), loss="softmax_cross_entropy", **how)
    np.testing.assert_array_equal(tx.load("tuned.onnx")["w"].data.array(), student["w"].data.array())


def test_the_command_finds_a_learning_rate(files, tmp_path, capsys):
    assert main([*files, "--find-learning-rate", "rates.svg"]) == 0
    shown = capsys.readouterr().out
    assert "learning rate: " in shown
    assert "--lr " in shown
    assert (tmp_path / "rates.svg").read_text("utf-8").startswith("<svg")
    assert main([*files, "--find-lr", "rates.svg", "--overwrite", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    expected = tt.find_learning_rate(scoring(W), (IMAGES, LABELS), loss="softmax_cross_entropy", backend="numpy")
    assert printed["learning_rate"] == expected.suggestion
    assert (printed["rates"], printed["output"], printed["epochs"]) == ("rates.svg", None, [])
    assert main([*files, "--find-lr", "rates.svg", "-o", "tuned.onnx"]) == 2
    assert "trains no model" in capsys.readouterr().err
    assert main([*files, "--find-lr", "rates.txt"]) == 2
