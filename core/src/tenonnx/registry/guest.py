"""What code of a package may not do to the process that runs it: it is told, and put right where that can be.

    with guarded("loading acme 1.0"):
        import_module("acme")

raises ``Trespass`` where the package would have ended the process, raised a KeyboardInterrupt of its own, or left
behind another working folder, registry, limit ... than there was.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from tenonnx import limits
from tenonnx.errors import InvalidCall

#: Called ahead of code of a package; what it gives is called behind it, puts right what was changed, and says what.
Watch = Callable[[], Callable[[], str]]

#: Functions that end the process at once, so that nobody could say which package called them.
_ENDS = ("_exit", "abort", "execv", "execve")


class Trespass(Exception):
    """What a package did that is not its own to do."""


class _End(BaseException):
    """A package would have ended the process."""


class Attendants:
    """What the program at work does while code of a package runs, which is told what that is."""

    attend: Callable[[str], AbstractContextManager[None]] = staticmethod(lambda doing: nullcontext())


@contextmanager
def guarded(doing: str) -> Iterator[None]:
    """Run code of a package. Raises ``Trespass``; a Ctrl-C of the user carries a note that says what was running."""
    with Attendants.attend(doing):
        behind = [watch() for watch in WATCHES]
        try:
            with _staying(), _interruptible(doing):
                yield
        except _End as error:
            raise Trespass(str(error)) from error
        finally:
            changed = [told for put_right in behind if (told := put_right())]
        if changed:
            raise Trespass(f"it must leave the process as it was, and {', and '.join(changed)}")


@contextmanager
def _staying() -> Iterator[None]:
    """Let nothing in this thread end the process."""
    here = os.getpid(), threading.get_ident()

    def refusing(name: str, end: Callable[..., Any]) -> Callable[..., Any]:
        def refuse(*arguments: Any) -> Any:
            if (os.getpid(), threading.get_ident()) == here:
                raise _End(f"it called os.{name}{arguments!r:.80}")
            return end(*arguments)

        return refuse

    with ExitStack() as stack:
        for name in _ENDS:
            if (end := getattr(os, name, None)) is not None:
                setattr(os, name, refusing(name, end))
                stack.callback(setattr, os, name, end)
        yield


class _Interrupts:
    """Hears Ctrl-C in the place of Python: to tell it from a KeyboardInterrupt that a package raises by itself."""

    heard = 0

    def __call__(self, number: int, frame: Any) -> None:
        self.heard += 1
        if self.heard > 1:  # the first was caught
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.raise_signal(signal.SIGINT)
        raise KeyboardInterrupt


@contextmanager
def _interruptible(doing: str) -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT) if threading.current_thread() is threading.main_thread() else None
    takes_over = before in (signal.SIG_DFL, signal.default_int_handler)
    interrupts = before if isinstance(before, _Interrupts) else _Interrupts()
    if takes_over:
        signal.signal(signal.SIGINT, interrupts)
    try:
        yield
    except KeyboardInterrupt as error:
        # a background job of a shell ignores Ctrl-C, so that none can have come
        known = takes_over or interrupts is before or before in (None, signal.SIG_IGN)
        if known and not interrupts.heard:
            raise _End("it raised KeyboardInterrupt") from error
        error.add_note(f"interrupted while {doing}")
        raise
    finally:
        if takes_over:
            signal.signal(signal.SIGINT, before)


# ----- what is watched ------------------------------------------------------------------------------------------------


def _folder() -> Callable[[], str]:
    before = _working_folder()

    def put_right() -> str:
        after = _working_folder()
        if after == before or not before:
            return ""
        os.chdir(before)
        return f"it changed the working folder to {after or 'one that is gone'}"

    return put_right


def _working_folder() -> str:
    try:
        return str(Path.cwd())
    except OSError:
        return ""


def _recursion() -> Callable[[], str]:
    before = sys.getrecursionlimit()

    def put_right() -> str:
        after = sys.getrecursionlimit()
        if after >= before:
            return ""
        sys.setrecursionlimit(before)
        return f"it lowered the recursion limit to {after}"

    return put_right


def _limits() -> Callable[[], str]:
    try:
        before = limits.of_process()
    except InvalidCall:  # who asks for a limit is told
        return lambda: ""

    def put_right() -> str:
        after = limits.of_process()
        if after == before:
            return ""
        limits.set(**before._asdict())
        return "it changed the limits of tenonnx"

    return put_right


def _settings() -> Callable[[], str]:
    before = {name: text for name, text in os.environ.items() if name.startswith("TENONNX_")}

    def put_right() -> str:
        after = {name: text for name, text in os.environ.items() if name.startswith("TENONNX_")}
        for name in after.keys() - before:
            del os.environ[name]
        os.environ.update(before)
        changed = sorted(name for name in after.keys() | before if after.get(name) != before.get(name))
        return f"it changed {', '.join(changed)}" if changed else ""

    return put_right


def _warnings() -> Callable[[], str]:
    before = list(warnings.filters)

    def put_right() -> str:
        new = [entry for entry in warnings.filters if entry not in before]
        if not any(entry[0] == "error" and entry[1] is None and entry[3] is None for entry in new):
            return ""
        warnings.filters[:] = before  # type: ignore[index]
        return "it made warnings of every module errors"

    return put_right


def _numbers() -> Callable[[], str]:
    before = _numpy_errors()

    def put_right() -> str:
        after = _numpy_errors()
        if "raise" not in set(after.values()) - set(before.values()):
            return ""
        sys.modules["numpy"].seterr(**{kind: before.get(kind, "warn") for kind in after})
        return "it made numpy raise errors"

    return put_right


def _numpy_errors() -> dict[str, str]:
    numpy = sys.modules.get("numpy")
    return numpy.geterr() if numpy is not None and hasattr(numpy, "geterr") else {}


#: What must be after code of a package as it was before.
WATCHES: list[Watch] = [_folder, _recursion, _limits, _settings, _warnings, _numbers]
