"""Limits of memory, size and work that apply to every model; errors name the exceeded limit.

    with tenonnx.limits.override(elements=1 << 32):
        graph = tenonnx.load("sparse.onnx")

``set`` changes a limit for the whole process, and so does an environment variable:
``TENONNX_LIMIT_ELEMENTS=4294967296``. Limits are checked before memory is allocated. Contents of files and of arguments
do not count.
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
    """One set of limits; each is a maximum."""

    #: Elements of one tensor, window or image whose size a model file determines.
    elements: int = 1 << 28
    #: Length of one list of sizes, axes or parts, and thus also the number of dims and outputs.
    entries: int = 1 << 16
    #: Function bodies and local functions expanded or inferred by one operation.
    nodes: int = 1 << 14
    #: Nesting depth of subgraphs, bodies and functions.
    depth: int = 64
    #: States of the automaton that is compiled from a regular expression.
    pattern: int = 10_000
    #: Seconds that ``onnx.checker`` may take for a model, and that the source's own runtime may take to verify an
    #: import.
    seconds: int = 60
    #: Bytes that one operation may allocate for what a model creates: text, sequences, and all tensors together.
    memory: int = 1 << 32
    #: Elements that a verification may compute; each kernel call counts as 128 more.
    work: int = 1 << 27


_override: ContextVar[Limits | None] = ContextVar("tenonnx_limits", default=None)
_process: Limits | None = None


def current() -> Limits:
    """The limits in effect here. Raises ``InvalidCall`` if an environment variable sets an invalid limit."""
    return _override.get() or of_process()


def of_process() -> Limits:
    """The limits of the process. Raises as ``current``."""
    global _process
    if _process is None:
        given = {name: os.environ.get(_ENVIRONMENT + name.upper()) for name in Limits._fields}
        _process = _changed(Limits(), {name: _number(name, text) for name, text in given.items() if text})
    return _process


def set(**limits: int) -> None:
    """Change limits for the process. Raises ``InvalidCall`` for an unknown limit."""
    global _process
    _process = _changed(of_process(), limits)


@contextmanager
def override(**limits: int) -> Iterator[Limits]:
    """Override limits within the block, in this thread or task only. Raises ``InvalidCall`` for an unknown limit."""
    token = _override.set(_changed(current(), limits))
    try:
        yield current()
    finally:
        _override.reset(token)


def check(name: str, amount: int, what: str) -> None:
    """Raise ``LimitExceeded`` if ``amount`` exceeds the limit ``name``; ``what`` names the object."""
    allowed: int = getattr(current(), name)
    if amount > allowed:
        raise LimitExceeded(
            f'{what} exceeds the limit "{name}"',
            given=f"{amount:,}" if amount < 1 << 80 else "a number of more than 24 digits",
            available=f"{name} up to {allowed:,}",
            do=f"where you trust the model, raise it: tenonnx.limits.set({name}=...), or {_ENVIRONMENT}{name.upper()}",
        )


def check_elements(dims: Iterable[Any], what: str) -> None:
    """Raise ``LimitExceeded`` if a tensor of these dims has too many elements; unknown dims count as 1."""
    elements = 1
    for dim in dims:
        elements *= max(int(dim), 0) if hasattr(dim, "__int__") else 1
    check("elements", elements, what)


def sized(dims: Sequence[Any], what: str) -> tuple[int, ...]:
    """``dims`` as the shape of an array to allocate. Raises as ``check_elements``."""
    check_elements(dims, what)
    return tuple(int(dim) for dim in dims)


# ----- memory ---------------------------------------------------------------------------------------------------------

#: Bytes added for each element of a sequence or map beside its contents; this bounds the time of such loops, too.
ELEMENT = 1 << 12

#: Bytes added for each string beside its characters.
TEXT = 1 << 6

#: Resident memory is checked each time that this many bytes were allocated.
_STEP = 1 << 26

#: State of the current memory budget: bytes allocated since the last check, resident bytes at the first check (-1
#: before it), and the bytes that the process may grow by.
_growth: ContextVar[list[int] | None] = ContextVar("tenonnx_growth", default=None)


def text_bytes(texts: Iterable[Any]) -> int:
    """The bytes that strings take, overhead included."""
    return sum(TEXT + sys.getsizeof(text) for text in texts)


def check_memory(amount: int, what: str) -> None:
    """Raise ``LimitExceeded`` if ``what`` of ``amount`` bytes exceeds the memory limit; call it before allocating."""
    check("memory", amount, what)
    count_allocated(amount)


@contextmanager
def budget(brought: int = 0) -> Iterator[None]:
    """Share one budget of ``memory`` among all allocations in the block; a nested block shares the outer budget.

    ``brought`` is the number of bytes in the arguments of the caller.
    """
    if _growth.get() is not None:
        yield
        return
    token = _growth.set([0, -1, current().memory + 4 * brought])
    try:
        yield
    finally:
        _growth.reset(token)


def count_allocated(amount: int) -> None:
    """Count allocated bytes. Raises ``LimitExceeded`` if the process has grown by more than ``memory``."""
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
    """The error for exceeding the memory limit."""
    return LimitExceeded(
        'the values of the model exceed the limit "memory" in total',
        given=f"{grown:,} bytes",
        available=f"{allowed:,}: memory, and four times what was brought along",
        do=f"where you trust the model, raise it: tenonnx.limits.set(memory=...), or {_ENVIRONMENT}MEMORY",
    )


def resident(process: int | str = "self") -> int:
    """Resident memory of a process in bytes, without mapped files; 0 if the system does not report it."""
    try:
        with open(f"/proc/{process}/statm", "rb") as file:  # noqa: PTH123 - it is asked often
            _, whole, shared, *_ = file.read().split()
    except (OSError, ValueError):
        return 0
    return (int(whole) - int(shared)) * _PAGE


_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


# ----- work -----------------------------------------------------------------------------------------------------------

#: The limit of calls is this multiple of the limit of expansions, since most calls in a body are of primitives.
_CALLS = 4

#: State of the current work budget: expansions, their depth, and calls.
_work: ContextVar[list[int] | None] = ContextVar("tenonnx_work", default=None)


@contextmanager
def work(allowance: int = 0, *, apart: bool = False) -> Iterator[None]:
    """Share one budget of ``nodes`` among all expansions in the block and, unless ``apart``, in the enclosing one.

    ``allowance`` is added to the limit: it is proportional to the size of the caller's own input.
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


def count_call(title: str) -> None:
    """Count one call; attributes can make a body repeat many times.

    Raises ``LimitExceeded`` beyond ``nodes``, and ``OutOfTime``.
    """
    check_time()
    state = _work.get()
    if state is not None:
        state[2] += 1
        if state[2] > current().nodes:
            check("nodes", state[2], f"the number of calls of {title} and of the calls around it")


# ----- time -----------------------------------------------------------------------------------------------------------

#: Deadline of the current run, by the monotonic clock.
_end: ContextVar[float | None] = ContextVar("tenonnx_end", default=None)


@contextmanager
def within(seconds: float | None) -> Iterator[None]:
    """Limit the block to this many seconds, or to an earlier deadline that already applies; None adds no limit."""
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
    """Raise ``OutOfTime`` if the current run is past its deadline."""
    end = _end.get()
    if end is not None and time.monotonic() > end:
        raise out_of_time()


def out_of_time() -> OutOfTime:
    """The error of a run past its deadline."""
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
