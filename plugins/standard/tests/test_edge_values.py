"""Empty images, signed zeros and numbers near overflow, in bodies and numpy rules."""

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx_testing import call
from tenonnx_testing.run import evaluate

EMPTY = {
    "no image": ((0, 2, 4), (2, 2, 2)),
    "no channel": ((1, 0, 4), (2, 0, 2)),
    "no kernel": ((1, 2, 4), (0, 2, 2)),
    "no position": ((1, 2, 0), (2, 2, 2)),
}


def both(op, *inputs, _outputs=None, **attributes):
    """The results of an op by its numpy rule, and by its body."""
    drawn = call(*inputs, _outputs=_outputs, **op.signature.complete(op, attributes))
    return evaluate(op, drawn), evaluate(op, drawn, body_of=op)


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("what", EMPTY)
def test_convolution_of_nothing_is_its_bias(what, auto_pad):
    sides, kernels = EMPTY[what]
    bias = np.arange(kernels[0], dtype=np.float32) + 1
    inputs = np.ones(sides, np.float32), np.ones(kernels, np.float32), bias
    by_rule, by_body = both(ops.conv, *inputs, auto_pad=auto_pad)
    assert by_rule[0].shape == by_body[0].shape == (sides[0], kernels[0], sides[2])
    assert np.array_equal(by_rule[0], by_body[0])
    assert np.array_equal(by_body[0], np.broadcast_to(bias[:, None], by_body[0].shape))


@pytest.mark.parametrize(("sides", "kernels"), [((0, 2, 3), (2, 3, 2)), ((1, 0, 3), (0, 3, 2)), ((1, 2, 0), (2, 3, 2))])
def test_transposed_convolution_of_nothing_is_its_bias(sides, kernels):
    bias = np.arange(3, dtype=np.float32) + 1
    inputs = np.ones(sides, np.float32), np.ones(kernels, np.float32), bias
    by_rule, by_body = both(ops.conv_transpose, *inputs, output_padding=[1], strides=[2])
    assert np.array_equal(by_rule[0], by_body[0])
    assert np.array_equal(by_body[0], np.broadcast_to(bias[:, None], by_body[0].shape))


@pytest.mark.parametrize("name", ["max_pool", "average_pool", "lp_pool"])
@pytest.mark.parametrize("sides", [(0, 2, 4), (1, 0, 4), (1, 2, 0)])
def test_pools_of_nothing(name, sides):
    by_rule, by_body = both(
        getattr(ops, name),
        np.ones(sides, np.float32),
        kernel_shape=[3],
        strides=[2],
        ceil_mode=1,
        auto_pad="SAME_UPPER",
    )
    assert by_rule[0].shape == by_body[0].shape == (*sides[:2], sides[2] // 2)


@pytest.mark.parametrize("sides", [(0, 2, 4), (1, 0, 4), (1, 2, 0)])
def test_places_of_maxima_of_nothing(sides):
    result = both(ops.max_pool, np.ones(sides, np.float32), kernel_shape=[2], pads=[1, 1], _outputs=2)
    for values, places in result:
        assert (values == -np.inf).all()
        assert places.dtype == np.int64
        assert values.shape == places.shape == (*sides[:2], sides[2] + 1)


@pytest.mark.parametrize("count", [4, 1 << 13])
def test_prelu_keeps_the_sign_of_zero_and_infinities(count):
    x = np.resize(np.array([-0.0, 0.0, -2.0, np.inf, -np.inf, np.nan, 3.0, -1.0], np.float32), count)
    slope = np.resize(np.array([0.5, -1.0, 0.0, 0.0, 2.0, 1.0, np.inf, np.inf], np.float32), count)
    (by_rule,), (by_body,) = both(ops.prelu, x, slope)
    assert np.array_equal(by_rule, by_body, equal_nan=True)
    signed = ~np.isnan(by_body)
    assert np.array_equal(np.signbit(by_rule)[signed], np.signbit(by_body)[signed])


def test_norms_of_large_half_floats_have_gradients():
    x = np.array([[[300.0, -400.0]]], np.float16)
    for p, norm in ((2, 500.0), (3, 449.8)):
        (by_rule,), (by_body,) = both(ops.global_lp_pool, x, p=p)
        assert np.allclose(by_rule, norm, rtol=1e-3)
        assert np.allclose(by_body, norm, rtol=1e-3)
        graph = tx.Graph(opsets={"ai.onnx": 21})
        graph.output("y", ops.global_lp_pool(graph.input("x", "float16", x.shape), p=p))
        slope = tx.grad(graph, of="y", wrt="x", seeds={"y": "g"})
        result = slope.run({"x": x, "g": np.ones((1, 1, 1), np.float16)}, backend="numpy")["x/grad"]
        expected = np.sign(x) * (np.abs(x.astype(np.float64)) / norm) ** (p - 1)
        assert np.allclose(result, expected, rtol=1e-2)


@pytest.mark.parametrize("storage_order", [0, 1])
@pytest.mark.parametrize("sides", [(1, 2, 1, 1), (2, 1, 1, 3)])
def test_a_window_in_the_padding_alone_has_its_first_index(sides, storage_order):
    x = np.arange(np.prod(sides), dtype=np.float32).reshape(sides)
    settings = {"kernel_shape": [2, 2], "dilations": [2, 2], "pads": [1, 1, 1, 1], "storage_order": storage_order}
    by_rule, by_body = both(ops.max_pool, x, **settings, _outputs=2)
    assert np.array_equal(by_rule[0], by_body[0])
    assert np.array_equal(by_rule[1], by_body[1])
    assert by_rule[1].flat[0] == -1 - (sides[3] if storage_order == 0 else sides[2])
