"""Targets from the tables of winml-cli, tested on a small wheel of the same layout."""

import json
import zipfile

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx_cli import main

pyarrow = pytest.importorskip("pyarrow", reason="the tables are parquet files")

FOLDER = "winml/modelkit/analyze/rules/runtime_check_rules/AcmeExecutionProvider_NPU"


def cell(value):
    kind = {bool: "bool", int: "int", str: "str"}[type(value)]
    return json.dumps({"t": kind, "v": value})


def table(rows):
    """Return a parquet file of rows; the last entry of each row is the outcome."""
    from pyarrow import parquet

    columns = {name: [cell(row[name]) for row, _ in rows] for name in rows[0][0]}
    columns["compile_run_success"] = [list(outcome) for _, outcome in rows]
    file = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.table(columns), file)
    return file.getvalue().to_pybytes()


def unary(op, dtype, outcome, rank=2, fixed=True, **attributes):
    row = {f"T_{op}": dtype, "X_dim": rank, "X_is_none": False, "X_is_fixed_shape": fixed, "X_is_constant": False}
    return row | {f"attr_{name}": value for name, value in attributes.items()}, outcome


@pytest.fixture
def wheel(tmp_path):
    path, works, fails = tmp_path / "winml_cli-0-py3-none-any.whl", (True, True), (False, True)
    files = {
        "Relu_AcmeExecutionProvider_NPU_ai.onnx_opset6": [unary("Relu", "FLOAT", works)],
        "Relu_AcmeExecutionProvider_NPU_ai.onnx_opset14": [
            unary("Relu", "FLOAT", works),
            unary("Relu", "DOUBLE", fails),
            unary("Relu", "FLOAT", fails, fixed=False),
        ],
        "Elu_AcmeExecutionProvider_NPU_ai.onnx_opset6": [unary("Elu", "FLOAT", fails)],
        "Relu_AcmeExecutionProvider_NPU_ai.onnx_opset13_qdq": [unary("Relu", "FLOAT", fails)],
        "GeluPattern_AcmeExecutionProvider_NPU_ai.onnx_opset13": [unary("Relu", "FLOAT", fails)],
        "Concat_AcmeExecutionProvider_NPU_ai.onnx_opset13": [
            ({"T_Concat": "FLOAT", "attr_axis": axis}, works if axis else fails) for axis in (0, 1, 2)
        ],
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, rows in files.items():
            archive.writestr(f"{FOLDER}/{name}.parquet", table(rows))
    return path


def test_tables_become_a_target(tmp_path, wheel, capfd):
    output = tmp_path / "winml.json"
    assert main(["targets", "import", "winml", str(wheel), "-o", str(output)]) == 0
    assert "winml-acme-npu" in capfd.readouterr().out
    target = tx.Target.load(f"{output}#winml-acme-npu")
    assert {name for _, name in target.ops} == {"Relu", "Concat"}
    assert (target.static_shapes, dict(target.opsets)) == (True, {"ai.onnx": 14})
    (older, newer) = target.ops["ai.onnx", "Relu"]
    assert (older.until, newer.since, newer.dtypes) == (13, 14, frozenset([tx.DType.float32]))
    (concat,) = target.ops["ai.onnx", "Concat"]
    assert concat.attributes == (("axis", (1, 2)),)
    assert main(["targets", "import", "winml", str(wheel), "-o", str(output), "--json"]) == 0
    printed = json.loads(capfd.readouterr().out)
    assert printed == {"file": str(output), "targets": [{"name": "winml-acme-npu", "ops": 2}]}
    graph = tx.Graph(opsets={"ai.onnx": 14})
    with graph.building():
        graph.output("y", ops.relu(graph.input("x", "float64", (2, 3))))
    with pytest.raises(tx.TenonnxError):
        tx.retarget(graph, target=f"{output}#winml-acme-npu")
    plain = tx.Graph(opsets={"ai.onnx": 14})
    with plain.building():
        plain.output("y", ops.relu(plain.input("x", "float32", (2, 3))))
    moved = tx.retarget(plain, target=f"{output}#winml-acme-npu")
    feeds = {"x": np.float32([[1, -2, 3], [0, 1, -1]])}
    np.testing.assert_array_equal(moved.run(feeds, backend="numpy")["y"], np.maximum(feeds["x"], 0))


@pytest.mark.parametrize(
    ("contents", "reason"),
    [(None, "cannot read"), (b"PK no wheel", "is not a wheel"), ("empty", "has no tables of measured support")],
)
def test_other_files_are_rejected(tmp_path, capfd, contents, reason):
    path = tmp_path / "other.whl"
    if contents == "empty":
        zipfile.ZipFile(path, "w").close()
    elif contents is not None:
        path.write_bytes(contents)
    assert main(["targets", "import", "winml", str(path), "-o", str(tmp_path / "winml.json")]) == 2
    assert reason in capfd.readouterr().err


@pytest.mark.parametrize(
    ("output", "reason"), [("winml.txt", "has no suffix .json"), ("none/winml.json", "no such folder")]
)
def test_wrong_outputs_are_refused(tmp_path, monkeypatch, capfd, output, reason):
    monkeypatch.chdir(tmp_path)
    assert main(["targets", "import", "winml", "any.whl", "-o", output]) == 2
    assert reason in capfd.readouterr().err
