"""The check of requirements reports those that reject no call, and those with an unclear error."""

import numpy as np
import pytest

from tenonnx.extend import Requirement, TypeMismatch, at_least, divides, floats, holds, op, same_dtype, shapes, together
from tenonnx_testing import call, cases
from tenonnx_testing.run import Failure
from tenonnx_testing.violations import check_requirements


def required(*requirements):
    """Return an op that declares these requirements, and has a case."""

    @op("Required", domain="tiny")
    def made(x, y=None, z=None, *, size=1):
        return x if y is None else x + y + z

    made.requires(*requirements)
    row = np.ones(3, np.float32)
    cases(made)(lambda draw: call(np.ones((2, 3), np.float32), row, row, size=3))
    return made


def test_each_requirement_can_be_violated():
    words = floats("x"), same_dtype("x", "y"), together("y", "z"), at_least(size=2), divides("size", "columns")
    check_requirements(required(shapes(x="rows columns", y="columns"), *words), 1)


def test_a_requirement_that_uses_an_undefined_size_is_reported():
    """``shapes`` defines the size, but is declared after the requirement that uses it."""
    with pytest.raises(Failure, match=r"no change to a call of its cases breaks divides\(size, columns\); leave out"):
        check_requirements(required(at_least(size=1), divides("size", "columns"), shapes(x="rows columns")), 1)


def test_an_unclear_error_is_reported():
    def check(given):
        if given.inputs["x"].type.shape != (2, 3):
            raise TypeMismatch("no")

    with pytest.raises(Failure, match=r"does not say, where contents are known, that silent\(x\) of tiny::Required@1"):
        check_requirements(required(Requirement("silent", ["x"], check)), 1)


def test_a_text_without_a_parameter_name_is_reported():
    """The arguments shown in the message have the name, but the text of the requirement does not."""

    @holds
    def few(x):
        return "too many rows" if x.rank and x.shape[0] != 2 else None

    says = r"the text of holds\(x\) of tiny::Required@1 names no parameter of it: tiny::Required@1: too many rows"
    with pytest.raises(Failure, match=says):
        check_requirements(required(few), 1)
