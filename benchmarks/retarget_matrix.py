"""Retargeting of the onnx package's node cases to every opset: share of exported, valid and correct models.

Every case is exported to every target opset. The file must pass onnx.checker, and the first judge that can run it
compares outputs with the data of the case: onnxruntime, onnx.reference, or our numpy backend. A judge that fails the
original case is skipped.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
from measure import table
from onnx.backend.test.loader import load_model_tests
from onnx.reference import ReferenceEvaluator

import tenonnx as tx
from tenonnx.errors import NotRepresentable

TARGETS = (7, 9, 11, 13, 15, 17, 18, 21, 23, 25, 27)
HEADLINE = (11, 13, 17, 18, 21, 27)

#: Random cases, whose outputs are only compared by type and shape.
DRAWN = re.compile(r"bernoulli|training_dropout(?!_zero)")

#: Tolerance for another order of rounding: float32 relative to the largest element, half floats to each element (two
#: units in the last place). The cases themselves tolerate 1e-3 of each element plus 1e-7.
ROUNDING = 2.0**-22
HALVES = {"float16": 2.0**-9, "bfloat16": 2.0**-6}

#: Kinds of refusals by words of the message; the first match counts.
REASONS = (
    ("element type of an input or output of the graph", r"exists? at version \d+ of ai.onnx, but from"),
    ("element type within the graph", r"does not (take|give)|holds? all values"),
    ("contents or rank not known", r"must be known|as an attribute, but here it is computed|rank is not known"),
    ("newer attribute, input or output", r"does not exist at version|has no input|cannot be absent|must be written"),
    ("newer op or meaning", r"exists from version|changed at version"),
)


class Outcome(NamedTuple):
    """Outcome of a case at a target, and the judge that decided."""

    case: str
    own: int
    target: int
    kind: str
    judge: str = ""
    rewritten: bool = False
    detail: str = ""


def node_cases() -> Iterator[Any]:
    """Cases with ops of ai.onnx only, since the other domains do not change with the opset."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = load_model_tests(kind="node")
    return (case for case in found if own_opset(case))


def own_opset(case: Any) -> int:
    return next((entry.version for entry in case.model.opset_import if entry.domain in ("", "ai.onnx")), 0)


def attempt(case: Any, target: int) -> Outcome:
    """Export a case at a target opset, check it, and run it."""
    outcome = Outcome(case.name, own_opset(case), target, "")
    file = io.BytesIO()
    try:
        report = tx.export(tx.load(case.model), file, opset_version=target)
    except NotRepresentable as error:
        return outcome._replace(kind="refused", detail=error.given or error.what)
    except Exception as error:
        return outcome._replace(kind="failed", detail=f"{type(error).__name__}: {error}")
    outcome = outcome._replace(rewritten=any(c.action not in ("kept", "adapted") for c in report.changes))
    model = onnx.load_from_string(file.getvalue())
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception as error:
        return outcome._replace(kind="invalid", detail=str(error))
    notes = []
    for judge, run in JUDGES.items():
        if judge == "onnx.reference" and target < FIRST_REFERENCE:
            continue
        verdict, detail = judged(case, model, run)
        if verdict == "right" or (verdict == "wrong" and judged(case, case.model, run)[0] == "right"):
            return outcome._replace(kind=verdict, judge=judge, detail=detail)
        notes.append(f"{judge}: {detail}")
    return outcome._replace(kind="not compared", detail="; ".join(notes))


# ----- judges ---------------------------------------------------------------------------------------------------------


def _by_onnxruntime(model: onnx.ModelProto) -> Callable[[dict[str, Any]], list[Any]]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda feeds: session.run(None, feeds)


def _by_reference(model: onnx.ModelProto) -> Callable[[dict[str, Any]], list[Any]]:
    evaluator = ReferenceEvaluator(model)
    return lambda feeds: evaluator.run(None, feeds)


def _by_numpy(model: onnx.ModelProto) -> Callable[[dict[str, Any]], list[Any]]:
    graph = tx.load(model)
    return lambda feeds: list(graph.run(feeds, backend="numpy").values())


JUDGES = {"onnxruntime": _by_onnxruntime, "onnx.reference": _by_reference, "numpy": _by_numpy}

#: Lowest opset to judge by onnx.reference; below it, some ops get their newest meaning.
FIRST_REFERENCE = 15


def judged(case: Any, model: onnx.ModelProto, run: Callable[..., Any]) -> tuple[str, str]:
    """Run a model on the data of the case; returns right, wrong, or not runnable, and the details."""
    names = [info.name for info in model.graph.input]
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            call = run(model)
            found = [call(dict(zip(names, map(_array, inputs), strict=False))) for inputs, _ in case.data_sets]
    except Exception as error:
        return "not run", " ".join(str(error).split())
    try:
        for ours, (_, theirs) in zip(found, case.data_sets, strict=True):
            for one, other in zip(ours, theirs, strict=False):
                _compare(one, _array(other), case)
    except AssertionError as error:
        return "wrong", " ".join(str(error).split())
    return "right", ""


