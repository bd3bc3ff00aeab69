"""Check of ``specialize`` rules: kernels for fixed shapes, compared with the numpy rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tenonnx.extend import Operand, find_rule
from tenonnx_testing.cases import Call, Case
from tenonnx_testing.edges import LAYOUTS, planted
from tenonnx_testing.run import Outputs, blaming, evaluate, expect, expect_new, is_index, present, trimmed


def specializes(case: Case) -> bool:
    return find_rule(case.op, "specialize") is not None and find_rule(case.op, "numpy") is not None


def kernels_agree(case: Case, drawn: Call, expected: Outputs) -> bool:
    """Check that specialized kernels equal the numpy rule for different constant inputs, memory layouts and values."""
    every = range(len(drawn.inputs))
    compared = False
    for fixed in ([k for k in every if is_index(case.op, k)], list(every[1:]), []):
        kernel = _kernel(case, drawn, fixed)
        if kernel is None:
            continue
        compared = True
        first = _compare(case, drawn, kernel, "its prepared kernel", expected)
        for name, lay in LAYOUTS.items():
            moved = [lay(v) if isinstance(v, np.ndarray) and k not in fixed else v for k, v in enumerate(drawn.inputs)]
            laid = replace(drawn, inputs=tuple(moved))
            again = _compare(case, laid, kernel, f"its prepared kernel on arrays with {name}", expected)
            expect_new(f"the prepared kernel of {case.op.title}", laid, again, first)
        for name, call in planted(case, drawn):
            if all(call.inputs[k] is drawn.inputs[k] for k in fixed):
                what = f"its prepared kernel where an input holds {name}"
                _compare(case, call, kernel, what, evaluate(case.op, call))
    return compared


def _kernel(case: Case, drawn: Call, fixed: list[int]) -> Any:
    """Return the kernel for a call; None for sequences and empty tensors, for which no kernel is requested."""
    if any(v is not None and (not isinstance(v, np.ndarray) or not v.size) for v in drawn.inputs):
        return None
    operands = [
        None if v is None else Operand(v.shape, v.dtype, v if k in fixed else None) for k, v in enumerate(drawn.inputs)
    ]
    counted = {"_outputs": drawn.outputs} if case.op.signature.counts_outputs else {}
    rule = find_rule(case.op, "specialize")
    assert rule is not None, "the check applies to ops that have one"
    with blaming(f"the specialize rule of {case.op.title}"):
        return rule(*operands, **drawn.attributes, **counted)


def _compare(case: Case, drawn: Call, kernel: Any, what: str, expected: Outputs) -> Outputs:
    before = [v.copy() if isinstance(v, np.ndarray) else v for v in drawn.inputs]
    with blaming(what), np.errstate(all="ignore"):
        results = kernel(*drawn.inputs)
    found = present(trimmed([_as_array(each) for each in (results if isinstance(results, tuple) else (results,))]))
    wanted = present(expected)
    expect(case, drawn, what, found[: len(wanted)], wanted)
    again = [v for v in drawn.inputs if isinstance(v, np.ndarray)]
    expect(case, drawn, f"{what}, which wrote into its inputs,", again, [v for v in before if v is not None])
    return tuple(found)


def _as_array(result: Any) -> Any:
    return np.asarray(result) if isinstance(result, np.generic) else result
