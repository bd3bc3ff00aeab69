"""Gradients of real models as plain ONNX: valid, and equal on numpy and on onnxruntime."""

import io

import numpy as np
import onnx
import onnxruntime
import pytest
from models import example, feeds

import tenonnx as tx
from tenonnx.errors import NotDifferentiable
from tenonnx_run.compare import compare
from tenonnx_standard.casting import cast
from tenonnx_standard.normalization import layer_normalization
from tenonnx_standard.reduction import reduce_sum
from tenonnx_standard.selection import argmax
from tenonnx_standard.shapes import expand, shape
from tenonnx_standard.slicing import gather

TRAINED = {"digits/digits": "probabilities", "decoder/decoder": "logits"}


def loss_gradient(name):
    """The gradient graph of the mean square of a model's main output with respect to all weights."""
    from tenonnx_standard.reduction import reduce_mean

    graph = tx.load(example(name)).infer().copy()
    output = next(v for v in graph.outputs if v.name == TRAINED[name])
    graph.output("loss", reduce_mean(output * output, keepdims=0))
    weights = [v.name for v in graph.variables if v.dtype.is_float and "cos" not in v.name and "sin" not in v.name]
    return tx.grad(graph, of="loss", wrt=weights), weights


def other_batch(arrays):
    return {key: np.concatenate([a, a[:1]]) for key, a in arrays.items()}


@pytest.mark.parametrize("name", TRAINED)
def test_gradients_are_plain_onnx_and_equal_on_all_backends(name):
    graph, weights = loss_gradient(name)
    stream = io.BytesIO()
    tx.export(graph, stream, opset_version=18, domains=["ai.onnx"])
    model = onnx.ModelProto.FromString(stream.getvalue())
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(stream.getvalue(), providers=["CPUExecutionProvider"])
    for arrays in (feeds(name), other_batch(feeds(name))):
        ours = graph.run(arrays, backend="numpy")
        theirs = dict(zip([o.name for o in session.get_outputs()], session.run(None, arrays), strict=True))
        for weight in weights:
            gradient = f"{weight}/grad"
            assert np.any(ours[gradient]), f"{weight} has no influence"
            difference = compare(theirs[gradient], ours[gradient], accumulation=4096)
            assert difference.equal, f"{weight}: {difference}"


def test_the_gradient_of_the_digits_model_equals_finite_differences():
    graph, weights = loss_gradient("digits/digits")
    arrays = feeds("digits/digits")
    weight = next(v for v in graph.variables if v.name == weights[0])
    slope = graph.run(arrays, backend="numpy")[f"{weight.name}/grad"]
    direction = np.random.default_rng(0).normal(size=slope.shape).astype(np.float32)
    step, contents = 1e-2, weight.data.array()
    losses = []
    for sign in (1, -1):
        moved = tx.load(example("digits/digits")).infer().copy()
        value = next(v for v in moved.variables if v.name == weight.name)
        from tenonnx.graph.constants import ArrayConstant

        value.data = ArrayConstant(contents + sign * step * direction)
        probabilities = moved.run(arrays, backend="numpy")["probabilities"]
        losses.append(np.mean(np.float64(probabilities) ** 2))
    np.testing.assert_allclose((losses[0] - losses[1]) / (2 * step), np.sum(slope * direction), rtol=2e-2)


def stepping():
    """A loss that depends smoothly on ``x``, on ``steps`` only after rounding, and on ``sized`` only by its shape."""
    graph = tx.Graph(opsets={"ai.onnx": 21})
    x, steps, sized = (graph.input(name, "float32", ("n",)) for name in ("x", "steps", "sized"))
    number = cast(cast(steps, to=tx.DType.int64), to=tx.DType.float32)
    chosen = gather(x, argmax(x, axis=0, keepdims=1))
    graph.output("loss", reduce_sum(x * number + expand(chosen, shape(sized)), keepdims=0))
    return graph


def test_influence_by_rounding_only_is_an_error_that_names_the_ops():
    with pytest.raises(NotDifferentiable, match="path leads to steps") as caught:
        tx.grad(stepping(), of="loss", wrt=["x", "steps", "sized"])
    assert caught.value.names == ("steps",)
    assert "ai.onnx::Cast" in caught.value.given
    assert "ArgMax" not in caught.value.given
    assert "strict" in caught.value.do


def test_influence_by_rounding_or_shapes_has_a_zero_gradient():
    feeds = {"x": np.float32([1, 3]), "steps": np.float32([2.5, 4]), "sized": np.float32([0, 0])}
    result = tx.grad(stepping(), of="loss", wrt=["x", "steps", "sized"], strict=False).run(feeds, backend="numpy")
    assert [result[f"{name}/grad"].tolist() for name in feeds] == [[2, 6], [0, 0], [0, 0]]
    result = tx.grad(stepping(), of="loss", wrt=["x", "sized"]).run(feeds, backend="numpy")
    assert result["sized/grad"].tolist() == [0, 0]


def test_layer_normalization_is_computed_once():
    graph = tx.Graph(opsets={"ai.onnx": 21})
    x, scale, shift = graph.input("x", "float32", ("n", 8)), graph.input("scale", "float32", (8,)), None
    y = layer_normalization(x, scale, shift)
    graph.output("loss", reduce_sum((y[0] if isinstance(y, tuple) else y) * 2.0, keepdims=0))
    before = [repr(node) for node in graph.nodes]
    derived = tx.grad(graph, of="loss", wrt=["x", "scale"])
    assert [node.op_type for node in derived.nodes].count("LayerNormalization") == 1
    assert [repr(node) for node in graph.nodes] == before


def test_a_loop_of_a_known_count_has_gradients_of_all_that_it_carries():
    """The count is an initializer, so the backward pass needs no branch for loops without iterations."""
    from tenonnx.extend import TensorType, constant, subgraph
    from tenonnx_standard.control_flow import loop
    from tenonnx_standard.math import mul

    graph = tx.Graph(opsets={"ai.onnx": 21})
    x, w = graph.input("x", "float64", (3,)), graph.variable("w", np.float64([0.5, 2.0, 1.5]))
    formals = [("step", TensorType("int64", ())), ("going", TensorType("bool", ())), ("state", x.type)]
    with graph.building():
        body = subgraph(lambda step, going, state: [going, mul(state, w)], formals)
        graph.output("y", loop(constant(np.int64(3)), None, x, body=body))
    slopes = tx.grad(graph, of="y", wrt=["x", "w"], seeds={"y": "g"})
    point = {"x": np.float64([1.0, -2.0, 3.0]), "g": np.ones(3)}
    result = slopes.run(point, backend="numpy")
    np.testing.assert_allclose(result["x/grad"], np.asarray(w) ** 3)
    np.testing.assert_allclose(result["w/grad"], 3 * np.asarray(w) ** 2 * point["x"])
