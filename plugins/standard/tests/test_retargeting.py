"""What retargeting makes of ops that older versions cannot say in the same way."""

import numpy as np
import onnx
import pytest

from tenonnx.errors import NotRepresentable
from tenonnx.formats.onnx.writer import to_model
from tenonnx.graph.graph import Graph
from tenonnx.op.evaluate import evaluate_graph
from tenonnx.transforms.retarget import retarget
from tenonnx_standard.joining import concat
from tenonnx_standard.math import maximum, pow_
from tenonnx_standard.pooling import average_pool, max_pool
from tenonnx_standard.reduction import reduce_max, reduce_mean

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
AXES = np.array([-1, 0])
WINDOWS = {"ceil_mode": 1, "kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [3, 3]}

CASES = {
    "negative axis": (9, lambda x: concat(x, x, axis=-2), [X]),
    "negative axes": (9, lambda x: reduce_mean(x, [-1, -3]), [X]),
    "computed axes": (17, lambda x, axes: reduce_max(x, axes), [X, AXES]),
    "computed axes that vanish": (11, lambda x, axes: reduce_mean(x, axes, keepdims=0), [X, AXES]),
    "all axes, computed": (11, lambda x, axes: reduce_max(x, axes), [X[0], AXES]),
    "a window that starts in the padding": (17, lambda x: max_pool(x, **WINDOWS), [X.reshape(6, 1, 2, 2)]),
    "a mean that starts in the padding": (17, lambda x: average_pool(x, **WINDOWS), [X.reshape(6, 1, 2, 2)]),
    "wide integers": (11, lambda a, b: maximum(a, b), [np.array([2**62, -5]), np.array([2**62 + 1, -7])]),
    "an integer exponent": (11, lambda x, y: pow_(x, y), [X[0, 0], np.array([0, 1, 2, 3])]),
}


@pytest.mark.parametrize("name", CASES)
def test_the_older_form_is_legal_and_says_the_same(name):
    opset, function, arrays = CASES[name]
    graph = Graph(opsets={"ai.onnx": 22})
    inputs = [graph.input(f"x{k}", str(a.dtype), a.shape) for k, a in enumerate(arrays)]
    graph.output("y", function(*inputs))
    moved = retarget(graph, opset)
    onnx.checker.check_model(to_model(moved), full_check=True)
    axes = [a for n in moved.nodes for k, a in n.attributes.items() if k in ("axis", "axes")]
    assert opset > 9 or all(np.min(a) >= 0 for a in axes)
    np.testing.assert_allclose(evaluate_graph(moved, arrays)[0], np.asarray(function(*arrays)), rtol=1e-6)


def test_computed_axes_of_what_may_be_empty_are_refused():
    graph = Graph(opsets={"ai.onnx": 22})
    graph.output("y", reduce_max(graph.input("x", "float32", ("n", 3)), graph.input("axes", "int64", (1,))))
    with pytest.raises(NotRepresentable, match="no form in the target"):
        retarget(graph, 11)


def test_a_negative_axis_needs_the_rank():
    graph = Graph(opsets={"ai.onnx": 22})
    x = graph.input("x", "float32")
    graph.output("y", concat(x, x, axis=-1))
    with pytest.raises(NotRepresentable) as caught:
        retarget(graph, 9)
    assert "cannot be negative at version 9" in str(caught.value)
