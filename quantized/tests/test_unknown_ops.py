"""Half precision and weight quantization of models with an unknown op."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tenonnx_cli import main

COMMANDS = [
    ["convert", "--float16"],
    ["convert", "--bfloat16", "--no-verify"],
    ["quantize", "--mode", "weights"],
    ["quantize", "--mode", "dynamic"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_file_gets_smaller_and_the_op_stays(command, tmp_path, capsys):
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17, "TRT": 1]>
        g (float[n, 64] x) => (float[n, 64] y) { h = MatMul (x, w) y = TRT.Plugin <mode = 3> (h) }""")
    w = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    source, path = tmp_path / "m.onnx", tmp_path / "o.onnx"
    onnx.save(model, source)
    assert main([command[0], str(source), "-o", str(path), *command[1:]]) == 0
    made = onnx.load(path)
    (plugin,) = (node for node in made.graph.node if node.domain == "TRT")
    assert (plugin.op_type, plugin.attribute[0].i) == ("Plugin", 3)
    assert path.stat().st_size < 0.7 * source.stat().st_size
    assert [(v.name, v.type.tensor_type.elem_type) for v in made.graph.output] == [("y", onnx.TensorProto.FLOAT)]


def test_calibration_needs_a_model_that_runs(tmp_path, capsys):
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17, "TRT": 1]>
        g (float[2, 4] x) => (float[2, 4] y) { h = MatMul (x, x) y = TRT.Plugin (h) }""")
    onnx.save(model, tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", x=np.ones((2, 4), np.float32))
    given = ["quantize", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "o.onnx"), "--mode", "static"]
    assert main([*given, "--inputs", str(tmp_path / "x.npz")]) == 2
    assert not (tmp_path / "o.onnx").exists()
