"""Calls bound to arrays."""

import numpy as np
import onnx
import pytest

import tenonnx as tx
from tenonnx import errors

MODEL = "examples/digits/digits.onnx"

COUNTER = """
<ir_version: 8, opset_import: ["" : 18]>
g (float[2] step, float[2] count) => (float[2] next) <float[2] count = {10, 20}> { next = Add(count, step) }
"""


def feeds(seed=0):
    return {"pixels": np.random.default_rng(seed).random((3, 64)).astype(np.float32)}


def same(one, other):
    return one.keys() == other.keys() and all(np.allclose(one[name], other[name], rtol=1e-5) for name in one)


@pytest.fixture(scope="module")
def graph(request):
    return tx.load(request.config.rootpath / MODEL)


@pytest.mark.parametrize("backend", ["onnxruntime", "numpy", "auto"])
def test_a_bound_call_reads_the_present_contents_of_arrays(graph, backend):
    program, given = graph.compile(backend=backend), feeds()
    call = program.bind(given)
    first = call()
    assert same(first, program(feeds()))
    given["pixels"][:] = feeds(1)["pixels"]
    second = call()
    assert same(second, program(feeds(1)))
    assert same(first, program(feeds())), "outputs belong to the caller"
    assert not same(first, second)


def test_feeds_are_checked_when_they_are_bound(graph):
    with pytest.raises(errors.InvalidFeed, match="pixels"):
        graph.compile(backend="onnxruntime").bind({"pixels": np.zeros((3, 65), np.float32)})


@pytest.mark.filterwarnings("ignore:.*float64 is cast to float32")
@pytest.mark.parametrize("given", [np.zeros((64, 3), np.float32).T, np.zeros((3, 64))], ids=["strided", "float64"])
def test_arrays_that_the_runtime_cannot_read_in_place_are_bound_too(graph, given):
    program = graph.compile(backend="onnxruntime")
    call = program.bind({"pixels": given})
    call()
    given[:] = feeds()["pixels"].astype(np.float32)
    assert same(call(), program(feeds()))


@pytest.mark.parametrize("backend", ["onnxruntime", "numpy"])
def test_state_moves_on_and_a_default_may_be_fed(backend):
    graph, step = tx.load(onnx.parser.parse_model(COUNTER)), np.float32([1, 2])
    counted = graph.compile(backend, state={"count": "next"}).bind({"step": step})
    assert [counted()["next"].tolist() for _ in range(2)] == [[11, 22], [12, 24]]
    program = graph.compile(backend)
    assert program.bind({"step": step})()["next"].tolist() == [11, 22]
    assert program.bind({"step": step, "count": np.zeros(2, np.float32)})()["next"].tolist() == [1, 2]


def test_a_bound_call_keeps_to_its_deadline(graph):
    program = graph.compile(backend="onnxruntime", deadline=60)
    assert same(program.bind(feeds())(), program(feeds()))
