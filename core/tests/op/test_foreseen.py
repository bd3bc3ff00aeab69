"""Unexpected exceptions of rules."""

import numpy as np
import pytest
import tiny

import tenonnx as tx
from tenonnx.extend import elementwise, op
from tenonnx.graph.graph import Graph

UNFORESEEN = [
    MemoryError("8 GiB"),
    RecursionError("too deep"),
    RuntimeError("reference count"),
    AttributeError("no shape"),
    OverflowError("large"),
]

each = pytest.mark.parametrize("error", UNFORESEEN, ids=lambda e: type(e).__name__)


def failing(error):
    def rule(*arguments, **attributes):
        raise error

    return rule


def applied(made):
    graph = Graph(opsets={"tiny": 1})
    graph.output("y", made(graph.input("x", "float32", (2,))))
    return graph


def refused(error):
    return pytest.raises(tx.TenonnxError, match=str(error))


@each
def test_in_a_type_rule(error):
    made = op("Bad", domain="tiny")(lambda x: x)
    made.type(failing(error))
    with refused(error):
        made(np.ones(2, np.float32))


@each
def test_in_a_body(error):
    made = op("Bad", domain="tiny")(lambda x: failing(error)())
    with refused(error):
        applied(made)


@each
def test_in_a_numpy_rule(error):
    made = elementwise("Bad", domain="tiny")(lambda x: ...)
    made.numpy(failing(error))
    x = np.ones(2, np.float32)
    with refused(error):
        made(x)
    with refused(error):
        applied(made).run({"x": x}, backend="numpy")


@each
def test_in_a_vjp_rule(error):
    made = elementwise("Bad", domain="tiny")(lambda x: ...)
    made.vjp(failing(error))
    with refused(error):
        tx.grad(applied(made), of="y", wrt="x", seeds={"y": "g"})


@each
def test_in_a_lowering(error):
    made = op("Bad", domain="tiny", since=2)(lambda x: tiny.exp(x))
    made.lower()(failing(error))
    made.primitive = True
    made.type(tiny.exp.rules["type"])
    with refused(error):
        tx.retarget(applied(made), {"tiny": 1})


@each
def test_in_what_an_older_version_cannot_say(error):
    made = elementwise("Bad", domain="tiny")(lambda x: ...)
    made.until(3, unless=failing(error))
    with refused(error):
        tx.retarget(applied(made), {"tiny": 2})


def test_the_message_stays_short():
    made = op("Bad", domain="tiny")(lambda x, *, of: failing(ValueError("never"))())
    with pytest.raises(tx.TypeMismatch) as caught:
        made(np.ones(2, np.float32), of=[7] * 100_000)
    assert len(str(caught.value)) < 1000


@each
@pytest.mark.parametrize(
    ("rule", "consumer"),
    [("rewrite", tx.simplify), ("normal", tx.fuse), ("pattern", lambda graph: tx.fuse(graph, [graph.nodes[0].op]))],
)
def test_failing_rewrites_and_patterns_are_skipped(rule, consumer, error):
    made = op("Bad", domain="tiny")(lambda x: tiny.exp(x))
    made.rule(rule, failing(error))
    assert [node.op for node in consumer(applied(made)).nodes] == [made]


@each
def test_in_a_cost_rule(error):
    made = op("Bad", domain="tiny")(lambda x: tiny.exp(x))
    made.rule("cost", failing(error))
    assert [cost.multiplications for cost in tx.costs(applied(made)).nodes] == [None]


def test_a_converted_error_keeps_its_parts():
    parts = {"given": "b", "available": "c", "do": "d", "also": "e"}
    error = tx.TypeMismatch("a", **parts).as_a(tx.InvalidModel, "in other words")
    assert type(error) is tx.InvalidModel
    assert str(error) == str(tx.InvalidModel("in other words", **parts))


@pytest.mark.parametrize("items", [[1.0, None], [1, "a"], [object()]])
def test_a_list_of_mixed_types_is_not_a_tensor(items):
    graph = Graph(opsets={"tiny": 1})
    with pytest.raises(tx.TypeMismatch, match="something other than numbers, bools or strings"), graph.building():
        tiny.double(items)
