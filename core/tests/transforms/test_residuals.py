"""Validation of gradient rules and of their residuals."""

import numpy as np
import pytest
import tiny

from tenonnx.errors import InvalidCall
from tenonnx.graph.graph import Graph
from tenonnx.op.evaluate import evaluate_graph
from tenonnx.op.op import op
from tenonnx_standard.grad import grad

X = np.float64([[1.0, 2.0], [3.0, 4.0]])


def scaled_exponential(*, vjp, residuals=None):
    """``factor * exp(x)`` with its own rules."""

    @op("ScaledExponential", domain="tiny")
    def made(x, factor, shift=None):
        return tiny.multiply(tiny.exp(x), factor)

    made.vjp(vjp)
    if residuals is not None:
        made.residuals(residuals)
    return made


def loss_of(made):
    graph = Graph(opsets={"tiny": 5})
    graph.registry = tiny.registry()
    x, factor = (graph.input(name, "float64", (2, 2)) for name in ("x", "factor"))
    graph.output("loss", tiny.sum_(made(x, factor), keep=0))
    graph.nodes[0].name = "scaled"
    return graph


def test_residuals_are_computed_once_and_replace_the_call():
    demands = []

    def residuals(demand, x, factor, shift):
        demands.append((demand.outputs, sorted(v.name for v in demand.inputs), demand.captures))
        exponential = tiny.exp(x)
        return (tiny.multiply(exponential, factor),), exponential

    def vjp(g, exponential, x, factor, shift):
        return tiny.multiply(g, tiny.multiply(exponential, factor)), tiny.multiply(g, exponential), None

    graph = loss_of(scaled_exponential(vjp=vjp, residuals=residuals))
    before = [repr(node) for node in graph.nodes]
    derived = grad(graph, "loss", ["x", "factor"])
    assert demands == [((True,), ["factor", "x"], ())]
    assert [node.op_type for node in derived.nodes].count("Exp") == 1
    loss, gx, gfactor = evaluate_graph(derived, [X, 2 * X])
    np.testing.assert_allclose(loss, np.sum(2 * X * np.exp(X)))
    np.testing.assert_allclose(gx, 2 * X * np.exp(X))
    np.testing.assert_allclose(gfactor, np.exp(X))
    assert [repr(node) for node in graph.nodes] == before


def test_a_call_that_is_not_on_the_path_keeps_nothing():
    def refuse(*arguments, **attributes):
        raise AssertionError("nobody asked")

    graph = loss_of(scaled_exponential(vjp=refuse, residuals=refuse))
    x = graph["x"]
    graph.output("other", tiny.sum_(tiny.multiply(x, x), keep=0))
    (gradient,) = evaluate_graph(grad(graph, "other", "x"), [X, X])[2:]
    np.testing.assert_allclose(gradient, 2 * X)


def test_residuals_may_leave_the_call_unchanged():
    made = scaled_exponential(
        vjp=lambda g, twice, x, factor, shift: (tiny.multiply(g, twice), None, None),
        residuals=lambda demand, x, factor, shift: (None, tiny.double(x)),
    )
    derived = grad(loss_of(made), "loss", "x")
    assert [node.op for node in derived.nodes].count(made) == 1
    np.testing.assert_allclose(evaluate_graph(derived, [X, X])[1], 2 * X)


@pytest.mark.parametrize(
    ("vjp", "message"),
    [
        (lambda g, y, x, factor, shift: (g, g), 'scaled" .* for each of 3 inputs\n.*2 gradients'),
        (lambda g, y, x, factor, shift: g, "for each of 3 inputs\n.*1 gradient\n"),
        (lambda g, y, x, factor, shift: (g, g, None, None), "4 gradients"),
        (
            lambda g, y, x, factor, shift: (None, tiny.sum_(g, keep=0), None),
            'scaled" .* input "factor" is not float64',
        ),
        (lambda g, y, x, factor, shift: (tiny.round_(g).dtype, None, None), 'input "x" is not float64'),
    ],
)
def test_a_rule_that_returns_no_gradients_is_refused(vjp, message):
    with pytest.raises(InvalidCall, match=message):
        grad(loss_of(scaled_exponential(vjp=vjp)), "loss", ["x", "factor"])


@pytest.mark.parametrize(
    ("residuals", "message"),
    [
        (lambda demand, x, factor, shift: tiny.exp(x), "did not return a pair"),
        (lambda demand, x, factor, shift: (tiny.exp(x), x), "did not return a pair: a tuple of the outputs"),
        (lambda demand, x, factor, shift: ((x,), x, x), "did not return a pair"),
        (lambda demand, x, factor, shift: None, "did not return a pair"),
        (lambda demand, x, factor, shift: ((), x), r'for output ".*" a value float64\[2, 2\]\n.*None'),
        (lambda demand, x, factor, shift: ((None,), x), "a value float64"),
        (lambda demand, x, factor, shift: ((np.ones((2, 2)),), x), "a value float64"),
        (lambda demand, x, factor, shift: ((tiny.sum_(x, keep=0),), x), r"a value float64\[2, 2\]\n.*float64\[\]"),
    ],
)
def test_a_rule_that_keeps_no_residuals_is_refused(residuals, message):
    made = scaled_exponential(vjp=lambda g, kept, x, factor, shift: (g, None, None), residuals=residuals)
    with pytest.raises(InvalidCall, match=message) as caught:
        grad(loss_of(made), "loss", ["x"])
    assert 'node "scaled" (tiny::ScaledExponential@1): the rule residuals' in str(caught.value)
