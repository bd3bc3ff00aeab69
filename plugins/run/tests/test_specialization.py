"""Kernels that the numpy backend specializes for observed shapes."""

import tracemalloc

import numpy as np
import pytest
import tiny

import tenonnx as tx
from tenonnx.op.op import op
from tenonnx_run.numpy.specialization import MOST_SIGNATURES


def registry(log, kernel=lambda X: X * 2.0):
    """The ops of ``tiny`` and one that doubles, which logs the shapes for which its kernels are specialized."""
    made = tiny.registry()

    @op("Doubled", domain="tiny", since=1)
    def doubled(X, *, rounds=1):
        return tiny.add(X, X)

    @doubled.numpy
    def doubled_numpy(X, *, rounds):
        log.append("rule")
        return X * np.float32(2)

    @doubled.specialize
    def doubled_specialize(X, *, rounds):
        log.append((X.shape, X.dtype, X.ndim, X.size, None if X.contents is None else X.contents.tolist(), rounds))
        return kernel

    made.add(doubled)
    return made, doubled


def program(log, dims=("n",), **options):
    installed, doubled = registry(log, **options)
    graph = tx.Graph(opsets={"tiny": 5})
    graph.registry = installed
    graph.output("y", doubled(graph.input("x", "float32", dims), rounds=3))
    return graph.compile("numpy")


def ones(*shape):
    return {"x": np.ones(shape, np.float32)}


def test_the_second_call_with_a_shape_prepares_and_the_third_uses_it():
    log = []
    run = program(log)
    for _ in range(2):
        assert run(ones(3))["y"].tolist() == [2, 2, 2]
    assert log == ["rule", "rule", ((3,), np.float32, 1, 3, None, 3)]
    assert run(ones(3))["y"].tolist() == [2, 2, 2]
    assert len(log) == 3


def test_shapes_that_are_new_each_time_go_by_the_rule():
    log = []
    run = program(log)
    for size in range(1, 3 * MOST_SIGNATURES):
        run(ones(size))
    assert set(log) == {"rule"}


def test_shapes_in_use_survive_others_that_come_once():
    log = []
    run = program(log)
    for _ in range(2):
        run(ones(3))
    for size in range(4, 4 + 3 * MOST_SIGNATURES):
        run(ones(size))
    del log[:]
    run(ones(3))
    assert log == []


def test_empty_arrays_and_shapes_that_do_not_follow_from_the_feeds_are_not_prepared():
    log = []
    run = program(log)
    for _ in range(3):
        assert run(ones(0))["y"].shape == (0,)
    run = program(log, dims=None)
    for _ in range(3):
        run(ones(2))
    assert log.count("rule") == 3 + 2


def test_none_keeps_the_general_rule():
    log = []
    run = program(log, kernel=None)
    for _ in range(4):
        assert run(ones(3))["y"].tolist() == [2, 2, 2]
    assert log.count("rule") == 4


def test_an_error_in_a_kernel_names_the_node():
    def kernel(X):
        raise ValueError("no such thing")

    run = program([], kernel=kernel)
    run(ones(3))
    run(ones(3))
    with pytest.raises(tx.TenonnxError, match="Doubled"):
        run(ones(3))


def wavering(dims, length):
    """A graph in which inputs of additions and negations are last used, including the latest result."""
    installed = tiny.registry()
    opposite = op("Opposite", domain="tiny", since=1)(lambda X: X)
    opposite.numpy(np.negative)
    installed.add(opposite)
    graph = tx.Graph(opsets={"tiny": 5})
    graph.registry = installed
    x = graph.input("x", "float32", dims)
    first, second = tiny.add(x, x), opposite(x)
    for _ in range(length):
        first, second = opposite(first), opposite(opposite(opposite(second)))
    graph.output("y", tiny.add(first, second))
    return graph.compile("numpy")


def test_results_are_written_over_inputs_that_nobody_reads_again():
    run = wavering((2, 1 << 13), 3)
    feeds = {"x": np.arange(1 << 14, dtype=np.float32).reshape(2, -1)}
    for _ in range(3):
        np.testing.assert_array_equal(run(feeds)["y"], -feeds["x"])
        assert feeds["x"][1, -1] == (1 << 14) - 1


def test_a_long_chain_needs_no_more_memory_than_its_results():
    run = wavering((1 << 18,), 10)
    feeds = {"x": np.ones(1 << 18, np.float32)}
    for _ in range(3):
        run(feeds)
    tracemalloc.start()
    try:
        run(feeds)
        assert tracemalloc.get_traced_memory()[1] < 2.1 * (1 << 20)
    finally:
        tracemalloc.stop()
