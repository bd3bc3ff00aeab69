"""Calibration data of ``tx.quantize``: paths, arrays and data loaders, as for training."""

import numpy as np
import pytest
from pyarrow import Table, parquet

import tenonnx as tx
import tenonnx_standard as ops

ROWS = np.random.default_rng(0).normal(size=(48, 8)).astype(np.float32)
WEIGHTS = np.random.default_rng(1).normal(size=(8, 4)).astype(np.float32)


def model():
    graph = tx.Graph(opsets={"ai.onnx": 17})
    graph.output("y", ops.matmul(graph.input("x", "float32", ("n", 8)), graph.variable("w", WEIGHTS)))
    return graph


def npz(folder):
    np.savez(folder / "rows.npz", x=ROWS, labels=np.zeros(48))
    return folder / "rows.npz"


def table(folder):
    parquet.write_table(Table.from_pydict({f"c{k}": ROWS[:, k] for k in range(8)}), folder / "rows.parquet")
    return str(folder / "rows.parquet")


SOURCES = {
    "npz": npz,
    "parquet": table,
    "arrays": lambda _: {"x": ROWS},
    "tuple": lambda _: (ROWS, np.zeros(48)),
    "loader": lambda _: [(ROWS[k : k + 16], np.zeros(16)) for k in (0, 16, 32)],
}


@pytest.mark.parametrize("kind", SOURCES)
def test_all_kinds_of_data_give_the_same_calibration(tmp_path, kind):
    batches = [{"x": ROWS[k : k + 16]} for k in (0, 16, 32)]
    expected, report = tx.quantize(model(), batches, mode="static", backend="numpy")
    result, told = tx.quantize(model(), SOURCES[kind](tmp_path), mode="static", batch_size=16, backend="numpy")
    assert told.to_dict() == report.to_dict()
    feeds = {"x": ROWS[:5]}
    np.testing.assert_array_equal(result.run(feeds, backend="numpy")["y"], expected.run(feeds, backend="numpy")["y"])


def test_the_columns_of_an_input(tmp_path):
    lines = ["a,b,kind", *(f"{a},{b},{k}" for k, (a, b) in enumerate(ROWS[:, :2].tolist()))]
    (tmp_path / "rows.csv").write_text("\n".join(lines), "utf-8")
    graph = tx.Graph(opsets={"ai.onnx": 17})
    graph.output("y", ops.matmul(graph.input("x", "float32", ("n", 2)), graph.variable("w", WEIGHTS[:2])))
    _, told = tx.quantize(
        graph, tmp_path / "rows.csv", columns={"x": ["b", "a"]}, mode="static", batch_size=48, backend="numpy"
    )
    _, expected = tx.quantize(graph, [{"x": ROWS[:, 1::-1]}], mode="static", backend="numpy")
    assert told.to_dict() == expected.to_dict()


def test_a_file_without_the_input(tmp_path):
    np.savez(tmp_path / "rows.npz", z=ROWS[:, :3])
    with pytest.raises(tx.InvalidFeed, match="got a feed that is not"):
        tx.quantize(model(), tmp_path / "rows.npz", mode="static")
    with pytest.raises(tx.InvalidCall, match="got no calibration data"):
        tx.quantize(model(), [], mode="static")


BAD = {
    "an empty folder": (lambda folder: folder, "holds no files of data"),
    "a file that is not there": (lambda folder: folder / "none.npz", "cannot read"),
    "another name": (lambda _: [{"z": ROWS}], "a batch lacks inputs of the model"),
    "no rows": (lambda _: {"x": ROWS[:0]}, "got no calibration data"),
    "a batch without rows": (lambda _: [{"x": ROWS}, {"x": ROWS[:0]}], "a batch of the calibration data is empty"),
    "NaN": (lambda _: [{"x": ROWS}, {"x": ROWS * np.nan}], "NaN or infinite"),
    "infinite": (lambda _: [{"x": ROWS / np.float32(1e-45)}], "NaN or infinite"),
}


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning", "ignore:divide:RuntimeWarning")
@pytest.mark.parametrize("settings", [{"mode": "static"}, {"mode": "weights", "method": "gptq"}])
@pytest.mark.parametrize("kind", BAD)
def test_bad_data(kind, settings, tmp_path):
    data, words = BAD[kind]
    with pytest.raises(tx.TenonnxError, match=words):
        tx.quantize(model(), data(tmp_path), **settings)


@pytest.mark.parametrize("method", ["rtn", "gptq", "quantease", "ada-round", "auto-round", "smooth-quant", "awq"])
@pytest.mark.parametrize("number", [0.0, 2.5])
def test_constant_inputs_give_scales_above_zero(number, method):
    batch = {"x": np.full((4, 8), number, np.float32)}
    made, report = tx.quantize(model(), [batch], mode="static", method=method, backend="numpy")
    scales = [np.asarray(value) for value in made.variables if value.name.endswith("/scale")]
    assert all((scale > 0).all() for scale in scales)
    assert report.outputs["y"] < 0.05
    assert report.notes == (['"x" is 0 on all calibration data: its scale is 1'] if number == 0 else [])


def test_one_sample_is_noted():
    _, report = tx.quantize(model(), [{"x": ROWS[:1]}], mode="static", backend="numpy")
    assert report.notes == ["calibrated on one sample: numbers of other inputs may be outside its ranges"]
