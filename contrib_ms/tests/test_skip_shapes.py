"""Shapes of skip normalization with a residual that is broadcast over the batch."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

import tenonnx as tx

OPS = {"SkipLayerNormalization": "x, skip, gamma", "SkipSimplifiedLayerNormalization": "x, skip, gamma"}


@pytest.mark.parametrize("op_type", OPS)
@pytest.mark.parametrize(
    ("x", "skip"),
    [("batch, seq, 8", "1, seq, 8"), ("batch, seq, 8", "1, 5, 8"), ("batch, 5, 8", "5, 8"), ("seq, 8", "seq, 8")],
)
def test_the_batch_is_that_of_the_input(op_type, x, skip):
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
        g (float[{x}] x, float[{skip}] skip) => (float[{x}] y, int64[1] size)
        <float[8] gamma = {{1, 2, 3, 1, 1, 1, 1, 1}}, int64[1] zero = {{0}}>
        {{ y = com.microsoft.{op_type} <epsilon = 1e-5> ({OPS[op_type]})
           s = Shape (y)
           size = Gather <axis = 0> (s, zero) }}""")
    sizes = {"batch": 3, "seq": 5}
    random = np.random.default_rng(0)
    feeds = {
        name: random.normal(size=[sizes.get(d) or int(d) for d in dims.split(", ")]).astype(np.float32)
        for name, dims in (("x", x), ("skip", skip))
    }
    graph = tx.load(model)
    graph.infer()
    rank = len(x.split(", "))
    assert [str(dim) for dim in graph["y"].shape][-rank:] == [
        "5" if d == "seq" and "5" in skip else d for d in x.split(", ")
    ]
    simple = tx.simplify(graph)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for made in (graph, simple):
        result = made.run(feeds, backend="numpy")
        for name, expected in zip(("y", "size"), session.run(None, feeds), strict=True):
            np.testing.assert_allclose(result[name], expected, atol=1e-5)
