"""Recipes, settings by pattern, sensitivity and size budgets."""

from __future__ import annotations

import json
import sys

import numpy as np
import onnx
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx_cli import main
from tenonnx_quantized.tuning.budget import Budget
from tenonnx_quantized.tuning.recipe import config_of, recipes

FEEDS = [{"x": np.random.default_rng(k).standard_normal((40, 32)).astype(np.float32)} for k in range(3)]


def perceptron():
    """Return two linear layers with a Relu in between."""
    random = np.random.default_rng(3)
    graph = tx.Graph(opsets={"ai.onnx": 21})
    first, second = (random.standard_normal(shape).astype(np.float32) / 6 for shape in ((32, 48), (48, 16)))
    hidden = ops.relu(graph.input("x", "float32", ("n", 32)) @ graph.variable("first", first))
    graph.output("y", hidden @ graph.variable("second", second))
    return graph


def error(graph, made, feeds):
    expected, result = (g.run(feeds, backend="numpy")["y"] for g in (graph, made))
    return float(np.square(expected - result).mean() / np.square(expected).mean())


TARGETS = ("onnxruntime-cpu", "tensorrt", "qnn", "openvino", "litert", "webgpu")


@pytest.mark.parametrize("name", recipes())
def test_a_recipe_quantizes_and_exports(name, tmp_path):
    graph = perceptron()
    made, report = tx.quantize(graph, FEEDS, recipe=name, backend="numpy")
    tx.export(made, tmp_path / "m.onnx")
    onnx.checker.check_model(onnx.load(tmp_path / "m.onnx"))
    assert report.reached > 0.9
    assert error(graph, tx.load(tmp_path / "m.onnx"), FEEDS[0]) < 0.03
    assert recipes()[name]


def test_every_target_has_a_recipe():
    assert set(TARGETS) <= set(recipes())


def test_recipes_of_targets_follow_their_specifications():
    tensorrt = config_of("tensorrt", {})
    assert (tensorrt.activations, tensorrt.weights, tensorrt.symmetric) == (tx.DType.int8, tx.DType.int8, True)
    made, _ = tx.quantize(perceptron(), FEEDS, recipe="tensorrt", backend="numpy")
    assert not any(v.data.array().any() for v in made.variables if v.name.endswith("/zero_point"))
    made, _ = tx.quantize(perceptron(), FEEDS, recipe="webgpu", backend="numpy")
    assert [n.op_type for n in made.nodes if "MatMul" in n.op_type] == ["MatMulNBits"] * 2
    made, report = tx.quantize(perceptron(), FEEDS, recipe="qnn", backend="numpy")
    assert {(t.kind, t.dtype) for t in report.tensors} == {("weight", "uint8"), ("activation", "uint16")}


def test_options_override_a_recipe(tmp_path):
    assert config_of("gptq-4bit", {"bits": 8}).bits == 8
    (tmp_path / "mine.toml").write_text(
        'mode = "weights"\nbits = 4\n[[layers]]\npattern = "second"\nbits = 8\ngranularity = "channel"\n'
        '[[layers]]\npattern = "fir*"\nkeep_float = true\n',
        "utf-8",
    )
    _, report = tx.quantize(perceptron(), recipe=tmp_path / "mine.toml", backend="numpy")
    assert [(t.name, t.dtype) for t in report.tensors] == [("second", "int8")]
    assert list(report.unquantized) == ["first"]


def test_the_first_matching_pattern_applies():
    layers = [{"pattern": "first", "bits": 8}, {"pattern": "*", "bits": 2, "block_size": 16, "method": "hqq"}]
    made, report = tx.quantize(perceptron(), mode="weights", layers=layers, backend="numpy")
    assert {t.name: t.dtype for t in report.tensors} == {"first": "uint8", "second": "uint2"}
    assert made.opsets["ai.onnx"] == 25


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, 'unknown recipe "gptq"'),
        ("mode = ", "is not valid TOML"),
        ('mood = "weights"', "unknown option"),
        ('mode = "weight"', "unsupported mode"),
        ("[[layers]]\nbits = 4", "lack a pattern"),
    ],
)
def test_an_invalid_recipe_is_rejected(text, message, tmp_path):
    path = tmp_path / "r.toml"
    if text is not None:
        path.write_text(text, "utf-8")
    with pytest.raises(tx.InvalidCall, match=message):
        tx.quantize(perceptron(), FEEDS, recipe="gptq" if text is None else path)


def test_an_unknown_recipe_is_rejected(tmp_path):
    with pytest.raises(tx.InvalidCall, match="cannot read the recipe"):
        config_of(tmp_path / "none.toml", {})


# ----- sensitivity ----------------------------------------------------------------------------------------------------


