"""The check "bad input": ops that accept calls they should reject."""

from __future__ import annotations

import numpy as np
import pytest

from tenonnx.errors import TypeMismatch
from tenonnx.extend import axis, op, primitive
from tenonnx.op.requirements import Requirements
from tenonnx_testing import call, check_case, tensors
from tenonnx_testing.cases import Case
from tenonnx_testing.run import Failure


def defined(rule, body=None, type_rule=lambda X, *, axis: X.tensor):
    def function(X, *, axis: int = 0): ...

    function.__name__ = "made"
    if body is None:
        made = primitive("Made", domain="com.example", type=type_rule)(function)
    else:
        made = op("Made", domain="com.example")(body)
        made.type(type_rule)
    made.numpy(rule)
    return made.requires(axis("axis", of="X"))


def check(made):
    check_case(Case(made, lambda draw: call(draw(tensors(min_rank=1)), axis=0)), "bad input", 120)


def test_an_op_that_rejects_bad_input_passes():
    def floats(X, *, axis):
        if not X.dtype.is_float:
            raise TypeMismatch("X does not hold floats", given=repr(X))
        return X.tensor

    check(defined(lambda x, *, axis: np.flip(x, axis), type_rule=floats))


def test_an_error_of_numpy_fails():
    made = defined(lambda x, *, axis: np.flip(x, axis))
    made.requirements = Requirements(made)
    with pytest.raises(Failure, match=r'ends in AxisError: .* what is missing may be axis\("axis", of="X"\)'):
        check(made)


def test_a_bare_error_is_found():
    def rule(x, *, axis):
        if x.dtype == np.bool_:
            raise BufferError("no bools")
        return x

    with pytest.raises(Failure, match="a bare BufferError is raised: no bools"):
        check(defined(rule))


def test_a_rule_may_not_accept_what_the_body_rejects():
    def body(X, *, axis: int = 0):
        if axis != 0:
            raise TypeMismatch("axis must be 0", given=str(axis))
        return X

    with pytest.raises(Failure, match="accepts, when called, what its body refuses: axis must be 0"):
        check(defined(lambda x, *, axis: x, body))


def test_all_ways_to_run_give_the_same_outputs():
    with pytest.raises(Failure, match="differs from its body") as caught:
        check(defined(lambda x, *, axis: x if axis == 0 else x + 1, lambda X, *, axis=0: X))
    assert any(note.startswith("mutated: ") for note in caught.value.__notes__)
