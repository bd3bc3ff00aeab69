"""The conformance kit with rules ``jax`` of packages, and ours."""

from __future__ import annotations

import pytest

import tenonnx_jax  # noqa: F401 - its rules
from tenonnx.extend import NotRepresentable, op
from tenonnx_testing import broadcastable, call
from tenonnx_testing.cases import Case, collected, load
from tenonnx_testing.frameworks import installed
from tenonnx_testing.kit import check_case
from tenonnx_testing.run import Failure

load()
(JAX,) = (framework for framework in installed() if framework.name == "jax")
OURS = {
    case.title: case
    for case in collected()
    if case.op.domain == "ai.onnx" and case.op.before is None and JAX.applies(case)
}


def weighted(rule):
    @op("Weighted", domain="com.example")
    def made(X, W, *, by=2.0):
        return X * W + by

    made.rule("jax", rule)
    return Case(made, lambda draw: call(*draw(broadcastable(2)), by=0.5))


def test_a_right_rule_passes():
    case = weighted(lambda X, W, *, by: X * W + by)
    check_case(case, "jax")
    assert case.compared["jax"] == 6


def still(array):
    import jax

    return jax.lax.stop_gradient(array)


WRONG = {
    "another sign": lambda X, W, *, by: X * W - by,
    "an attribute that is not read": lambda X, W, *, by: X * W,
    "no gradient of one input": lambda X, W, *, by: X * still(W) + by,
    "a bare error": lambda X, W, *, by: (X @ W).nowhere,
}


@pytest.mark.parametrize("rule", WRONG.values(), ids=WRONG)
def test_a_wrong_rule_is_found(rule):
    with pytest.raises(Failure, match="JAX"):
        check_case(weighted(rule), "jax")


def test_calls_that_jax_cannot_express_are_not_compared():
    def refusing(X, W, *, by):
        raise NotRepresentable("JAX must have a form for it")

    with pytest.raises(pytest.skip.Exception, match="nothing to compare with: it cannot be a function of JAX"):
        check_case(weighted(refusing), "jax")


#: Gradients that JAX does not support.
KNOWN = {"ScatterND@18": "JAX derives products only where no index comes twice"}


@pytest.mark.parametrize("case", OURS.values(), ids=OURS)
def test_our_rules_have_the_gradients_of_their_ops(case, request):
    if case.title in KNOWN:
        request.applymarker(pytest.mark.xfail(reason=KNOWN[case.title], strict=True))
    check_case(case, "jax", examples=2)
