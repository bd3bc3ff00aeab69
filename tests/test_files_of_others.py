"""Unusual files of other exporters that onnxruntime accepts: equal outputs before and after conversion."""

import io

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

import tenonnx as tx

MODELS = {
    "statistics of SkipLayerNormalization": """<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
        g (float[2,3,4] x, float[1,3,4] s, float[4] w) => (float[2,3,4] y, float[2,3,1] mean, float[2,3,1] inverse)
        { y, mean, inverse = com.microsoft.SkipLayerNormalization(x, s, w) }""",
    "statistics of SkipSimplifiedLayerNormalization": """<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
        g (float[2,3,4] x, float[2,3,4] s, float[4] w) => (float[2,3,4] y, float[2,3,1] inverse, float[2,3,4] sum)
        { y, , inverse, sum = com.microsoft.SkipSimplifiedLayerNormalization(x, s, w) }""",
    "LayerNormalization of no stash type": """<ir_version: 8, opset_import: ["": 17]>
        g (float[2,4] x, float[4] s) => (float[2,4] y) { y = LayerNormalization<stash_type=0>(x, s) }""",
    "double LayerNormalization of no stash type": """<ir_version: 8, opset_import: ["": 17]>
        g (double[2,4] x, double[4] s) => (double[2,4] y) { y = LayerNormalization<stash_type=0>(x, s) }""",
    "Squeeze of empty axes": """<ir_version: 8, opset_import: ["": 13]> g (float[3,1,5,1] x) => (float[a,b] y)
        { axes = Constant<value = int64[0] {}>() y = Squeeze(x, axes) }""",
    "Squeeze of axes known when it runs": """<ir_version: 8, opset_import: ["": 13]>
        g (float[3,1,5,1] x, int64[k] none) => (float[a,b] y) { y = Squeeze(x, none) }""",
    "Squeeze behind Unsqueeze": """<ir_version: 8, opset_import: ["": 13]> g (float[3,1] x) => (float[a] y)
        { axes = Constant<value = int64[0] {}>() w = Unsqueeze(x, axes) v = Squeeze(w, axes) y = Squeeze(v, axes) }""",
    "Unique of an initializer": """<ir_version: 8, opset_import: ["": 13]>
        g (float[2] x) => (float[4] y, int64[4] i, int64[6] j, int64[4] n, float[2] z) <float[6] w = {2,1,1,3,4,3}>
        { y, i, j, n = Unique<axis=0>(w) z = Relu(x) }""",
    "Unique of a matrix without all outputs": """<ir_version: 8, opset_import: ["": 13]>
        g (float[2] x) => (float[a,2] y, int64[b] n, float[2] z) <float[3,2] w = {1,2,1,2,0,5}>
        { y, , , n = Unique<axis=0>(w) z = Relu(x) }""",
    "Loop with counters of rank 1": """<ir_version: 7, opset_import: ["": 12]>
        g (int64[1] n, bool[1] c, float[1] b0) => (float[1] b, int64[p,q] s)
        { b, s = Loop(n, c, b0) <body = body (int64[1] i, bool[1] k, float[1] bi)
        => (bool[1] k2, float[1] bo, int64[1] j) { k2 = Identity(k) bo = Add(bi, bi) j = Add(i, i) }> }""",
    "Loop with a counter alone of rank 1": """<ir_version: 7, opset_import: ["": 12]>
        g (int64[1] n, bool c, float[1] b0) => (float[1] b, int64[p,q] s)
        { b, s = Loop(n, c, b0) <body = body (int64[1] i, bool k, float[1] bi) => (bool k2, float[1] bo, int64[1] j)
        { k2 = Identity(k) bo = Add(bi, bi) j = Add(i, i) }> }""",
}

NUMBERS = {onnx.TensorProto.INT64: np.int64, onnx.TensorProto.BOOL: np.bool_, onnx.TensorProto.DOUBLE: np.float64}


def written(graph, **options):
    stream = io.BytesIO()
    tx.export(graph, stream, **options)
    return stream.getvalue()


def results(data, feeds):
    session = onnxruntime.InferenceSession(data)
    return dict(zip([each.name for each in session.get_outputs()], session.run(None, feeds), strict=True))


MADE = {
    "numpy": lambda graph, feeds: graph.run(feeds, backend="numpy"),
    "onnxruntime": lambda graph, feeds: graph.run(feeds, backend="onnxruntime"),
    "opset 21": lambda graph, feeds: results(written(graph, opset_version=21), feeds),
    "simplified": lambda graph, feeds: results(written(tx.simplify(graph)), feeds),
    "rewritten": lambda graph, feeds: results(written(tx.decompose(graph, keep=lambda call: True)), feeds),
}


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("name", MODELS)
def test_outputs_equal_those_of_onnxruntime(name, made):
    model = onnx.parser.parse_model(MODELS[name])
    random, feeds = np.random.default_rng(0), {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        shape = [dim.dim_value for dim in kind.shape.dim]
        dtype = NUMBERS.get(kind.elem_type, np.float32)
        feeds[value.name] = (
            random.random(shape).astype(dtype) if dtype in (np.float32, np.float64) else np.ones(shape, dtype)
        )
    if "n" in feeds:
        feeds["n"] = feeds["n"] * 3
    expected = results(model.SerializeToString(), feeds)
    got = MADE[made](tx.load(model), feeds)
    assert got.keys() == expected.keys()
    for output, wanted in expected.items():
        assert got[output].dtype == wanted.dtype
        np.testing.assert_allclose(got[output], wanted, atol=1e-5, strict=True)
