"""Causes of failures on which other checks rest: state kept between calls, and wrong numpy rules."""

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

#: Checks that compare the numpy rule with the body themselves, or call the op twice.
_THEMSELVES = (
    "numpy=body",
    "special values",
    "empty axes",
    "many elements",
    "specialized",
    "layout",
    "repeated",
    "other attributes",
)

#: A gap of these says that the numpy rule may differ from the body, or from itself.
_DIFFERS = ("numpy=body", "special values", "variations", "repeated")

#: Other inputs of the same types are so far away.
ASIDE = 0.01


def cause_of(check: str, case: Case, drawn: Call, failure: Failure) -> Failure:
    """Return the failure of what a failed check rests on; the failure itself where all of that holds."""
    if check in _THEMSELVES or any(gap.check in _DIFFERS for gap in case.gaps):
        return failure
    there = failure.call or drawn
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rests_on_right_rules(case, [*dict.fromkeys((drawn, there)), _aside(there)])
    except Failure as cause:
        return _instead(cause, check, failure)
    except TenonnxError as error:
        foreign = error.__cause__
        if foreign is None or isinstance(foreign, TenonnxError) or failure.call is not None:
            return failure  # of a call that the op refuses nothing can be told
        raised = Failure(f"the body of {case.op.title} raised {type(foreign).__name__}: {foreign}")
        raised.__cause__ = foreign
        return _instead(raised, check, failure)
    except Exception:
        return failure
    return failure


def _instead(cause: Failure, check: str, failure: Failure) -> Failure:
    """The cause with what the failure tells beside it."""
    if str(cause) != str(failure):
        cause.add_note(f'therefore the check "{check}" fails, too: {failure}')
    for note in getattr(failure, "__notes__", ()):
        cause.add_note(note)
    cause.call = failure.call
    return cause


def line_of(op: Op, error: BaseException) -> str:
    """The last line of the op's own files that an error passed through; nothing where it has none."""
    functions = [each for each in (op.function, *op.rules.values()) if isinstance(each, FunctionType)]
    files = {each.__code__.co_filename for each in functions}
    found: list[traceback.FrameSummary] = []
    chain: BaseException | None = error
    while chain is not None:
        found += [frame for frame in traceback.extract_tb(chain.__traceback__) if frame.filename in files]
        chain = chain.__cause__
    return f"{found[-1].filename}:{found[-1].lineno}: {found[-1].line}" if found else ""


def rests_on_right_rules(case: Case, calls: Iterable[Call]) -> None:
    """Raise ``Failure`` where the op keeps something between calls, or its numpy rule differs from its body."""
    for there in calls:
        if is_random(case.op, there):
            return
        given = evaluate(case.op, there)
        expected = copy.deepcopy(given)
        expect_new(case.op.title, there, evaluate(case.op, there), given)
        gives_the_same_again(case, there, expected)
        if not case.op.primitive and find_rule(case.op, "numpy") is not None:
            by_body = evaluate(case.op, there, body_of=case.op)
            kinds = " and ".join(_floats(there))
            expect(case, there, "its body" + (f" in {kinds}" if kinds else ""), present(by_body), present(expected))


def _aside(drawn: Call) -> Call:
    """The call with other floats."""
    with np.errstate(all="ignore"):
        return replace(drawn, inputs=tuple(v + v.dtype.type(ASIDE) if _is_float(v) else v for v in drawn.inputs))


def _floats(drawn: Call) -> Iterator[str]:
    yield from dict.fromkeys(str(DType.of(v.dtype)) for v in drawn.inputs if _is_float(v))


def _is_float(contents: object) -> bool:
    return isinstance(contents, np.ndarray) and contents.dtype != object and DType.of(contents.dtype).is_float