def _array(value: Any) -> Any:
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _compare(ours: Any, theirs: Any, case: Any) -> None:
    if theirs is None or isinstance(theirs, list):
        assert type(ours) is type(theirs), f"{type(ours)} instead of {type(theirs)}"
        for one, other in zip(ours or (), theirs or (), strict=True):
            _compare(one, other, case)
        return
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    if theirs.dtype.isbuiltin == 2 and ours.dtype.itemsize == theirs.dtype.itemsize and ours.dtype.kind == "u":
        ours = ours.view(theirs.dtype)  # onnxruntime returns small floats as integers with their bits
    assert ours.shape == theirs.shape, f"shape {ours.shape} instead of {theirs.shape}"
    if theirs.dtype.kind in "OUST":
        np.testing.assert_array_equal(ours.astype(object), theirs.astype(object))
        return
    assert ours.dtype == theirs.dtype, f"{ours.dtype} instead of {theirs.dtype}"
    if DRAWN.search(case.name):
        return
    rtol, atol = max(case.rtol, HALVES.get(theirs.dtype.name, 0)), case.atol
    if theirs.dtype == np.float32:
        atol = max(atol, ROUNDING * np.max(np.abs(theirs), initial=0, where=np.isfinite(theirs)))
    if theirs.dtype.isbuiltin == 2:  # numpy cannot promote the element types of ml_dtypes
        ours, theirs = ours.astype(np.float32), theirs.astype(np.float32)
    np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol)


# ----- the run --------------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="take every k-th case")
    parser.add_argument("--offset", type=int, default=0, help="begin with this case: runs can divide the work")
    parser.add_argument("--target", type=int, action="append", help="these opsets alone")
    parser.add_argument("--headline", action="store_true", help=f"the opsets {HEADLINE} alone")
    parser.add_argument("--case", default="", help="cases whose name matches this expression")
    parser.add_argument("--upward", action="store_true", help="opsets above the case's own in place of those below")
    parser.add_argument("--list", default="", help="list outcomes of these kinds, separated by commas")
    parser.add_argument("--save", type=Path, help="append the outcomes to this file")
    parser.add_argument("--merge", type=Path, nargs="+", help="run nothing: make the tables of saved files")
    settings = parser.parse_args()
    os.environ["ALLOW_RELEASED_ONNX_OPSET_ONLY"] = "0"  # onnxruntime then runs an opset that it does not promise yet
    targets = settings.target or (HEADLINE if settings.headline else TARGETS)
    if settings.merge:
        lines = [line for path in settings.merge for line in path.read_text().splitlines()]
        outcomes = list({o[:3]: o for o in (Outcome(*json.loads(line)) for line in lines)}.values())
    else:
        chosen = [c for c in list(node_cases())[settings.offset :: settings.every] if re.search(settings.case, c.name)]
        pairs = ((case, target) for case in chosen for target in targets if target != own_opset(case))
        outcomes = [attempt(*pair) for pair in pairs if (pair[1] > own_opset(pair[0])) == settings.upward]
    if settings.save:
        with settings.save.open("a") as stream:
            stream.writelines(json.dumps(outcome) + "\n" for outcome in outcomes)
    for o in outcomes:
        if o.kind in settings.list.split(","):
            print(f"{o.kind}: {o.case} {o.own} -> {o.target}: {o.detail[:400]}")
    _report(outcomes, targets)


def _report(outcomes: list[Outcome], targets: Iterable[int]) -> None:
    rows = []
    for target in (*targets, "all"):
        chosen = [o for o in outcomes if target in ("all", o.target)]
        if not chosen:
            continue
        kinds = Counter(o.kind for o in chosen)
        judges = Counter(o.judge for o in chosen if o.kind == "right")
        emitted = len(chosen) - kinds["refused"] - kinds["failed"]
        counts = [
            emitted,
            *(judges[judge] for judge in JUDGES),
            kinds["not compared"],
            sum(o.rewritten for o in chosen),
        ]
        failures = [kinds["refused"], kinds["invalid"], kinds["wrong"], kinds["failed"]]
        rows.append([target, *(f"{n:,}" for n in (len(chosen), *counts, *failures))])
    columns = ["target", "tried", "emitted", *(f"right by {judge}" for judge in JUDGES), "not compared", "rewritten"]
    table(
        f"Node cases to other opsets ({len({o.case for o in outcomes}):,} cases)",
        [*columns, "refused", "invalid", "wrong", "failed"],
        rows,
    )
    table(
        "Why refused",
        ["reason", "pairs"],
        Counter(reason(o.detail) for o in outcomes if o.kind == "refused").most_common(),
    )


def reason(detail: str) -> str:
    """The kind of a refusal."""
    return next((kind for kind, words in REASONS if re.search(words, detail)), "other")


if __name__ == "__main__":
    main()
