"""Comparison of correct and wrong signatures with the schemas of the onnx package."""

import numpy as np
import pytest

from tenonnx.extend import elementwise, op, primitive
from tenonnx.registry.registry import Registry
from tenonnx_testing import signature_problems
from tenonnx_testing.signatures import uncovered, versions_without_meaning


def clip(**changes):
    def function(input, min=None, max=None): ...

    return elementwise("Clip", since=6)(function).until(11, **{"attributes": ["min", "max"], **changes})


def test_a_right_signature_has_no_problems():
    defaults = {"min": float(np.finfo(np.float32).min), "max": float(np.finfo(np.float32).max)}
    assert signature_problems(clip(defaults=defaults)) == []
    assert signature_problems(sine_of("input")) == []


def sine_of(name):
    return primitive("Sin", since=7)({"input": lambda input: ..., "x": lambda x: ...}[name])


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (sine_of("x"), 'at version 22, input 0 is "x", and the schema has "input"'),
        (clip(), 'at version 6, attribute "max" is None by default'),
        (op("Sin", since=8)(lambda input: input), "since=8 is not a version of Sin"),
        (op("Sin", since=7, before=9)(lambda input: input), "before=9 is not a version of Sin"),
        (op("Sin", since=7)(lambda input, other: input), "at version 7, the inputs are ['input', 'other']"),
        (op("Sin", since=7)(lambda input=None: input), 'at version 22, input "input" is optional, and required'),
        (op("Sin", since=7)(lambda *input: input), 'at version 7, input "input" is variadic'),
        (op("Sin", since=7)(lambda input, *, alpha=1.0: input), 'at version 7, attribute "alpha" is not in the schema'),
        (op("Elu", since=6)(lambda X: X), 'at version 6, attribute "alpha" of the schema is missing'),
        (op("Elu", since=6)(lambda X, *, alpha: X), 'at version 6, attribute "alpha" is required'),
        (op("Elu", since=6)(lambda X, *, alpha=2.0: X), 'at version 6, attribute "alpha" is 2.0 by default, and 1.0'),
        (op("Elu", since=6)(lambda X, *, alpha=1: X), 'at version 6, attribute "alpha" is 1 by default, and 1.0'),
        (op("Elu", since=6)(lambda X, *, alpha=1.0: X).until(9, ignored=["beta"]), "until(9) is not a version of Elu"),
    ],
)
def test_a_wrong_signature_is_reported(made, problem):
    assert any(result.startswith(problem) for result in signature_problems(made)), signature_problems(made)


def test_vendor_ops_without_a_schema_have_no_problems():
    assert signature_problems(op("Anything", domain="vendor")(lambda x: x)) == []


def test_versions_without_a_meaning_are_found():
    registry = Registry()
    registry.add(elementwise("Add", since=13)(lambda A, B: ...))
    assert versions_without_meaning(registry, next(registry.ops("ai.onnx"))) == [1, 6, 7]
    missing = uncovered(registry, "ai.onnx", "tenonnx-standard")
    assert {"Add@1", "Add@6", "Add@7", "Sub@14"} <= set(missing)
    assert not {"Add@13", "Add@14", "Upsample@10"} & set(missing)
