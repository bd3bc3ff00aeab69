"""Retargeting the node cases of the onnx package: what is emitted, whether it is legal, and whether it is right.

Every case whose inputs and outputs are tensors goes to every target opset. What is emitted is judged by onnx.checker,
and by onnxruntime with the data and the tolerances of the case.
"""

from __future__ import annotations

import argparse
import io
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
from measure import table
from onnx.backend.test.loader import load_model_tests

import tenonnx as tx
from tenonnx.errors import NotRepresentable

TARGETS = (7, 9, 11, 13, 15, 17, 18, 21, 23, 25, 27)
HEADLINE = (11, 13, 17, 18, 21, 27)

#: The newest version of ai.onnx that this onnxruntime takes.
NEWEST_RUN = 26

#: Outcomes in the order of the table, and what the listing shows of them.
OUTCOMES = ("right", "no oracle", "refused", "invalid", "wrong", "failed")

#: What kind of reason a refusal is, by words of its message; the first that fits.
REASONS = (
    ("element type of an input or output of the graph", r"in the interface|does not exist at"),
    ("element type", r"does not (take|give)"),
    ("negative axis of unknown rank", r"cannot be negative"),
    ("contents or rank not known", r"must be known|has \"[^\"]*\" as an attribute"),
    ("newer attribute or input", r"does not exist at version|has no input|cannot be absent|must be written"),
    ("newer or changed op", r"exists from version|changed at version"),
)


class Outcome(NamedTuple):
    """What became of one case at one target."""

    case: str
    own: int
    target: int
    kind: str
    detail: str = ""

    @property
    def direction(self) -> str:
        return "downward" if self.target < self.own else "upward"