def test_sensitivity_is_the_error_of_quantizing_one_layer():
    graph = perceptron()
    _, report = tx.quantize(graph, FEEDS, mode="weights", report=True, backend="numpy")
    assert [layer.name for layer in report.layers] == ["first", "second"]
    for layer in report.layers:
        rules = [{"pattern": layer.name, "bits": 4}, {"pattern": "*", "keep_float": True}]
        _, alone = tx.quantize(graph, FEEDS, mode="weights", layers=rules, backend="numpy")
        assert layer.errors[4] == pytest.approx(alone.outputs["y"])
        assert layer.errors[2] > layer.errors[4] > layer.errors[8]


@pytest.mark.parametrize("bits", [3.5, 4.7, 6, 7.5, 10])
def test_a_budget_of_bits_is_respected_and_used(bits):
    _, report = tx.quantize(perceptron(), FEEDS, mode="weights", budget=f"{bits} bits", backend="numpy")
    size = sum(layer.sizes[layer.bits] for layer in report.layers)
    elements = sum(layer.elements for layer in report.layers)
    assert size <= bits * elements
    dtypes = {t.name: t.dtype for t in report.tensors}
    assert {layer.name: f"uint{layer.bits}" for layer in report.layers} == dtypes
    if bits == 10:
        assert {layer.bits for layer in report.layers} == {8}


def test_more_bits_make_a_smaller_error():
    ratios = [
        tx.quantize(perceptron(), FEEDS, mode="weights", budget=f"{b} bits", backend="numpy")[1].sqnr["y"]
        for b in (3.5, 5.5, 9.5)
    ]
    assert ratios == sorted(ratios)
    assert ratios[2] > ratios[0] + 15


def test_the_pareto_curve_is_monotonic_and_predicts_the_error():
    _, report = tx.quantize(perceptron(), FEEDS, mode="weights", report=True, backend="numpy")
    sizes, ratios = zip(*((p.bits, p.sqnr) for p in report.pareto), strict=True)
    assert list(sizes) == sorted(sizes)
    assert list(ratios) == sorted(ratios)
    _, widest = tx.quantize(perceptron(), FEEDS, mode="weights", bits=8, backend="numpy")
    assert ratios[-1] == pytest.approx(widest.sqnr["y"], abs=1.5)


def test_a_budget_in_bytes_and_in_bits_are_the_same():
    elements = 32 * 48 + 48 * 16
    result = [
        tx.quantize(perceptron(), FEEDS, mode="weights", budget=budget, backend="numpy")[1].to_dict()
        for budget in ("5 bits", f"{elements * 5 // 8}B")
    ]
    assert result[0] == result[1]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (0.05, Budget(error=0.05)),
        ("0.05", Budget(error=0.05)),
        ("4.5bits", Budget(bits=4.5)),
        ("4 bpw", Budget(bits=4)),
        ("20MiB", Budget(bytes=20 * 2**20)),
        ("1.5 kB", Budget(bytes=1500)),
        ("100b", Budget(bytes=100)),
        ("3 ms", Budget(seconds=0.003)),
        ("0.5s", Budget(seconds=0.5)),
    ],
)
def test_budgets(text, wanted):
    assert Budget.of(text) == wanted


def test_a_user_metric_is_measured_per_layer():
    graph, x = perceptron(), FEEDS[0]
    expected = error(graph, graph, x)

    def metric(made):
        return error(graph, made, x)

    made, report = tx.quantize(graph, FEEDS, mode="weights", report=True, metric=metric, backend="numpy")
    assert report.metrics == {"float": expected, "quantized": metric(made)}
    for layer in report.layers:
        rules = [{"pattern": layer.name, "bits": 2}, {"pattern": "*", "keep_float": True}]
        alone, _ = tx.quantize(graph, FEEDS, mode="weights", layers=rules, backend="numpy")
        assert layer.metrics[2] == pytest.approx(metric(alone))
        assert layer.metrics[2] > layer.metrics[4] > layer.metrics[8] > expected


def test_the_report_is_drawn(tmp_path):
    pytest.importorskip("matplotlib").use("Agg")
    _, report = tx.quantize(perceptron(), FEEDS, mode="weights", report=True, backend="numpy")
    report.plot().figure.savefig(tmp_path / "report.svg")
    assert "<svg" in (tmp_path / "report.svg").read_text("utf-8")
    _, report = tx.quantize(perceptron(), FEEDS, mode="weights", backend="numpy")
    with pytest.raises(tx.InvalidCall, match="sensitivity of layers was not measured"):
        report.plot()


# ----- the command ----------------------------------------------------------------------------------------------------


LINE = ["quantize", "m.onnx", "-o", "q.onnx"]


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tx.export(perceptron(), "m.onnx")
    np.savez("x.npz", x=np.concatenate([feeds["x"] for feeds in FEEDS]))
    return tmp_path


