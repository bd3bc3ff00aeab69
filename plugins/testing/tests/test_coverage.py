"""Checks of all cases of an op: versions, distributions and gradients."""

from __future__ import annotations

import numpy as np
import pytest

from tenonnx.extend import TensorType, primitive
from tenonnx.graph.dtypes import DType
from tenonnx_testing import Gap, Law, call, cases, check_case, tensors
from tenonnx_testing.cases import Case, _collected
from tenonnx_testing.coverage import check_versions
from tenonnx_testing.differentiability import differentiability
from tenonnx_testing.run import Failure


@pytest.fixture(autouse=True)
def no_other_cases():
    held = dict(_collected)
    _collected.clear()
    yield
    _collected.clear()
    _collected.update(held)


def elementary(name, since, rule, vjp=None, dtype=None):
    made = primitive(name, since=since, type=lambda X: X.tensor if dtype is None else X.tensor.with_dtype(dtype))(
        lambda X: ...
    )
    made.numpy(rule)
    if vjp is not None:
        made.vjp(vjp)
    return made


# ----- versions -----------------------------------------------------------------------------------------------------


def test_every_version_is_reached():
    sine = elementary("Sin", 7, np.sin)
    cases(sine)(lambda draw: call(draw(tensors())))
    check_versions(sine, 2)


def test_versions_that_no_call_reaches_are_reported():
    sine = elementary("Sin", 7, np.sin)
    cases(sine)(lambda draw: call(draw(tensors("bfloat16"))))
    with pytest.raises(Failure, match=r"no call of its cases is compared at the versions \[7\]"):
        check_versions(sine, 2)


def test_a_gap_names_versions_and_goes_stale():
    sine = elementary("Sin", 7, np.sin)
    old = Gap("versions", "it had no bfloat16", when=lambda call: call.version < 22)
    cases(sine, gaps=[old])(lambda draw: call(draw(tensors("bfloat16"))))
    check_versions(sine, 2)
    cases(sine)(lambda draw: call(draw(tensors())))
    with pytest.raises(Failure, match="the gap of versions is stale"):
        check_versions(sine, 2)


# ----- distributions ------------------------------------------------------------------------------------------------


def random(rule):
    made = primitive("RandomUniform", pure=False, type=lambda *, seed, shape: TensorType(DType.float32, tuple(shape)))(
        lambda *, seed=None, shape: ...
    )
    made.numpy(lambda *, seed, shape: rule(np.random.default_rng(int(seed)), shape).astype(np.float32))
    return Case(made, lambda draw: call(shape=[3], seed=1.0), law=lambda call: Law(0.5, 12**-0.5, 0, 1))


def test_an_op_that_follows_its_law_passes():
    check_case(random(lambda generator, shape: generator.random(shape)), "law", 1)


@pytest.mark.parametrize(
    ("rule", "match"),
    [
        (lambda generator, shape: generator.random(shape) * 2, "outside of 0 to 1"),
        (lambda generator, shape: generator.random(shape) / 2, "has the mean"),
        (lambda generator, shape: 0.25 + generator.random(shape) / 2, "deviates 0.4"),
        (lambda generator, shape: np.random.default_rng().random(shape), "other numbers each time for one seed"),
    ],
)
def test_an_op_that_violates_its_law_is_reported(rule, match):
    with pytest.raises(Failure, match=match):
        check_case(random(rule), "law", 1)


# ----- gradients ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "verdict"),
    [
        (lambda: elementary("Identity", 1, lambda x: x, lambda g, y, x: g), "yes"),
        (lambda: elementary("Sin", 7, np.sin), "no: a part has none"),
        (lambda: elementary("Round", 11, np.rint, lambda g, y, x: None), "no: constant almost everywhere"),
        (lambda: elementary("IsNaN", 9, np.isnan, dtype=DType.bool), "no: gives bools"),
    ],
)
def test_the_verdict_depends_on_the_calls(made, verdict):
    op = made()
    cases(op)(lambda draw: call(draw(tensors())))
    assert differentiability(op).verdict == verdict


def test_an_op_without_floats_is_not_differentiable():
    op = elementary("Identity", 1, lambda x: x.astype(np.float32), dtype=DType.float32)
    cases(op)(lambda draw: call(draw(tensors("int64"))))
    assert differentiability(op).verdict == "no: takes no floats"
