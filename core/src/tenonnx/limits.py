"""Limits of memory, size and work for every model; errors name the limit that they exceed.

    with tenonnx.limits.override(elements=1 << 32):
        graph = tenonnx.load("sparse.onnx")

``set`` changes a limit for the whole process, and so does the environment: ``TENONNX_LIMIT_ELEMENTS=4294967296``.
Limits hold before memory is taken. They do not count what a file or a caller has brought along.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from tenonnx.errors import InvalidCall, LimitExceeded, OutOfTime, did_you_mean

_ENVIRONMENT = "TENONNX_LIMIT_"


class Limits(NamedTuple):
    """One set of limits. Each is the most that is allowed."""

    #: Elements of one tensor, window or image whose size a file chooses freely.
    elements: int = 1 << 28
    #: Entries of one list of sizes, axes or parts, and so also dims and outputs.
    entries: int = 1 << 16
    #: Bodies and functions that one piece of work expands or infers.
    nodes: int = 1 << 14
    #: Subgraphs, bodies and functions inside each other.
    depth: int = 64
    #: Steps of the automaton that a regular expression becomes.
    pattern: int = 10_000
    #: Seconds that ``onnx.checker`` may take over a model, and its own runtime, in all, to verify what was read.
    seconds: int = 60
    #: Bytes that one piece of work may take for what a model makes: text, sequences, and all tensors together.
    memory: int = 1 << 32
    #: Elements that a verification may compute, where each call of a kernel counts as 128 more.
    work: int = 1 << 27


_override: ContextVar[Limits | None] = ContextVar("tenonnx_limits", default=None)
_process: Limits | None = None


def current() -> Limits:
    """The limits that hold here. Raises ``InvalidCall`` where the environment sets one that is none."""
    return _override.get() or of_process()


def of_process() -> Limits:
    """The limits of the whole process. Raises as ``current``."""
    global _process
    if _process is None:
        given = {name: os.environ.get(_ENVIRONMENT + name.upper()) for name in Limits._fields}
        _process = _changed(Limits(), {name: _number(name, text) for name, text in given.items() if text})
    return _process


def set(**limits: int) -> None:
    """Change limits for the whole process. Raises ``InvalidCall`` for a limit that there is not."""
    global _process
    _process = _changed(of_process(), limits)


@contextmanager
def override(**limits: int) -> Iterator[Limits]:
    """Other limits inside, in this thread or task alone. Raises ``InvalidCall`` for a limit that there is not."""
    token = _override.set(_changed(current(), limits))
    try:
        yield current()
    finally:
        _override.reset(token)


def check(name: str, amount: int, what: str) -> None:
    """Raise ``LimitExceeded`` unless ``what`` may take that amount."""
    allowed: int = getattr(current(), name)
    if amount > allowed:
        raise LimitExceeded(
            f'{what} exceeds the limit "{name}"',
            given=f"{amount:,}" if amount < 1 << 80 else "a number of more than 24 digits",
            available=f"{name} up to {allowed:,}",
            do=f"where you trust the model, raise it: tenonnx.limits.set({name}=...), or {_ENVIRONMENT}{name.upper()}",
        )


def check_elements(dims: Iterable[Any], what: str) -> None:
    """Raise ``LimitExceeded`` unless a tensor of these dims may be made; those that are not known count as 1."""
    elements = 1
    for dim in dims:
        elements *= max(int(dim), 0) if hasattr(dim, "__int__") else 1
    check("elements", elements, what)


def sized(dims: Sequence[Any], what: str) -> tuple[int, ...]:
    """``dims`` as the shape of an array that is about to be made. Raises as ``check_elements``."""
    check_elements(dims, what)
    return tuple(int(dim) for dim in dims)


# ----- memory ---------------------------------------------------------------------------------------------------------

#: What an element of a sequence or map is counted as beside its contents: the time that it costs, too, is held so.
ELEMENT = 1 << 12

#: What a text is counted as beside its characters.
TEXT = 1 << 6

#: Resident memory is checked each time that so many bytes were allocated.
_STEP = 1 << 26

#: Of the piece of work at hand: bytes made since the last look, the bytes of the process at the first (-1 ahead of
#: it), and the bytes that it may grow by.
_growth: ContextVar[list[int] | None] = ContextVar("tenonnx_growth", default=None)


def text_bytes(texts: Iterable[Any]) -> int:
    """The bytes that texts take, and what they are counted as beside."""
    return sum(TEXT + sys.getsizeof(text) for text in texts)


def check_memory(amount: int, what: str) -> None:
    """Raise ``LimitExceeded`` unless ``what``, of so many bytes, may be made. Call it before it is."""
    check("memory", amount, what)
    made(amount)


@contextmanager
def budget(brought: int = 0) -> Iterator[None]:
    """Let all that is made inside share one budget of ``memory``; within another's, that one's.

    ``brought`` are the bytes that a caller has brought along.
    """
    if _growth.get() is not None:
        yield
        return
    token = _growth.set([0, -1, current().memory + 4 * brought])
    try:
        yield
    finally:
        _growth.reset(token)


def made(amount: int) -> None:
    """Count bytes that were made. Raises ``LimitExceeded`` where the process has grown by more than ``memory``."""
    state = _growth.get()
    if state is None:
        return
    state[0] += amount
    if state[0] < _STEP:
        return
    state[0] = 0
    now = resident()
    if state[1] < 0:
        state[1] = now
    grown = now - state[1]
    if grown > state[2]:
        raise too_much(grown, state[2])


def too_much(grown: int, allowed: int) -> LimitExceeded:
    """The error of work that took more memory than it may."""
    return LimitExceeded(
        'the values of the model exceed the limit "memory" in total',
        given=f"{grown:,} bytes",
        available=f"{allowed:,}: memory, and four times what was brought along",
        do=f"where you trust the model, raise it: tenonnx.limits.set(memory=...), or {_ENVIRONMENT}MEMORY",
    )


def resident(process: int | str = "self") -> int:
    """The bytes of memory that a process has, but for files that are mapped; 0 where the system does not say."""
    try:
        with open(f"/proc/{process}/statm", "rb") as file:  # noqa: PTH123 - it is asked often
            _, whole, shared, *_ = file.read().split()
    except (OSError, ValueError):
        return 0
    return (int(whole) - int(shared)) * _PAGE


_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


# ----- work -----------------------------------------------------------------------------------------------------------

#: So many more calls than expansions are allowed, since most calls in a body are of primitives.
_CALLS = 4

#: What the piece of work at hand has expanded, how deep it is, and how many calls that made.
_work: ContextVar[list[int] | None] = ContextVar("tenonnx_work", default=None)


@contextmanager
def work(allowance: int = 0, *, apart: bool = False) -> Iterator[None]:
    """Let all that is expanded inside share one budget of ``nodes``; within other work, that one's unless ``apart``.

    ``allowance`` comes on top: what the size of the work that a caller has brought along justifies.
    """
    if _work.get() is not None and not apart:
        yield
        return
    token = _work.set([-allowance, 0, -allowance * _CALLS])
    try:
        with budget():
            yield
    finally:
        _work.reset(token)


@contextmanager
def expanding(title: str) -> Iterator[None]:
    """Count one expansion, one level deeper. Raises ``LimitExceeded`` beyond ``nodes`` or ``depth``."""
    with work():
        state = _work.get()
        assert state is not None
        state[0] += 1
        state[1] += 1
        try:
            check("nodes", state[0], f"what {title} stands for, with all that is expanded beside it,")
            check("depth", state[1], f"the body of {title}, with the bodies around it,")
            yield
        finally:
            state[1] -= 1


def calling(title: str) -> None:
    """Count one call that a piece of work makes: a body may go round as often as an attribute says.

    Raises ``LimitExceeded`` beyond ``nodes``, and ``OutOfTime``.
    """
    check_time()
    state = _work.get()
    if state is not None:
        state[2] += 1
        if state[2] > current().nodes:
            check("nodes", state[2], f"the number of calls of {title} and of the calls around it")


# ----- time -----------------------------------------------------------------------------------------------------------

#: When the run at hand has to end, by the monotonic clock.
_end: ContextVar[float | None] = ContextVar("tenonnx_end", default=None)


@contextmanager
def within(seconds: float | None) -> Iterator[None]:
    """Let what runs inside end within so many seconds, and no later than what is around it; None adds no limit."""
    if seconds is None:
        yield
        return
    ends, outer = time.monotonic() + seconds, _end.get()
    token = _end.set(ends if outer is None else min(ends, outer))
    try:
        yield
    finally:
        _end.reset(token)


def end() -> float | None:
    """Deadline of the current run, by the monotonic clock."""
    return _end.get()


def check_time() -> None:
    """Raise ``OutOfTime`` where the run at hand should have ended."""
    end = _end.get()
    if end is not None and time.monotonic() > end:
        raise out_of_time()


def out_of_time() -> OutOfTime:
    """The error of a run that came to its deadline."""
    return OutOfTime("the run did not end within its deadline", do="compile with a longer one: deadline=seconds")


# ----- settings -------------------------------------------------------------------------------------------------------


def _number(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 30:
        raise InvalidCall(f"{_ENVIRONMENT}{name.upper()} is not a positive number in digits", given=repr(text[:40]))
    return int(text)


def _changed(limits: Limits, given: dict[str, int]) -> Limits:
    unknown = [name for name in given if name not in Limits._fields]
    if unknown:
        do = did_you_mean(unknown[0], Limits._fields)
        raise InvalidCall("unknown limit", given=", ".join(unknown), available=", ".join(Limits._fields), do=do)
    wrong = [name for name, value in given.items() if not isinstance(value, int) or value < 1]
    if wrong:
        raise InvalidCall("a limit is not a positive integer", given=f"{wrong[0]}={given[wrong[0]]!r}")
    return limits._replace(**given)
