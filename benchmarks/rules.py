"""Numpy rules of ops that have a body: how many times longer the body takes, for calls that the kit draws.

Calls are drawn by the cases of the installed packages, and their first axis is made long where the op takes that. A
rule that is not faster than its body repeats it, and should go.

    python benchmarks/rules.py [--all]
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from measure import geometric, rounds

from tenonnx.extend import Op
from tenonnx_testing.cases import Call, Case, collected, load
from tenonnx_testing.kit import calls
from tenonnx_testing.run import evaluate

#: Elements along the first axis of what is drawn.
LONG = 1024


def enlarged(case: Case, drawn: Call) -> Call:
    """The call with a long first axis, and whatever has that length as long; as it was where the op refuses that."""
    first = next((v for v in drawn.inputs if isinstance(v, np.ndarray) and v.ndim and v.size), None)
    if first is None:
        return drawn
    length = first.shape[0]

    def long(contents: Any) -> Any:
        if not isinstance(contents, np.ndarray) or not contents.ndim or contents.shape[0] != length:
            return contents
        return np.resize(contents, (max(LONG // length, 1) * length, *contents.shape[1:]))

    larger = replace(drawn, inputs=tuple(map(long, drawn.inputs)))
    try:
        evaluate(case.op, larger)
        evaluate(case.op, larger, body_of=case.op)
    except Exception:
        return drawn
    return larger


def ratio(case: Case, drawn: Call) -> tuple[float, float]:
    """Microseconds of the rule, and how many times longer the body takes."""
    contestants = {
        "rule": lambda: evaluate(case.op, drawn),
        "body": lambda: evaluate(case.op, drawn, body_of=case.op),
    }
    found = rounds(contestants, count=3, summary=min)
    return found["rule"] * 1e6, found["body"] / found["rule"]


def main() -> None:
    warnings.simplefilter("ignore")
    load()
    found: dict[Op, list[Case]] = {}
    for case in collected():
        if not case.op.primitive and "numpy" in case.op.rules:
            found.setdefault(case.op, []).append(case)
    print("| op | microseconds of the rule | the body takes, of short calls | of long ones |")
    print("| --- | --- | --- | --- |")
    for op, cases in found.items():
        times = []
        for case in cases:
            for drawn in calls(case, 2):
                times.append((*ratio(case, enlarged(case, drawn)), ratio(case, drawn)[1]))
        time, large, small = (geometric([row[k] for row in times]) for k in range(3))
        if large < 1.5 or "--all" in sys.argv:
            print(f"| {op.domain} {op.name} {op.since} | {time:.0f} | {small:.1f} | {large:.1f} |", flush=True)


if __name__ == "__main__":
    main()
