"""Exit codes of commands, compared with the table of the documentation."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

import tenonnx as tx
import tenonnx_cli
from tenonnx_cli import main

ROOT = Path(__file__).parents[1]

#: Target name of the installed onnxruntime.
TARGET = "onnxruntime-" + ".".join(onnxruntime.__version__.split(".")[:2])

#: A model without a kernel in onnxruntime, which numpy runs.
NO_KERNEL = '<ir_version: 8, opset_import: ["": 17]> g (bfloat16[n] x) => (bfloat16[n] y) { y = Sqrt (x) }'

#: A model with only random outputs, which cannot be compared.
NOISE = '<ir_version: 8, opset_import: ["": 17]> g () => (float[3] y) { y = RandomNormal <shape = [3]> () }'

PLAIN = '<ir_version: 8, opset_import: ["": 17]> g (float[n, 2] x) => (float[n, 2] y) { y = %s (x) }'

#: A Fourier transform of a signal of any length, and its inverse.
SPECTRUM = """<ir_version: 10, opset_import: ["": 20]> g (float[2, width, 1] x) => (float[2, width, 1] y) {
    axis = Constant <value = int64 {1}> ()
    rows = Shape <start = 1, end = 2> (x)
    length = Squeeze (rows)
    half = DFT <onesided = 1> (x, length, axis)
    two = Constant <value = float {2.0}> ()
    twice = Mul (half, two)
    back = DFT <inverse = 1, onesided = 1> (twice, length, axis)
    y = Neg (back)
}"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in (("none", NO_KERNEL), ("random", NOISE), ("a", PLAIN % "Neg"), ("b", PLAIN % "Abs")):
        onnx.save(parser.parse_model(text), f"{name}.onnx")
    return tmp_path


def test_the_table_has_the_codes_of_the_program():
    lines = (ROOT / "docs/reference/exit-codes.md").read_text("utf-8").splitlines()
    codes = {
        int(line.split("|")[1]) for line in lines if line.startswith("| ") and line.split("|")[1].strip().isdigit()
    }
    program = {tenonnx_cli.FAILED, tenonnx_cli.REFUSED, tenonnx_cli.INTERRUPTED, tenonnx_cli.BROKEN_PIPE}
    assert codes == {0, *program}


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("verify a.onnx a.onnx", 0),
        ("verify a.onnx b.onnx", 1),
        ("verify random.onnx random.onnx", 1),
        ("convert random.onnx -o out.onnx", 0),
        ("convert random.onnx -o out.onnx --verify", 1),
        ("convert none.onnx -o out.onnx", 0),
        (f"convert none.onnx -o out.onnx --target {TARGET}", 1),
        ("convert missing.onnx -o out.onnx", 2),
        ("verify a.onnx", 0),
        ("verify a.onnx --backend nobody", 2),
    ],
)
def test_commands_end_with_the_codes_of_the_table(folder, command, code, capfd):
    assert main(command.split()) == code, capfd.readouterr()
    written = "convert" in command and code == 0
    assert (folder / "out.onnx").exists() == written
    assert not list(folder.glob(".tenonnx*"))


def test_a_file_that_the_runtime_cannot_load_is_not_written(folder):
    with pytest.raises(tx.VerificationFailed, match="does not load"):
        tx.convert("none.onnx", "out.onnx", target=TARGET)
    assert not Path("out.onnx").exists()
    report = tx.convert("none.onnx", "out.onnx")
    assert not report.verification.default_session[0].equal


def test_nothing_compared_under_verify_is_a_failure(folder):
    with pytest.raises(tx.VerificationFailed, match="nothing could be compared"):
        tx.convert("random.onnx", "out.onnx", verify=True)


def test_a_spectrum_of_any_length_runs_in_a_default_session(tmp_path):
    graph = tx.load(parser.parse_model(SPECTRUM))
    tx.export(graph, tmp_path / "out.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "out.onnx")
    for width in (1, 6, 7):
        x = np.arange(2 * width, dtype=np.float32).reshape(2, width, 1)
        (y,) = session.run(None, {"x": x})
        np.testing.assert_allclose(y, -2 * x, atol=1e-4)
