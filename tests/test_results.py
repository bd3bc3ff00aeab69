"""Representations of results: one line, JSON data, HTML and plots."""

import json
import re
import sys

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops
import tenonnx_training as tt
from tenonnx.extend.formats import Role

plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def _closed_figures():
    plt.switch_backend("Agg")
    yield
    plt.close("all")


def made(factor=2.0):
    graph = tx.Graph("net", opsets={"ai.onnx": 21})
    x = graph.input("x", "float32", ("batch", 8))
    weights = graph.variable("w", np.eye(8, dtype=np.float32) * factor)
    weights.role = Role("parameter")
    graph.output("y", ops.relu(ops.matmul(x, weights)))
    return graph


def history():
    rows = [
        {"epoch": k + 1, "loss": 1.0 / (k + 1), "accuracy": 0.5, "validation_loss": 2.0 / (k + 1)} for k in range(3)
    ]
    return tt.History(losses=[1.0, 0.8, 0.6, 0.5, 0.4, 0.3], epochs=rows)


RESULTS = {
    "Graph": made,
    "Node": lambda: made().nodes[0],
    "Value": lambda: made().variables[0],
    "Role": lambda: made().variables[0].role,
    "Costs": lambda: tx.costs(made()),
    "ConversionPlan": lambda: tx.plan(made(), target="tensorrt-8"),
    "Verification": lambda: tx.verify(made(), made(3.0), backends=["numpy"]),
    "Comparison": lambda: tx.compare(made(), made(3.0), backends=["numpy"]),
    "Benchmark": lambda: tx.bench(made(), backends=["numpy"], seconds=0.001),
    "History": history,
    "Report": lambda: tx.quantize(made(), mode="dynamic")[1],
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_is_one_line_data_and_html(name):
    result = RESULTS[name]()
    assert "\n" not in str(result)
    assert repr(result).startswith(f"{name}(")
    assert "object at 0x" not in repr(result)
    assert len(repr(result)) < 500
    data = result.to_dict()
    assert json.loads(json.dumps(data, allow_nan=False)).keys() == data.keys()
    page = result._repr_html_()
    assert page.startswith("<div")
    text, drawing, _ = page.partition("<svg")
    assert "color:" not in text  # inherits the notebook's colors, light or dark
    assert not drawing or "prefers-color-scheme:dark" in page or 'fill="currentColor"' in page


def test_a_conversion_report_is_one_line_and_data(tmp_path):
    report = tx.convert(made(), tmp_path / "m.onnx")
    assert str(report) == "opsets ai.onnx 21; 2 nodes kept, 0 rewritten; equal, bit for bit"
    assert report.summary().startswith(str(report))
    assert json.loads(json.dumps(report.to_dict()))["verification"]["equal"]


def test_the_line_of_a_verification_has_its_verdict_and_the_largest_difference():
    assert str(tx.verify(made(), made(3.0), backends=["numpy"])).startswith(
        "not equal; largest difference from numpy: y (numpy): float32[2, 8] at "
    )
    other = made()
    other.rename("y", "z")
    assert str(tx.verify(made(), other)).startswith("not equal; ")


def test_html_of_a_result_has_its_rows():
    page = tx.costs(made())._repr_html_()
    assert "MatMul" in page
    assert ">multiplications<" in page
    page = made().variables[0]._repr_html_()
    assert "<td" in page
    assert "float32[8, 8]" in page


def test_names_are_escaped():
    graph = tx.Graph("<b>", opsets={"ai.onnx": 21})
    graph.output("<i>", ops.exp(graph.input("<u>", "float32", (2,))))
    for thing in (tx.costs(graph), graph.nodes[0], graph.inputs[0], tx.compare(graph, graph, backends=["numpy"])):
        assert not re.search("<[biu]>(?!<b>)", thing._repr_html_().replace("<p><b>", ""))


def test_compare_finds_different_weights_and_does_not_change_the_models():
    one, other = made(), made(3.0)
    other.rename("y", "z")
    result = tx.compare(one, other, mapping={"y": "z"}, backends=["numpy"])
    assert not result.equal
    assert [float(row["first"]) for row in result.structure["weights"]] == [2.0]
    assert (result.paired, result.values) == (2, 2)
    assert other.outputs[0].name == "z"
    assert "weights: 1 difference" in result.summary()
    same = tx.compare(one, made(), backends=["numpy"])
    assert same.equal
    assert str(same).startswith("structure: equal; numbers: equal, bit for bit")


def test_compare_refuses_a_name_that_is_no_input_or_output():
    with pytest.raises(tx.InvalidCall) as caught:
        tx.compare(made(), made(), mapping={"w": "w"})
    assert caught.value.given.startswith("w")


def test_compare_reads_files(tmp_path):
    made().save(tmp_path / "a.onnx")
    assert tx.compare(tmp_path / "a.onnx", str(tmp_path / "a.onnx"), backends=["numpy"]).equal


def test_a_history_is_plotted_with_its_validation_curve():
    axes = history().plot()
    lines = {line.get_label(): line for line in axes.get_lines()}
    assert list(lines["loss of each step"].get_ydata()) == [1.0, 0.8, 0.6, 0.5, 0.4, 0.3]
    assert list(lines["validation loss"].get_xdata()) == [2, 4, 6]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("step", "loss")
    (right,) = [each for each in axes.figure.axes if each is not axes]
    assert right.get_ylabel() == "accuracy"
    assert {text.get_text() for text in axes.get_legend().get_texts()} >= {"validation loss", "accuracy"}


def test_a_plot_is_drawn_on_given_axes():
    _, axes = plt.subplots()
    assert tt.History().plot(axes) is axes


def test_costs_are_plotted_by_node():
    axes = tx.costs(made()).plot(nodes=1)
    assert axes.get_xlabel() == "multiplications (millions)"
    assert [bar.get_width() for bar in axes.patches] == [64 / 1e6]


def test_a_comparison_is_plotted_by_output_and_backend():
    axes = tx.compare(made(), made(3.0), backends=["numpy"]).plot()
    assert axes.get_ylabel() == "largest absolute difference"
    assert [text.get_text() for text in axes.get_xticklabels()] == ["y"]
    assert axes.get_yscale() == "log"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["numpy"]


def test_a_plot_without_matplotlib_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(tx.InvalidCall, match="cannot plot: the package matplotlib is not installed") as caught:
        tx.costs(made()).plot()
    assert "tenonnx-run[plot]" in caught.value.do


def test_bench_times_all_combinations_side_by_side():
    graph = made()
    result = tx.bench(
        graph,
        made(),
        titles=["a", "b"],
        backends=["numpy", "onnxruntime"],
        batch_sizes=[1, 3],
        threads=[1],
        seconds=0.01,
    )
    settings = [(each.model, each.batch_size, each.backend, each.threads) for each in result.timings]
    assert settings == [
        (model, size, backend, threads)
        for model in "ab"
        for size in (1, 3)
        for backend, threads in (("numpy", 1), ("onnxruntime", 1))
    ]
    for size in (1, 3):
        alike = [each for each in result.measured if each.batch_size == size]
        assert len(alike) == 4
        best = min(alike, key=lambda each: each.seconds)
        assert best.ratio == (1, 1, 1)
        assert all(each.ratio.low <= each.ratio.median <= each.ratio.high for each in alike)
    assert all(each.seconds <= each.quantile(0.9) <= each.quantile(0.99) for each in result.measured)
    assert len(result.plot().patches) == 8


def test_bench_repeats_or_truncates_given_rows():
    result = tx.bench(
        made(), backends=["numpy"], batch_sizes=[5], feeds={"x": np.ones((2, 8), np.float32)}, seconds=0.001
    )
    assert result.measured


def test_bench_refuses_batch_sizes_of_a_fixed_model():
    graph = tx.fix_shapes(made(), {"x": (2, 8)})
    with pytest.raises(tx.InvalidCall, match="no input has a dynamic batch dimension"):
        tx.bench(graph, batch_sizes=[1])


def test_bench_reports_a_missing_provider():
    result = tx.bench(made(), backends=["onnxruntime"], providers=["NoSuchExecutionProvider"], seconds=0.001)
    assert not result.measured
    assert result.fastest is None
    assert "NoSuchExecutionProvider" in result.timings[0].problem
    assert str(result).startswith("nothing ran: ")
