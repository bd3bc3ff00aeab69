"""The Gradient op, and its errors."""

import io

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tenonnx as tx
from tenonnx.backend import with_backend
from tenonnx.errors import InvalidCall

DOMAIN = "ai.onnx.preview.training"
X = np.float32([[1, 2, 3], [0, -1, 2]])
W = np.float32([[1], [2], [3]])
L = np.float32([[1], [-2]])


@pytest.fixture(params=["numpy", "onnxruntime"])
def backend(request):
    return with_backend(request.param)


def model(nodes, inputs, outputs, **initializers):
    """A model of nodes (op, inputs, outputs, attributes) and of float32 values with their shapes."""
    made = [
        helper.make_node(kind, given.split(), made.split(","), domain=DOMAIN * (kind == "Gradient"), **attributes)
        for kind, given, made, attributes in nodes
    ]
    values = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in group.items()]
        for group in (inputs, outputs)
    ]
    held = [onnx.numpy_helper.from_array(array, name) for name, array in initializers.items()]
    graph = helper.make_graph(made, "gradients", *values, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)])


CUBE = [("Mul", "x x", "a", {}), ("Mul", "a x", "y", {})]


def derivative(of, by, **attributes):
    return ("Gradient", by, f"d{of}", {"xs": ["x"], "y": of, **attributes})


def test_with_respect_to_an_initializer(backend):
    nodes = [("MatMul", "x w", "y", {}), ("Gradient", "w x", "dw", {"xs": ["w"], "zs": ["x"], "y": "y"})]
    (result,) = backend.run_model(model(nodes, {"x": (2, 3)}, {"dw": (3, 1)}, w=W), [X])
    np.testing.assert_array_equal(result, X.sum(0)[:, None])


def test_at_another_point_than_the_graph(backend):
    made = model([*CUBE, derivative("y", "at")], {"x": (2,), "at": (2,)}, {"y": (2,), "dy": (2,)})
    y, slope = backend.run_model(made, list(np.float32([[1, 2], [10, 20]])))
    assert y.tolist() == [1, 8]
    assert slope.tolist() == [300, 1200]


def test_gradients_of_gradients(backend):
    nodes = [*CUBE, derivative("y", "x"), derivative("dy", "x"), derivative("ddy", "at")]
    made = model(nodes, {"x": (2,), "at": (2,)}, {"dy": (2,), "ddy": (2,), "dddy": (2,)})
    result = backend.run_model(made, list(np.float32([[1, 2], [3, 4]])))
    assert [each.tolist() for each in result] == [[3, 12], [6, 12], [6, 6]]


def test_a_gradient_through_rounding_only_is_zero(backend):
    nodes = [("Relu", "x", "y", {}), derivative("y", "x"), derivative("dy", "x")]
    result = backend.run_model(model(nodes, {"x": (2,)}, {"dy": (2,), "ddy": (2,)}), [np.float32([-1, 2])])
    assert [each.tolist() for each in result] == [[0, 1], [0, 0]]


def test_a_gradient_by_an_inner_value_and_of_one_output(backend):
    """The second and the last example of the specification."""
    nodes = [
        ("Mul", "x w", "h", {}),
        ("Mul", "h z", "y", {}),
        ("Gradient", "h z", "dh,dz", {"xs": ["h", "z"], "y": "y"}),
        ("Gradient", "h1 z", ",dz1", {"xs": ["h", "z"], "y": "y"}),
    ]
    shapes = dict.fromkeys(("x", "z", "h1"), (2,))
    made = model(nodes, shapes, dict.fromkeys(("dh", "dz", "dz1"), (2,)), w=np.float32([3, 4]))
    result = backend.run_model(made, list(np.float32([[1, 2], [5, 6], [70, 80]])))
    assert [each.tolist() for each in result] == [[5, 6], [3, 8], [70, 80]]


SQUARED_ERROR = [
    ("MatMul", "X W", "Y", {}),
    ("Sub", "Y L", "E", {}),
    ("Mul", "E E", "S", {}),
    ("ReduceSum", "S", "O", {"keepdims": 0}),
    ("Gradient", "X W L", "dX,dW", {"xs": ["X", "W"], "zs": ["L"], "y": "O"}),
    ("Gradient", "X W L", "dWdX,dWdW", {"xs": ["X", "W"], "zs": ["L"], "y": "dW"}),
]


def squared_error():
    """The third example of the specification: a linear model, its loss, and second derivatives of the loss."""
    shapes = {"X": (2, 3), "W": (3, 1), "L": (2, 1)}
    return model(SQUARED_ERROR, shapes, {"dX": (2, 3), "dW": (3, 1), "dWdX": (2, 3), "dWdW": (3, 1)})


def test_second_derivatives_of_a_linear_model(backend):
    by_x, by_w, mixed, twice = backend.run_model(squared_error(), [X, W, L])
    error = X @ W - L
    np.testing.assert_allclose(by_x, 2 * error @ W.T)
    np.testing.assert_allclose(by_w, 2 * X.T @ error)
    np.testing.assert_allclose(mixed, 2 * (error + X.sum(1, keepdims=True) * W.T))
    np.testing.assert_allclose(twice, 2 * X.T @ X.sum(1, keepdims=True))


def test_a_gradient_is_lowered_to_plain_ops(backend):
    stream = io.BytesIO()
    tx.export(tx.load(squared_error().SerializeToString()), stream, opset_version=13, domains=["ai.onnx"])
    lowered = onnx.load_model_from_string(stream.getvalue())
    onnx.checker.check_model(lowered, full_check=True)
    assert {(entry.domain, entry.version) for entry in lowered.opset_import} == {("", 13)}
    expected = backend.run_model(squared_error(), [X, W, L])
    for result, wanted in zip(backend.run_model(lowered, [X, W, L]), expected, strict=True):
        np.testing.assert_allclose(result, wanted)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"xs": ["q"], "y": "y"}, 'no value "q"'),
        ({"xs": ["x"], "y": "q"}, 'no value "q"'),
        ({"xs": ["x", "z"], "y": "y"}, "names in xs and zs differ"),
        ({"xs": ["x"], "y": "v"}, "not among"),
    ],
)
def test_outputs_that_do_not_depend_on_these_values_are_refused(attributes, message):
    nodes = [*CUBE, ("Mul", "x z", "v", {}), ("Gradient", "x", "g", attributes)]
    with pytest.raises(InvalidCall, match=message) as caught:
        with_backend("numpy").prepare(model(nodes, {"x": (2,), "z": (2,)}, {"g": (2,)}))
    assert "Gradient@1" in caught.value.what
    assert caught.value.given or caught.value.available
