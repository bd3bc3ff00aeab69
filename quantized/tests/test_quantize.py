"""``tenonnx quantize`` and its function: accuracy beside onnxruntime's quantiser, settings, reports and the budget."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import tenonnx as tx
from tenonnx.cli import main
from tenonnx_quantized.quantize import code_range
from tenonnx_quantized.tuning.calibrate import METHODS, observe, parameters
from tenonnx_quantized.tuning.quantize import quantize
from tenonnx_quantized.tuning.weights import by_channel, in_blocks

CNN = Path(__file__).parents[2] / "examples" / "digits_cnn"
DIGITS = np.load(CNN / "digits.npz")
IMAGES, LABELS = DIGITS["images"], DIGITS["labels"]
BATCHES = [{"images": IMAGES[k : k + 20]} for k in range(0, 100, 20)]


@pytest.fixture(scope="module")
def cnn():
    return tx.load(CNN / "digits-cnn.onnx")


def right(path):
    """The part of all digits that a file gets right, in onnxruntime."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (scores,) = session.run(None, {"images": IMAGES})
    return float((scores.argmax(1) == LABELS).mean())


MODES = {
    "static": {"mode": "static"},
    "static, tensors": {"mode": "static", "per_channel": False},
    "static, symmetric": {"mode": "static", "symmetric": True},
    "static, qoperator": {"mode": "static", "form": "qoperator"},
    **{f"static, {method}": {"mode": "static", "calibration": method} for method in METHODS},
    "dynamic": {"mode": "dynamic"},
    "dynamic, integers": {"mode": "dynamic", "form": "qoperator"},
    "weights, 4 bits": {"mode": "weights"},
    "weights, 8 bits": {"mode": "weights", "bits": 8},
}


@pytest.mark.parametrize("settings", MODES.values(), ids=MODES)
def test_digits_are_read_as_well(cnn, settings, tmp_path):
    made, report = quantize(cnn, BATCHES, **settings)
    tx.export(made, tmp_path / "made.onnx")
    # onnxruntime's own quantiser gives 0.963 to 0.968 on these digits, the floats 0.964
    assert right(tmp_path / "made.onnx") > 0.962
    assert report.outputs["scores"] < 0.07
    assert (tmp_path / "made.onnx").stat().st_size < (CNN / "digits-cnn.onnx").stat().st_size


def test_the_report_names_what_was_done(cnn):
    _, report = quantize(cnn, BATCHES, mode="static", leave_out=["Conv_1"])
    assert len(report.quantised) == 2
    kinds = [t.kind for t in report.tensors]
    assert (kinds.count("weight"), kinds.count("activation")) == (2, 4)
    assert all(0 < t.error < 0.02 for t in report.tensors)
    assert set(report.to_json()) == {"quantised", "floats", "tensors", "outputs"}


def test_a_budget_leaves_the_worst_nodes_floats(cnn):
    _, free = quantize(cnn, BATCHES, mode="static")
    made, held = quantize(cnn, BATCHES, mode="static", budget=0.01)
    assert free.outputs["scores"] > 0.01 >= held.outputs["scores"]
    assert held.floats
    assert len(held.floats) + len(held.quantised) == len(free.quantised)
    _, none = quantize(cnn, BATCHES, mode="static", budget=0.0)
    assert not none.quantised
    assert none.outputs == {"scores": 0.0}
    assert made.opsets["ai.onnx"] >= 13


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "integer"}, "mode must be a known one"),
        ({"bits": 4}, "bits must be a known one"),
        ({"mode": "weights", "block_size": 24}, "power of two"),
        ({"budget": -1.0}, "budget must not be negative"),
        ({"size": 3}, "fields of Settings"),
        ({"ops": ["Relu"]}, "nothing to quantise"),
        ({"mode": "dynamic", "leave_out": ["*"]}, "nothing to quantise"),
    ],
)
def test_settings_that_are_refused(cnn, settings, message):
    with pytest.raises(tx.InvalidCall, match=message):
        quantize(cnn, BATCHES, **settings)


def test_ranges_need_data(cnn):
    with pytest.raises(tx.InvalidCall, match="needs data"):
        quantize(cnn, mode="static")


# ----- ranges and codes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("dtype", [tx.DType.uint8, tx.DType.int8, tx.DType.uint4])
@pytest.mark.parametrize(("low", "high"), [(-1.0, 2.0), (0.5, 3.0), (-4.0, -1.0), (0.0, 0.0)])
def test_parameters_hold_a_range_and_zero(low, high, dtype, symmetric):
    found = parameters(np.float32(low), np.float32(high), dtype, symmetric=symmetric)
    least, greatest = code_range(dtype)
    zero = int(found.zero_point)
    assert least <= zero <= greatest
    assert found.scale > 0
    step = float(found.scale)
    assert (least - zero) * step <= min(low, 0) + step
    assert (greatest - zero) * step >= max(high, 0) - step


def test_methods_leave_outliers_out():
    graph = tx.Graph()
    x = graph.input("x", "float32", ("n",))
    graph.output("y", x + 0.0)
    contents = np.random.default_rng(0).normal(size=20000).astype(np.float32)
    contents[0] = 40.0
    widths = {}
    for method in METHODS:
        low, high = observe(graph, ["y"], [{"x": contents}], method, "numpy")["y"]
        assert low <= 0 <= high
        widths[method] = high - low
    assert widths["minmax"] > 40 > widths["percentile"]
    assert all(widths[method] < widths["minmax"] for method in ("entropy", "mse"))


def test_codes_of_channels_and_blocks():
    x = np.random.default_rng(0).normal(size=(70, 6)).astype(np.float32) * np.arange(1, 7, dtype=np.float32)
    whole, each = (np.abs(by_channel(x, tx.DType.int8, axis).numbers() - x).max() for axis in (None, 1))
    assert each <= whole <= np.abs(x).max() / 127
    errors = {}
    for axis in (0, 1):
        for search in ("rtn", "hqq"):
            codes = in_blocks(x if axis == 0 else x.T, 4, 32, axis, symmetric=False, search=search)
            assert codes.codes.shape == ((70, 6) if axis == 0 else (6, 70))
            errors[axis, search] = float(np.square(codes.numbers() - (x if axis == 0 else x.T)).sum())
    assert errors[0, "rtn"] == pytest.approx(errors[1, "rtn"])
    assert errors[0, "hqq"] < errors[0, "rtn"]


# ----- the command ----------------------------------------------------------------------------------------------------


def test_the_command_writes_and_reports(tmp_path, capsys):
    source, output = str(CNN / "digits-cnn.onnx"), tmp_path / "made.onnx"
    arguments = ["quantize", source, "-o", str(output), "--mode", "static", "--inputs", str(CNN / "digits.npz")]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert "3 nodes quantised" in said
    assert 'output "scores" differs by' in said
    assert right(output) > 0.962
    assert main([*arguments, "--json", "--form", "qoperator", "--calibration", "mse"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["tensors"]) == 9
    assert found["bytes"][1] < found["bytes"][0]


def test_the_command_without_data(tmp_path, capsys):
    source, output = str(CNN / "digits-cnn.onnx"), tmp_path / "made.onnx"
    assert main(["quantize", source, "-o", str(output), "--mode", "weights", "--search", "hqq"]) == 0
    assert "made-up inputs" in capsys.readouterr().err
    assert main(["quantize", source, "-o", str(output), "--mode", "static"]) == 2
    assert "needs data" in capsys.readouterr().err
