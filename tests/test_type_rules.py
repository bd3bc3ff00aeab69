"""Type rules of ops with a body are more precise or faster than inference by the body."""

from __future__ import annotations

from tenonnx_testing.cases import Case, collected, load
from tenonnx_testing.inference import rule_knows_more
from tenonnx_testing.kit import calls

_LONG = "its body takes milliseconds, once for each kind of call: benchmarks/rules.py --types"

#: Rules that infer no more than the body on the cases' calls, and the reasons to keep them.
SPARED = {
    "ai.onnx.ml::TreeEnsemble@5": _LONG,
    "ai.onnx.ml::TreeEnsembleClassifier@3": _LONG,
    "ai.onnx.ml::TreeEnsembleRegressor@3": _LONG,
    "ai.onnx::DFT@20": _LONG,
    "ai.onnx::GridSample@20": _LONG,
    "ai.onnx::Pad@19": "a length in symbols is short, where the body takes the greatest and least of expressions",
    "ai.onnx::Range@27": "the count of numbers up to a symbol is known by name, and no case draws symbols as contents",
    "ai.onnx::Resize@19": _LONG,
    "com.microsoft::BeamSearch@1": _LONG,
    "com.microsoft::GreedySearch@1": _LONG,
    "com.microsoft::Sampling@1": _LONG,
    "com.microsoft::WhisperBeamSearch@1": _LONG,
    "tenonnx::ConvWeightGradient@1": _LONG,
}


def ruled() -> dict[str, list[Case]]:
    """Cases of each op with a body and a type rule."""
    load()
    result: dict[str, list[Case]] = {}
    for case in collected():
        if not case.op.primitive and "type" in case.op.rules:
            result.setdefault(case.op.title, []).append(case)
    return result


def knows_more(cases: list[Case], *counts: int) -> bool:
    return any(rule_knows_more(case, drawn) for count in counts for case in cases for drawn in calls(case, count))


def test_each_rule_infers_more_than_the_body_or_is_faster():
    few, many = (2,), (1, 8)
    result = {title: knows_more(cases, *(few if title in SPARED else many)) for title, cases in ruled().items()}
    assert {title for title, more in result.items() if not more} == SPARED.keys()
