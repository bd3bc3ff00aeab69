"""Display of results and training progress in notebooks and logs."""

import re
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops
import tenonnx_training as tt

DECODER = "examples/decoder/decoder.onnx"


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch, request):
    monkeypatch.chdir(request.config.rootpath)


def cells(page):
    """The table rows of a page as text."""
    rows = re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL)
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows]


def named(name):
    graph = tx.Graph("names", opsets={"ai.onnx": 21})
    graph.output(name, ops.exp(graph.input("x", "float32", (2,))))
    return graph


def test_a_plan_shows_obstacles_first():
    plan = tx.plan(tx.load(DECODER), target="tensorrt-8")
    target, changes, ir_version = plan
    assert (target, changes, ir_version) == (plan.target, plan.changes, plan.ir_version)
    assert {change.op for change in plan.refused} == {"ai.onnx::ReduceSum@21", "ai.onnx::CumSum@21"}
    head, first, second, *others = cells(plan._repr_html_())
    assert head == ["nodes", "op", "action", "into", "reason"]
    assert {first[1], second[1]} == {"ReduceSum@21", "CumSum@21"}
    assert first[2] == second[2] == "refused"
    assert ["4", "com.microsoft::RotaryEmbedding@1", "expanded"] in [row[:3] for row in others]
    assert "not possible, 2 obstacles" in plan._repr_html_()
    assert "not possible, 2 obstacles" in str(plan)


def test_a_report_shows_changes_of_nodes_and_differences_of_outputs(tmp_path):
    report = tx.convert(DECODER, tmp_path / "plain.onnx", opset_version=17, domains=["ai.onnx"])
    result = cells(report._repr_html_())
    assert ["14", "MatMul@21", "kept", "", ""] in result
    assert ["output", "backend", "absolute", "relative", "result"] in result
    assert ["logits", "numpy, batch=2"] in [row[:2] for row in result]


def test_a_verification_shows_differences_and_escapes_names():
    graph = named("<img src=x onerror=alert(1)>")
    other = named("<img src=x onerror=alert(1)>")
    other.insert_after("x", lambda x: x * 1.5)
    page = tx.verify(graph, other)._repr_html_()
    assert "not equal" in page
    assert "<img" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    assert "the first node that diverges" in page


def test_bidirectional_control_characters_in_names_are_removed():
    assert "\u202e" not in tx.verify(named("a\u202eb"), named("a\u202eb"))._repr_html_()


def history(**options):
    graph = tx.load("examples/digits_cnn/digits-cnn.onnx")
    digits = np.load("examples/digits_cnn/digits.npz")
    data = digits["images"][:64], digits["labels"][:64]
    digits.close()
    return tt.fit(graph, data, loss="softmax_cross_entropy", optimizer=tt.Adam(1e-3), epochs=2, **options)


def test_a_history_shows_its_epochs_and_a_curve():
    result = history(metrics=["accuracy"])
    page = result._repr_html_()
    rows = cells(page)
    assert rows[0] == ["epoch", "loss", "accuracy"]
    assert [row[0] for row in rows[1:]] == ["1", "2"]
    assert rows[2][1] == f"{result.epochs[1]['loss']:.4g}"
    (line,) = re.findall(r'points="([^"]*)"', page)
    assert len(line.split()) == len(result.losses)


def test_a_history_without_finite_losses_has_no_curve():
    result = tt.History(losses=[float("nan"), float("inf")], epochs=[{"epoch": 1, "loss": float("nan")}])
    assert "polyline" not in result._repr_html_()
    assert tt.History()._repr_html_()


def test_a_long_history_is_drawn_with_averages():
    result = tt.History(losses=[1.0, 3.0] * 1000)
    (line,) = re.findall(r'points="([^"]*)"', result._repr_html_())
    assert len(line.split()) <= 400


@pytest.fixture
def shown(monkeypatch):
    """A minimal stand-in for a Jupyter kernel, which records the last page and the number of updates."""
    pages = []

    class Handle:
        def update(self, page):
            pages.append(page)

    def display(page, display_id):
        assert display_id is True
        pages.append(page)
        return Handle()

    ipython, module = ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = lambda: SimpleNamespace(kernel=object())
    module.HTML, module.display = str, display
    ipython.display = module
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return pages


def test_training_in_a_notebook_shows_a_bar_and_then_its_epochs(shown, capsys):
    history()
    assert "<progress" in shown[0]
    assert "<progress" not in shown[-1]
    assert re.search(r"epoch 1: loss .*\nepoch 2: loss ", shown[-1])
    assert capsys.readouterr().err == ""


def test_training_in_a_notebook_can_be_silent(shown):
    history(progress=False)
    assert not shown


def test_a_log_has_a_line_per_epoch_and_progress_in_long_ones(monkeypatch, capsys):
    history()
    assert capsys.readouterr().err == ""
    history(progress=True)
    rate, left = r"  [\d,]+ samples/s", r"  \d+:\d\d:\d\d left"
    expected = rf"epoch 1: loss [\d.]+{rate}{left}\nepoch 2: loss [\d.]+{rate}\n"
    assert re.fullmatch(expected, capsys.readouterr().err)
    monkeypatch.setattr("tenonnx_training.progress.LOGGED", 0.0)
    history(progress=True, batch_size=32)
    assert re.search(rf"epoch 1: 1 of 2 batches, loss [\d.]+{rate}{left}\n", capsys.readouterr().err)
