"""Draws depend only on the seed of a case."""

from __future__ import annotations

import importlib

import numpy as np
from hypothesis import strategies as st

from tenonnx.extend import op
from tenonnx_testing import call, tensors
from tenonnx_testing.cases import Case, Gap
from tenonnx_testing.checks import CHECKS
from tenonnx_testing.kit import _pool, check_case, run_check
from tenonnx_testing.repro import one_line


@op("Shifted", domain="com.example")
def shifted(X, *, by: int):
    return X


def anything(draw):
    return call(draw(tensors()), by=draw(st.integers(0, 10**6)))


def drawn():
    _pool.cache_clear()
    return [one_line(each.op, each.completed) for each in _pool(Case(shifted, anything), 100)]


def test_draws_do_not_depend_on_imported_modules(tmp_path, monkeypatch):
    before = drawn()
    numbers = ", ".join(str(number) for number in range(1000, 2000))
    (tmp_path / "full_of_numbers.py").write_text(f"NUMBERS = [{numbers}]\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("full_of_numbers")
    assert drawn() == before
    assert len(set(before)) > 50


def test_a_gap_sees_the_call_that_a_check_changed():
    @op("Halved", domain="com.example")
    def halved(X):
        return X * 0.5

    halved.numpy(lambda X: np.asarray(np.nan_to_num(X * X.dtype.type(0.5), posinf=np.inf, neginf=-np.inf)))
    reason = "of NaN the rule makes 0"
    gap = Gap("special values", reason, when=lambda call: bool(np.isnan(call.inputs[0]).any()))
    case = Case(halved, lambda draw: call(draw(tensors())), gaps=(gap,))
    check_case(case, "special values")
    _, gaps = run_check(case, CHECKS["special values"], 6)
    assert gaps[gap].failed > 0
