"""``tenonnx score``."""

import json

import pyarrow as pa
import pytest
from pyarrow import parquet

from tenonnx_cli import FAILED, REFUSED, main


@pytest.fixture
def rows(tmp_path):
    parquet.write_table(pa.table({"id": [1, 2, 3], "x": [1.0, None, 3.0]}), tmp_path / "t.parquet")
    return str(tmp_path / "t.parquet")


def test_a_run_prints_a_summary(scale, rows, tmp_path, capsys):
    out = str(tmp_path / "out")
    assert main(["score", scale, "--input", rows, "-o", out, "--keep", "id", "--on", "local:1", "--check"]) == 0
    output = capsys.readouterr()
    assert "3 rows in 1 file, 0 bad rows" in output.out
    assert "33.33%" in output.out
    assert "3 to 7" in output.out
    assert "check: 3 rows scored, 0 bad" in output.err
    assert "scoring 1 file on local:1: onnxruntime" in output.err
    assert parquet.read_table(out)["id"].to_pylist() == [1, 2, 3]


def test_results_as_json(scale, rows, tmp_path, capsys):
    assert main(["score", scale, "--input", rows, "-o", str(tmp_path / "out"), "--json", "--output-names", "y"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["rows"], result["bad_rows"], result["columns"]["y"]["max"]) == (3, 0, 7.0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--columns", "x"], "is not of the form x=age,income"),
        (["--keep", "id,,x"], "is not a list of names such as id,date"),
        (["--mean", "a"], "is not a list such as"),
        (["--on", "nowhere"], "unknown engine"),
        (["--keep", "date"], 'has no column "date"'),
        (["--pixels", "1"], "is not a range LOW:HIGH"),
        (["--backend", "abacus"], 'no backend "abacus" is installed'),
    ],
)
def test_errors_are_reported_without_a_traceback(arguments, said, scale, rows, tmp_path, capsys):
    assert main(["score", scale, "--input", rows, "-o", str(tmp_path / "out"), *arguments]) in (REFUSED, FAILED)
    assert said in capsys.readouterr().err