def node_cases() -> Iterator[Any]:
    """The cases with tensors alone, without those that draw at random."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = load_model_tests(kind="node")
    for case in found:
        infos = [*case.model.graph.input, *case.model.graph.output]
        random = any(n.op_type in ("Bernoulli", "RandomUniformLike") for n in _nodes(case.model))
        if _opset(case) and not random and all(info.type.HasField("tensor_type") for info in infos):
            yield case


def _opset(case: Any) -> int:
    return next((entry.version for entry in case.model.opset_import if entry.domain in ("", "ai.onnx")), 0)


def _nodes(model: onnx.ModelProto) -> Iterable[onnx.NodeProto]:
    yield from model.graph.node
    for function in model.functions:
        yield from function.node


def attempt(case: Any, target: int) -> Outcome:
    """Export a case at a target, check it, and run it."""
    own = _opset(case)
    file = io.BytesIO()
    try:
        tx.export(tx.load(case.model), file, opset_version=target)
    except NotRepresentable as error:
        return Outcome(case.name, own, target, "refused", str(error.given or error.what))
    except Exception as error:
        return Outcome(case.name, own, target, "failed", f"export: {type(error).__name__}: {error}")
    model = onnx.load_from_string(file.getvalue())
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception as error:
        return Outcome(case.name, own, target, "invalid", str(error))
    if target > NEWEST_RUN:
        return Outcome(case.name, own, target, "no oracle", f"opset {target}")
    return Outcome(case.name, own, target, *_run(case, file.getvalue()))


def _run(case: Any, file: bytes) -> tuple[str, str]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        return "no oracle", str(error)
    names = [info.name for info in session.get_inputs()]
    for inputs, outputs in case.data_sets:
        feeds = dict(zip(names, (_array(value) for value in inputs), strict=False))
        try:
            found = session.run(None, feeds)
        except Exception as error:
            return "no oracle", f"run: {error}"
        for ours, theirs in zip(found, outputs, strict=False):
            try:
                _compare(ours, _array(theirs), case.rtol, case.atol)
            except AssertionError as error:
                return "wrong", " ".join(str(error).split())
    return "right", ""


def _array(value: Any) -> Any:
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _compare(ours: Any, theirs: Any, rtol: float, atol: float) -> None:
    theirs = np.asarray(theirs)
    if theirs.dtype.isbuiltin == 2 and ours.dtype.itemsize == theirs.dtype.itemsize and ours.dtype.kind == "u":
        ours = ours.view(theirs.dtype)  # onnxruntime gives small floats as their bits
    assert ours.shape == theirs.shape, f"shape {ours.shape} instead of {theirs.shape}"
    if theirs.dtype.kind in "OUST":
        np.testing.assert_array_equal(ours.astype(object), theirs.astype(object))
        return
    assert ours.dtype == theirs.dtype, f"{ours.dtype} instead of {theirs.dtype}"
    if theirs.dtype.isbuiltin == 2:  # numpy cannot promote the element types of ml_dtypes
        ours, theirs = ours.astype(np.float32), theirs.astype(np.float32)
    np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol)


def reason(detail: str) -> str:
    """The kind of reason of a refusal."""
    return next((kind for kind, words in REASONS if re.search(words, detail)), "other")


def _own_kind(outcome: Outcome, untouched: dict[str, str]) -> Outcome:
    """A wrong result that onnxruntime gives for the untouched case as well is not the export's."""
    if outcome.kind == "wrong" and untouched.get(outcome.case) == "wrong":
        return outcome._replace(kind="no oracle", detail=f"wrong as it is, too: {outcome.detail}")
    return outcome


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="take every k-th case")
    parser.add_argument("--offset", type=int, default=0, help="begin with this case: runs can divide the work")
    parser.add_argument("--target", type=int, action="append", help="these opsets alone")
    parser.add_argument("--headline", action="store_true", help=f"the opsets {HEADLINE} alone")
    parser.add_argument("--case", default="", help="cases whose name matches this expression")
    parser.add_argument("--upward", action="store_true", help="also opsets above the case's own")
    parser.add_argument("--list", default="", help="list outcomes of these kinds, separated by commas")
    settings = parser.parse_args()
    targets = settings.target or (HEADLINE if settings.headline else TARGETS)
    listed = settings.list.split(",")
    outcomes = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chosen = [c for c in list(node_cases())[settings.offset :: settings.every] if re.search(settings.case, c.name)]
        for case in chosen:
            untouched: dict[str, str] = {}
            own = _opset(case)
            for target in targets:
                if target == own or (target > own and not settings.upward):
                    continue
                outcome = attempt(case, target)
                if outcome.kind == "wrong":
                    untouched.setdefault(case.name, _run(case, case.model.SerializeToString())[0])
                outcome = _own_kind(outcome, untouched)
                outcomes.append(outcome)
                if outcome.kind in listed:
                    print(f"{outcome.kind}: {case.name} {own} -> {target}: {outcome.detail[:400]}")
    _report(outcomes, targets)


def _report(outcomes: list[Outcome], targets: Iterable[int]) -> None:
    for direction in ("downward", "upward"):
        chosen = [o for o in outcomes if o.direction == direction]
        if not chosen:
            continue
        rows = []
        for target in (*targets, "all"):
            counts = Counter(o.kind for o in chosen if target in ("all", o.target))
            if tried := counts.total():
                emitted = tried - counts["refused"] - counts["failed"]
                share = f"{emitted} ({100 * emitted / tried:.1f} %)"
                rows.append([target, tried, share, *(counts[kind] for kind in OUTCOMES)])
        cases = len({o.case for o in chosen})
        title = {"downward": "lower", "upward": "higher"}[direction]
        table(f"Node cases to {title} opsets ({cases} cases)",
              ["target", "tried", "emitted", *OUTCOMES], rows)  # fmt: skip
        reasons = Counter(reason(o.detail) for o in chosen if o.kind == "refused")
        table(f"Why refused, {direction}", ["reason", "pairs"], reasons.most_common())


if __name__ == "__main__":
    main()
