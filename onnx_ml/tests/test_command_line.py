"""``tenonnx run`` on a pipeline over a CSV table: a column per input, labels and probabilities out."""

from __future__ import annotations

import csv
import warnings

import numpy as np
import pytest

from tenonnx_cli import main

for package in ("sklearn", "skl2onnx", "lightgbm", "xgboost"):
    pytest.importorskip(package)

import zoo  # noqa: E402

COLUMNS = ("age", "fare", "port", "cabin")


@pytest.fixture(scope="module")
def fitted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return zoo.of_passengers(zoo.logistic()).fit(*zoo.passengers())


@pytest.fixture(scope="module")
def pipeline(fitted, tmp_path_factory):
    """A saved pipeline of imputer, scaler, one-hot encoder and logistic regression."""
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType

    kinds = (FloatTensorType, FloatTensorType, StringTensorType, StringTensorType)
    path = tmp_path_factory.mktemp("pipeline") / "pipeline.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        types = [(name, kind([None, 1])) for name, kind in zip(COLUMNS, kinds, strict=True)]
        path.write_bytes(to_onnx(fitted, initial_types=types, target_opset=18).SerializeToString())
    return path


@pytest.fixture
def run(pipeline, tmp_path, capsys):
    """Run the pipeline on a table given as text."""

    def run(text, *options):
        table = tmp_path / "rows.csv"
        table.write_text(text, "utf-8")
        code = main(["run", str(pipeline), "--input", str(table), *options])
        return code, capsys.readouterr().err

    return run


@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
def test_labels_and_probabilities(fitted, run, tmp_path, backend):
    rows, _ = zoo.passengers()
    lines = [",".join("" if field != field else str(field) for field in row) for row in rows]
    out = tmp_path / "out.csv"
    code, err = run("\n".join([",".join(COLUMNS), *lines]), "-o", str(out), "--backend", backend)
    assert code == 0, err
    with out.open() as file:
        result = list(csv.DictReader(file))
    assert list(result[0]) == ["output_label", "output_probability[0]", "output_probability[1]"]
    assert [int(row["output_label"]) for row in result] == fitted.predict(rows).tolist()
    probabilities = [[float(row[f"output_probability[{k}]"]) for k in (0, 1)] for row in result]
    np.testing.assert_allclose(probabilities, fitted.predict_proba(rows), atol=1e-5)


def test_columns_in_any_order_among_others(run, tmp_path):
    code, err = run("cabin,name,port,fare,age\nfirst,Ann,Cork,30,\n", "-o", str(tmp_path / "out.csv"))
    assert code == 0, err
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 2


def test_a_table_verifies_the_pipeline_in_plain_ops(pipeline, tmp_path, capsys):
    table, plain, out = (tmp_path / name for name in ("rows.csv", "plain.onnx", "out.csv"))
    table.write_text("age,fare,port,cabin\n30,9.5,Cork,first\n,40,Dover,second\n")
    target = ["--opset", "13", "--domains", "ai.onnx", "--no-zipmap"]
    assert main(["convert", str(pipeline), "-o", str(plain), *target, "--inputs", str(table)]) == 0
    assert "verified" in capsys.readouterr().out
    assert main(["run", str(plain), "--input", str(table), "-o", str(out)]) == 0
    assert out.read_text().splitlines()[0] == "output_label,output_probability[0],output_probability[1]"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (
            "age,port,cabin\n30,Cork,first\n",
            ['has no column "fare"', "age, port, cabin", "fare: float32", "--columns fare="],
        ),
        (
            "age,fare,port,cabin\n30,9.5,Cork,first\nold,9.5,Cork,first\n",
            ['line 3, column "age" is not a value of float32', "'old'", "a number, or nothing", "correct"],
        ),
        (
            "age,fare,port,cabin\n30,9.5,Cork,first\n30,9.5,Rome,first\n",
            ["an element has no category", "'Rome'", "'Brest', 'Cork', 'Dover'", "handle_unknown"],
        ),
    ],
    ids=["missing column", "wrong type", "unseen category"],
)
@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
def test_mismatched_inputs_are_reported(run, tmp_path, text, parts, backend):
    out = tmp_path / "out.csv"
    code, err = run(text, "-o", str(out), "--backend", backend)
    assert code == 2
    for part, label in zip(parts, ("", "given", "available", "do"), strict=True):
        assert any(label in line and part in line for line in err.splitlines())
    assert not out.exists()
