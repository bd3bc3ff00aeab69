"""Quantization of graphs with bodies of If, Loop and Scan."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

import tenonnx as tx
from tenonnx_quantized.tuning.quantize import quantize

W = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)
HEAD = """<ir_version: 8, opset_import: ["": 17]>
    g (float[n, 16] x, bool c) => (float[k, 16] y) { a = MatMul (x, w) """
BODIES = {
    "If": """b = Relu (a)
        y = If (c) <then_branch = t () => (float[n, 16] t) { t = Add (a, b) },
                    else_branch = e () => (float[n, 16] e) { d = MatMul (x, w) e = Neg (d) }> }""",
    "Loop": """m = Constant <value_int = 2> ()
        y = Loop (m, , a) <body = l (int64 i, bool c0, float[n, 16] s) => (bool c1, float[n, 16] s1)
                           { c1 = Identity (c0) h = Tanh (s) s1 = Add (h, x) }> }""",
    "Scan": """y = Scan <num_scan_inputs = 1,
                          body = s (float[16] r) => (float[16] q) { v = Neg (r) q = Tanh (v) }> (a) }""",
}


@pytest.mark.parametrize("form", ["qdq", "qoperator"])
@pytest.mark.parametrize("mode", ["weights", "dynamic", "static"])
@pytest.mark.parametrize("name", BODIES)
def test_nodes_outside_of_bodies_are_quantized(name, mode, form):
    model = onnx.parser.parse_model(HEAD + BODIES[name])
    model.graph.initializer.append(onnx.numpy_helper.from_array(W, "w"))
    x = np.random.default_rng(1).standard_normal((4, 16)).astype(np.float32)
    batches = [{"x": x, "c": np.array(c)} for c in (True, False)]
    made, report = quantize(tx.load(model), batches, mode=mode, form=form, **({"bits": 8} if mode == "weights" else {}))
    assert len(report.quantized) == 1
    assert report.outputs["y"] < 0.05
    sessions = [onnxruntime.InferenceSession(m.SerializeToString()) for m in (model, made.to_proto())]
    for feeds in batches:
        given = {i.name: feeds[i.name] for i in sessions[0].get_inputs()}
        expected, result = (session.run(None, given)[0] for session in sessions)
        np.testing.assert_allclose(result, expected, atol=0.05 * np.abs(expected).max())
