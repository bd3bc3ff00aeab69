"""Kernels that the numpy backend prepares for the shapes of its feeds."""

import threading

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops


def test_values_that_depend_only_on_shapes_are_cached_and_unchanged():
    graph = tx.Graph()
    x = graph.input("x", "float32", ("n", "m"))
    graph.output("sizes", ops.shape(x) * 2)
    run = graph.compile("numpy")
    for _ in range(4):
        result = run({"x": np.ones((2, 3), np.float32)})["sizes"]
        assert result.tolist() == [4, 6]
        result[:] = 0
    assert run({"x": np.ones((5, 3), np.float32)})["sizes"].tolist() == [10, 6]


def test_alternating_shapes_from_four_threads_equal_one_thread():
    random = np.random.default_rng(0)
    graph = tx.Graph()
    x = graph.input("x", "float32", ("batch", 3, "height", "width"))
    y = ops.relu(ops.conv(x, graph.variable("w", random.standard_normal((4, 3, 3, 3), np.float32)), pads=[1, 1, 1, 1]))
    y = ops.max_pool(y, kernel_shape=[2, 2], strides=[2, 2])
    flat = ops.reshape(y, [0, 4, -1])
    weights = ops.softmax(flat @ ops.transpose(flat, perm=[0, 2, 1]))
    scale = graph.variable("scale", np.full(1, 2, np.float32))
    graph.output("y", ops.reduce_mean(ops.layer_normalization(weights @ flat, scale)[0], [2]))
    shapes = [(1, 8, 8), (2, 9, 7), (3, 6, 10), (1, 16, 4), (5, 5, 5)]
    feeds = [{"x": random.standard_normal((b, 3, h, w), np.float32)} for b, h, w in shapes]
    alone = graph.compile("numpy")
    expected = [alone(feed)["y"] for feed in feeds]
    run, wrong = graph.compile("numpy"), []

    def calls(start):
        for k in range(start, start + 40):
            result = run(feeds[k % 5])["y"]
            if not np.allclose(result, expected[k % 5], rtol=1e-5, atol=1e-6):
                wrong.append((start, k))

    threads = [threading.Thread(target=calls, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("activation", ["Relu", "Tanh"])
def test_a_simple_recurrent_layer_equals_onnxruntimes(direction, activation):
    random, count = np.random.default_rng(0), 2 if direction == "bidirectional" else 1
    graph = tx.Graph()
    x = graph.input("x", "float32", (7, 3, 4))
    weights = [random.standard_normal(shape, np.float32) for shape in ((count, 5, 4), (count, 5, 5), (count, 10))]
    w, r, b = (graph.variable(f"w{place}", each) for place, each in enumerate(weights))
    start = graph.input("start", "float32", (count, 3, 5))
    options = {"hidden_size": 5, "direction": direction, "activations": [activation] * count}
    every, last = ops.rnn(x, w, r, b, None, start, **options)
    graph.output("every", every)
    graph.output("last", last)
    feeds = {
        name: random.standard_normal(shape, np.float32) for name, shape in (("x", (7, 3, 4)), ("start", (count, 3, 5)))
    }
    if activation == "Tanh":  # onnxruntime's Relu of NaN is 0
        feeds["x"][3, 1] = np.nan
    run, expected = graph.compile("numpy"), graph.run(feeds, "onnxruntime")
    for _ in range(3):  # later calls use prepared kernels
        result = run(feeds)
        for name in expected:
            np.testing.assert_allclose(result[name], expected[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op", [ops.lstm, ops.gru, ops.rnn])
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_two_directions_of_a_recurrent_layer_are_independent(op, wrong):
    """Small layers are computed as one block-diagonal layer, where NaN times zero must not reach the other one."""
    random, gates = np.random.default_rng(0), {"LSTM": 4, "GRU": 3, "RNN": 1}[op.name]
    x, w, r = (random.standard_normal(s).astype(np.float32) for s in ((4, 1, 3), (2, gates * 5, 3), (2, gates * 5, 5)))
    x[-1] = wrong  # the last step of the forward direction, the first one of the reverse direction

    def computed(w, r, direction):
        graph = tx.Graph(opsets={"ai.onnx": 21})
        given = graph.input("x", "float32", x.shape), graph.variable("w", w), graph.variable("r", r)
        graph.output("y", op(*given, hidden_size=5, direction=direction)[0])
        run = graph.compile("numpy")
        return [run({"x": x})["y"] for _ in range(4)][-1]

    both = computed(w, r, "bidirectional")
    for place, direction in enumerate(("forward", "reverse")):
        alone = computed(w[place : place + 1], r[place : place + 1], direction)
        np.testing.assert_allclose(both[:, place], alone[:, 0], rtol=1e-5, atol=1e-6)
    assert np.isfinite(both[:3, 0]).all()
