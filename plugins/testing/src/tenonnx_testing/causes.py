"""Root causes of failed checks: state kept between calls, and wrong numpy rules."""

from __future__ import annotations

import copy
import traceback
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from types import FunctionType

import numpy as np

from tenonnx.extend import DType, Op, TenonnxError, find_rule
from tenonnx_testing.cases import Call, Case
from tenonnx_testing.repetition import gives_the_same_again
from tenonnx_testing.run import Failure, evaluate, expect, expect_new, is_random, present

#: Checks that already compare the numpy rule with the body, or call the op twice.
_ROOT_CHECKS = (
    "numpy=body",
    "special values",
    "empty axes",
    "many elements",
    "specialized",
    "layout",
    "repeated",
    "other attributes",
)

#: Checks whose gaps declare that the numpy rule may differ from the body, or between calls.
_RULE_GAPS = ("numpy=body", "special values", "variations", "repeated")

#: Offset of the floats in a second call with the same types.
ASIDE = 0.01


def cause_of(check: str, case: Case, drawn: Call, failure: Failure) -> Failure:
    """Return the failure of a more basic check that explains this one; else the failure itself."""
    if check in _ROOT_CHECKS or any(gap.check in _RULE_GAPS for gap in case.gaps):
        return failure
    call = failure.call or drawn
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rests_on_right_rules(case, [*dict.fromkeys((drawn, call)), _shifted(call)])
    except Failure as cause:
        return _with_notes(cause, check, failure)
    except TenonnxError as error:
        foreign = error.__cause__
        if foreign is None or isinstance(foreign, TenonnxError) or failure.call is not None:
            return failure  # the op rejects the call, so there is no cause to find
        raised = Failure(f"the body of {case.op.title} raised {type(foreign).__name__}: {foreign}")
        raised.__cause__ = foreign
        return _with_notes(raised, check, failure)
    except Exception:
        return failure
    return failure


def _with_notes(cause: Failure, check: str, failure: Failure) -> Failure:
    """Return the cause with notes about the failure that it explains."""
    if str(cause) != str(failure):
        cause.add_note(f'therefore the check "{check}" fails, too: {failure}')
    for note in getattr(failure, "__notes__", ()):
        cause.add_note(note)
    cause.call = failure.call
    return cause


def line_of(op: Op, error: BaseException) -> str:
    """Last line of the op's own files in the traceback of an error; empty if there is none."""
    functions = [each for each in (op.function, *op.rules.values()) if isinstance(each, FunctionType)]
    files = {each.__code__.co_filename for each in functions}
    found: list[traceback.FrameSummary] = []
    chain: BaseException | None = error
    while chain is not None:
        found += [frame for frame in traceback.extract_tb(chain.__traceback__) if frame.filename in files]
        chain = chain.__cause__
    return f"{found[-1].filename}:{found[-1].lineno}: {found[-1].line}" if found else ""


def rests_on_right_rules(case: Case, calls: Iterable[Call]) -> None:
    """Raise ``Failure`` if the op keeps state between calls, or its numpy rule differs from its body."""
    for call in calls:
        if is_random(case.op, call):
            return
        given = evaluate(case.op, call)
        expected = copy.deepcopy(given)
        expect_new(case.op.title, call, evaluate(case.op, call), given)
        gives_the_same_again(case, call, expected)
        if not case.op.primitive and find_rule(case.op, "numpy") is not None:
            by_body = evaluate(case.op, call, body_of=case.op)
            kinds = " and ".join(_floats(call))
            expect(case, call, "its body" + (f" in {kinds}" if kinds else ""), present(by_body), present(expected))


def _shifted(drawn: Call) -> Call:
    """Return the call with its floats shifted by ``ASIDE``."""
    with np.errstate(all="ignore"):
        return replace(drawn, inputs=tuple(v + v.dtype.type(ASIDE) if _is_float(v) else v for v in drawn.inputs))


def _floats(drawn: Call) -> Iterator[str]:
    yield from dict.fromkeys(str(DType.of(v.dtype)) for v in drawn.inputs if _is_float(v))


def _is_float(contents: object) -> bool:
    return isinstance(contents, np.ndarray) and contents.dtype != object and DType.of(contents.dtype).is_float
