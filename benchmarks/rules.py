"""Time of rules compared with the bodies of their ops; a rule that is not faster is redundant.

Calls of numpy rules are those of ``operators.py``, at realistic sizes. ``--drawn`` takes calls of the conformance
cases, enlarged along the first axis if the op allows it, and prints rules that gain little (``--all``: every rule).
``--types`` times type rules that infer no more than the body; inference by the body is cached per kind of call.

    python benchmarks/rules.py [--drawn | --all | --types] [NAME ...]
"""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np
import operators
from measure import geometric, rounds, table

import tenonnx as tx
from tenonnx.extend import Op
from tenonnx.extend.testing import infer_by_body
from tenonnx.extend.transforms import bind, infer_call, known_op
from tenonnx_testing.cases import Call, Case, collected, load
from tenonnx_testing.inference import rule_knows_more, values_of
from tenonnx_testing.kit import calls
from tenonnx_testing.run import evaluate

#: Length of the first axis of enlarged inputs.
LONG = 1024


def enlarged(case: Case, drawn: Call) -> Call:
    """The call with a long first axis and all axes of the same length enlarged; unchanged if the op rejects that."""
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


def ratio(op: Op, drawn: Call) -> tuple[float, float]:
    """Microseconds of the rule, and the body's time as a multiple of it."""
    implementations = {"rule": lambda: evaluate(op, drawn), "body": lambda: evaluate(op, drawn, body_of=op)}
    found = rounds(implementations, count=5, summary=min)
    return found["rule"] * 1e6, found["body"] / found["rule"]


def ruled(rule: str, names: Collection[str]) -> dict[Op, list[Case]]:
    """Cases of all ops with a body and the rule."""
    load()
    result: dict[Op, list[Case]] = {}
    for case in collected():
        if not case.op.primitive and rule in case.op.rules and (not names or case.op.name in names):
            result.setdefault(case.op, []).append(case)
    return result


def of_real_size(names: Collection[str]) -> None:
    rows = []
    for name, each in {**operators.main_cases(), **operators.more_cases()}.items():
        (node,) = tx.load(each.model).nodes
        op = known_op(node)
        if not op.primitive and "numpy" in op.rules and (not names or op.name in names):
            rows.append([name, *ratio(op, Call(tuple(each.inputs), bind(node)[1], each.outputs))])
    table("Numpy rules against bodies, at real sizes", ["op", "microseconds of the rule", "the body takes"], rows)


def of_drawn(names: Collection[str], least: float) -> None:
    rows = []
    for op, cases in ruled("numpy", names).items():
        drawn = [(case, each) for case in cases for each in calls(case, 2)]
        short = [ratio(op, each)[1] for _, each in drawn]
        long = [ratio(op, enlarged(case, each)) for case, each in drawn]
        spent, large = (geometric([row[k] for row in long]) for k in range(2))
        if large < least:
            rows.append([f"{op.domain} {op.name} {op.since}", spent, geometric(short), large])
    columns = ["op", "microseconds of the rule", "the body takes, of short calls", "of long ones"]
    table("Numpy rules against bodies", columns, rows)


def of_types(names: Collection[str]) -> None:
    rows = []
    for op, cases in ruled("type", names).items():
        drawn = [(case, each) for case in cases for each in calls(case, 8)]
        times = []
        for case, each in drawn[:4]:
            values, _ = values_of(case, each)
            arguments = op, values, each.attributes, each.outputs
            start = time.perf_counter()
            infer_by_body(*arguments)  # fills the inference cache
            once = time.perf_counter() - start
            times.append((rounds({"rule": lambda given=arguments: infer_call(*given)})["rule"] * 1e6, once * 1e6))
        if not any(rule_knows_more(case, each) for case, each in drawn):
            means = [geometric(column) for column in zip(*times, strict=True)]
            rows.append([f"{op.domain} {op.name} {op.since}", *means])
    table("Type rules that know what the body knows, microseconds", ["op", "rule", "body, once"], rows)


def main(*given: str) -> None:
    warnings.simplefilter("ignore")
    names = [each for each in given if not each.startswith("-")]
    if "--types" in given:
        of_types(names)
    elif "--drawn" in given or "--all" in given:
        of_drawn(names, math.inf if "--all" in given else 1.5)
    else:
        of_real_size(names)


if __name__ == "__main__":
    main(*sys.argv[1:])
