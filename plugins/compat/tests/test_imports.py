"""``python -m tenonnx_compat run``: redirection of imports, in its process only."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"

SCRIPT = f"""
import sys
import onnx
import onnx.version_converter
import onnxruntime.quantization
import onnxsim
from onnx import version_converter
from onnxruntime.quantization import QuantType
from onnxsim.onnx_simplifier import simplify
from onnxslim import slim
import onnxruntime.quantization.quantize

model = onnx.load({str(EXAMPLES / "digits_cnn" / "digits-cnn.onnx")!r})
found, agrees = onnxsim.simplify(model)
assert agrees and simplify is onnxsim.simplify
assert len(slim(found).graph.node) == len(found.graph.node)
assert version_converter.convert_version(found, 12).opset_import[0].version == 12
assert onnxruntime.InferenceSession and QuantType.QInt8.tensor_type == onnx.TensorProto.INT8
assert onnxruntime.quantization.quantize.__module__ == "tenonnx_compat.quantization.quantize"
assert sys.argv[1:] == ["--flag", "value"] and __name__ == "__main__"
try:
    import onnxsim.onnxsim_cpp2py_export
except ImportError as error:
    print(error)
"""


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "tenonnx_compat", *arguments], capture_output=True, text=True, timeout=120, check=False
    )


def test_a_script_runs_unchanged(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    process = run("run", str(tmp_path / "script.py"), "--flag", "value")
    assert process.returncode == 0, process.stderr
    assert "translates the public functions of tools" in process.stdout
    assert f"{tmp_path / 'script.py'}:14: CompatWarning: onnxsim.simplify" in process.stderr


def test_modules_of_a_script_and_its_exit_code_stay(tmp_path):
    (tmp_path / "helper.py").write_text("from onnxslim import slim\nstatus = 3 if 'compat' in slim.__module__ else 4\n")
    (tmp_path / "script.py").write_text("import sys, helper\nsys.exit(helper.status)\n")
    assert run("run", str(tmp_path / "script.py")).returncode == 3


def test_the_command_of_a_tool(tmp_path):
    out = tmp_path / "out.onnx"
    process = run("run", "-m", "onnxsim", str(EXAMPLES / "digits_cnn" / "digits-cnn.onnx"), str(out))
    assert process.returncode == 0, process.stderr
    assert "Simplified Model" in process.stdout
    assert out.exists()
    assert "tenonnx convert" in process.stderr


@pytest.mark.parametrize(("arguments", "words"), [(["missing.py"], "no such file"), ([], "SCRIPT")])
def test_bad_arguments(arguments, words):
    process = run("run", *arguments)
    assert process.returncode == 2
    assert words in process.stderr
    assert "Traceback" not in process.stderr


def test_importing_the_package_redirects_nothing():
    code = "import sys, tenonnx_compat.onnxsim, tenonnx_compat.onnxslim; sys.exit('onnxsim' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=120, check=False).returncode == 0
