"""The message classes of ONNX without the onnx package equal those of the package."""

import subprocess
import sys

import onnx

from tenonnx.formats.onnx import proto

BEFORE = """
import pickle, sys
from tenonnx.formats.onnx import proto
assert "onnx" not in sys.modules
model = proto.ModelProto(ir_version=8)
import onnx
assert isinstance(model, onnx.ModelProto) and onnx.onnx_ml_pb2.ModelProto is proto.ModelProto
assert pickle.loads(pickle.dumps(model)) == model
"""


def test_classes_are_those_of_onnx_imported_before():
    assert proto.ModelProto is onnx.ModelProto
    assert proto.TensorProto.FLOAT == onnx.TensorProto.FLOAT
    assert proto.IR_VERSION == onnx.IR_VERSION


def test_classes_are_those_of_onnx_imported_later():
    done = subprocess.run([sys.executable, "-c", BEFORE], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_reading_running_and_simplifying_import_no_more_of_onnx(tmp_path):
    code = """
import sys
import numpy
import tenonnx as tx
graph = tx.load(sys.argv[1])
tx.simplify(graph)
graph.run({"x": numpy.ones((1, 2), numpy.float32)})
assert "onnx" not in sys.modules
"""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[n, 2] x) => (float[n, 2] y) { y = Relu (x) }'
    )
    onnx.save(model, tmp_path / "m.onnx")
    command = [sys.executable, "-c", code, str(tmp_path / "m.onnx")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
