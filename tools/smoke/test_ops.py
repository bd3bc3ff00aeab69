"""Smoke tests of every installed op: types, and a call on the backend ``auto`` compared with the op itself."""

import warnings

import pytest

pytest.importorskip("tenonnx_testing", reason="tenonnx-testing, of the extra test of a family, is not installed")

import tenonnx as tx
from tenonnx.extend.testing import plugins
from tenonnx_testing import conformance
from tenonnx_testing.cases import collected, load
from tenonnx_testing.kit import calls
from tenonnx_testing.models import single_node
from tenonnx_testing.run import Failure, evaluate, expect, is_random

#: The opset of ``ai.onnx`` in models with an op of another domain.
BESIDE = 21

load()
CASES = [case for case in collected() if case.op.before is None]

for family in sorted({plugin.distribution for plugin in plugins("tenonnx.conformance")}):
    globals()[f"test_{family.replace('-', '_')}"] = conformance(family)


@pytest.mark.parametrize("case", CASES, ids=[case.title for case in CASES])
def test_call(case):
    (drawn,) = calls(case, 1)
    if is_random(case.op, drawn):
        pytest.skip("what is drawn at random is not compared")
    if gap := next((gap for gap in case.gaps_of("onnxruntime") if gap.covers(drawn)), None):
        pytest.skip(f"a known fault of the runtime: {gap.reason}")
    expected = evaluate(case.op, drawn)
    trial = single_node(case.op, drawn, case.op.version, expected, BESIDE)
    if trial is None:
        pytest.skip("the call has no form in a file")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tx.FallbackWarning)  # numpy computes nodes that the runtime rejects
        found = tx.load(trial.model).run(trial.feeds)
    try:
        expect(case, drawn, "auto", found.values(), trial.expected)
    except Failure as failure:
        raise pytest.fail.Exception(str(failure), pytrace=False) from None
