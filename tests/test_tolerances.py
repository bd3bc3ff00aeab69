"""Tolerances of long sums, for constant and for fed weights."""

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx_convert.verifying.precision import accumulation

PRODUCTS = {
    "matmul": (lambda x, w: ops.matmul(x, w), (5, 64), (64, 7), 64),
    "gemm": (lambda x, w: ops.gemm(x, w, transB=1), (5, 64), (7, 64), 64),
    "conv": (lambda x, w: ops.conv(x, w), (2, 8, 9, 9), (4, 8, 3, 3), 72),
    "grouped conv": (lambda x, w: ops.conv(x, w, group=2), (2, 8, 9, 9), (4, 4, 3, 3), 36),
    "conv of volumes": (lambda x, w: ops.conv(x, w), (1, 16, 6, 5, 5), (33, 16, 3, 3, 3), 432),
}


def graph_of(function, x, w, fed):
    graph = tx.Graph(opsets={"ai.onnx": 17})
    weights = graph.input("w", "float32", w) if fed else graph.variable("w", np.ones(w, np.float32))
    graph.output("y", function(graph.input("x", "float32", x), weights))
    return graph


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("fed", [True, False], ids=["fed", "held"])
def test_sums_have_the_same_length_for_fed_weights(product, fed):
    function, x, w, terms = PRODUCTS[product]
    assert accumulation(graph_of(function, x, w, fed)) == pytest.approx(terms + 1, abs=1)


def test_an_unknown_size_adds_no_tolerance():
    function, _, w, _ = PRODUCTS["matmul"]
    assert accumulation(graph_of(function, ("n", 64), w, True)) == 1 + 1
