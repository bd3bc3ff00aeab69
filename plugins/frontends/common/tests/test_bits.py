"""Bit casts by arithmetic, against numpy."""

import ml_dtypes
import numpy as np
import pytest

import tenonnx as tx
from tenonnx_frontends.bits import bitcast

FORMATS = {"float64": "int64", "float32": "uint32", "float16": "int16", "bfloat16": "uint16"}


@pytest.mark.parametrize("dtype", FORMATS)
def test_bits_are_those_of_numpy_there_and_back(dtype):
    kind, integer = tx.DType.of(dtype).numpy, FORMATS[dtype]
    limits = ml_dtypes.finfo(kind)
    ends = [0, 1, -1.5, 0.1, limits.max, limits.tiny, -limits.smallest_subnormal, np.inf, -np.inf, np.nan]
    x = np.asarray([*ends, *np.random.default_rng(0).normal(scale=100, size=50)]).astype(kind)
    x = np.append(x, -np.zeros(1, kind))
    graph = tx.Graph(opsets={"ai.onnx": 21})
    with graph.building():
        raw = bitcast(graph.input("x", dtype, ("n",)), tx.DType.of(integer))
        graph.output("raw", raw)
        graph.output("back", bitcast(raw, tx.DType.of(dtype)))
    result = graph.run({"x": x}, backend="numpy")
    assert result["raw"].tolist() == x.view(integer).tolist()
    np.testing.assert_array_equal(result["back"].view(integer), x.view(integer))