def test_the_command_takes_a_recipe_and_prints_the_sensitivity(files, capsys):
    line = "quantize m.onnx -o q.onnx --recipe gptq-4bit --inputs x.npz --report --budget 5bits"
    assert main(line.split()) == 0
    assert "SQNR at 2 bits" in capsys.readouterr().out
    assert main([*line.split(), "--json", "--overwrite"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert {layer["name"] for layer in result["layers"]} == {"first", "second"}
    assert result["pareto"][0][0] < 5


def test_options_of_the_command_override_its_recipe(files, capsys):
    assert main([*LINE, "--recipe", "webgpu", "--bits", "8", "--form", "qdq", "--json"]) == 0
    assert {t["dtype"] for t in json.loads(capsys.readouterr().out)["tensors"]} == {"uint8"}


def test_the_command_draws_the_report(files):
    pytest.importorskip("matplotlib").use("Agg")
    assert main([*LINE, "--mode", "weights", "--inputs", "x.npz", "--plot", "p.svg"]) == 0
    assert "<svg" in (files / "p.svg").read_text("utf-8")


MEASURE = """
import sys, onnx
import numpy as np
print("nodes:", len(onnx.load(sys.argv[1]).graph.node), file=sys.stderr)
print("accuracy", sum(each.data_type != 1 for each in onnx.load(sys.argv[1]).graph.initializer) / 8)
"""


def test_the_command_measures_a_metric(files, capsys):
    (files / "measure.py").write_text(MEASURE, "utf-8")
    command = f'"{sys.executable}" measure.py'
    assert main([*LINE, "--mode", "weights", "--report", "--evaluate", command]) == 0
    printed = capsys.readouterr().out
    assert "metric at 4 bits" in printed
    assert main([*LINE, "--mode", "weights", "--evaluate", command + " {model}", "--overwrite", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)["metrics"]
    assert result["float"] == 0
    assert result["quantized"] > 0


@pytest.mark.parametrize(
    ("program", "said"),
    [("raise SystemExit(3)", "ended with status 3"), ("print('none')", "printed no number")],
)
def test_commands_that_measure_nothing(files, capsys, program, said):
    (files / "measure.py").write_text(program, "utf-8")
    assert main([*LINE, "--mode", "weights", "--evaluate", f'"{sys.executable}" measure.py']) == 2
    assert said in capsys.readouterr().err
    assert not (files / "q.onnx").exists()


BAD_LINES = {
    "--evaluate none-of-that-name": "cannot start the command of --evaluate",
    "--recipe none": 'unknown recipe "none"',
    "--method none": 'unknown method "none"',
    "--mode weights --method gptq": "got no calibration data",
    "--budget many": "neither an error, a size nor a time",
    "--mode weights --budget 1bits": "do not fit into the budget",
}


@pytest.mark.parametrize("options", BAD_LINES)
def test_the_command_reports_errors(files, capsys, options):
    assert main(["quantize", "m.onnx", "-o", "q.onnx", *options.split()]) == 2
    output = capsys.readouterr().err
    assert BAD_LINES[options] in output
    assert "Traceback" not in output
    assert not (files / "q.onnx").exists()


def test_the_command_refuses_data_with_nan(files, capsys):
    np.savez("bad.npz", x=np.full((4, 32), np.nan, np.float32))
    assert main(["quantize", "m.onnx", "-o", "q.onnx", "--mode", "static", "--inputs", "bad.npz"]) == 2
    assert "NaN or infinite" in capsys.readouterr().err


def test_a_static_quantization_below_ten_decibels_is_refused(tmp_path, capsys):
    """An outlier of an activation leaves no precision for other elements in 8 bits."""
    random = np.random.default_rng(0)
    graph = tx.Graph(opsets={"ai.onnx": 17})
    w = random.standard_normal((16, 4)).astype(np.float32)
    w[0] = 0
    graph.output("y", ops.matmul(graph.input("x", "float32", ("n", 16)), graph.variable("w", w)))
    tx.export(graph, tmp_path / "m.onnx")
    x = random.standard_normal((64, 16)).astype(np.float32)
    x[0, 0] = 1e4
    np.savez(tmp_path / "x.npz", x=x)
    line = ["quantize", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "q.onnx"), "--mode", "static"]
    line += ["--inputs", str(tmp_path / "x.npz")]
    assert main(line) == 1
    assert "below 10 dB" in capsys.readouterr().err
    assert not (tmp_path / "q.onnx").exists()
    assert main([*line, "--activation-type", "uint16"]) == 0  # 16 bits are precise enough
    capsys.readouterr()
    assert main([*line, "--allow-loss", "--overwrite", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sqnr"]["y"] < 10
    assert (tmp_path / "q.onnx").exists()
