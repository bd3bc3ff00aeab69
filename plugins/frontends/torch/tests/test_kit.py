"""The conformance kit with rules ``torch`` of packages."""

from __future__ import annotations

import pytest

from tenonnx.extend import op
from tenonnx_testing import broadcastable, call
from tenonnx_testing.cases import Case
from tenonnx_testing.kit import check_case
from tenonnx_testing.run import Failure


def weighted(rule):
    @op("Weighted", domain="com.example")
    def made(X, W, *, by=2.0):
        return X * W + by

    made.rule("torch", rule)
    return Case(made, lambda draw: call(*draw(broadcastable(2)), by=0.5))


def test_a_right_rule_passes():
    case = weighted(lambda X, W, *, by: X * W + by)
    check_case(case, "torch")
    assert case.compared["torch"] == 6


WRONG = {
    "another sign": lambda X, W, *, by: X * W - by,
    "an attribute that is not read": lambda X, W, *, by: X * W,
    "no gradient of one input": lambda X, W, *, by: X * W.detach() + by,
    "a bare error": lambda X, W, *, by: X @ W @ X @ W,
}


@pytest.mark.parametrize("rule", WRONG.values(), ids=WRONG)
def test_a_wrong_rule_is_found(rule):
    with pytest.raises(Failure, match="PyTorch"):
        check_case(weighted(rule), "torch")
