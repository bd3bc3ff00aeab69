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


def watching(read: Callable[[], Any], put_back: Callable[[Any, Any], object], told: Callable[[Any, Any], str]) -> Watch:
    """Watches what ``read`` gives: where ``told`` has something to say of it before and behind, it is put back."""

    def watch() -> Callable[[], str]:
        before = read()

        def put_right() -> str:
            after = read()
            text = "" if after == before else told(before, after)
            if text:
                put_back(before, after)
            return text

        return put_right

    return watch


def _working_folder() -> str:
    try:
        return str(Path.cwd())
    except OSError:
        return ""


def _limits() -> limits.Limits | None:
    try:
        return limits.of_process()
    except InvalidCall:  # who asks for a limit is told
        return None


def _settings() -> dict[str, str]:
    return {name: text for name, text in os.environ.items() if name.startswith("TENONNX_")}


def _put_settings_back(before: dict[str, str], after: dict[str, str]) -> None:
    for name in after.keys() - before:
        del os.environ[name]
    os.environ.update(before)


def _errors_of_all(before: list[Any], after: list[Any]) -> str:
    new = [entry for entry in after if entry not in before]
    all_raise = any(entry[0] == "error" and entry[1] is None and entry[3] is None for entry in new)
    return "it made warnings of every module errors" if all_raise else ""


def _numpy_errors() -> dict[str, str]:
    numpy = sys.modules.get("numpy")
    return numpy.geterr() if numpy is not None and hasattr(numpy, "geterr") else {}


#: What must be after code of a package as it was before.
WATCHES: list[Watch] = [
    watching(
        _working_folder,
        lambda before, after: os.chdir(before),
        lambda before, after: before and f"it changed the working folder to {after or 'one that is gone'}",
    ),
    watching(
        sys.getrecursionlimit,
        lambda before, after: sys.setrecursionlimit(before),
        lambda before, after: f"it lowered the recursion limit to {after}" if after < before else "",
    ),
    watching(
        _limits,
        lambda before, after: limits.set(**before._asdict()),
        lambda before, after: before and "it changed the limits of tenonnx",
    ),
    watching(
        _settings,
        _put_settings_back,
        lambda before, after: f"it changed {', '.join(sorted({name for name, _ in before.items() ^ after.items()}))}",
    ),
    watching(
        lambda: list(warnings.filters),
        lambda before, after: warnings.filters.__setitem__(slice(None), before),  # type: ignore[index]
        _errors_of_all,
    ),
    watching(
        _numpy_errors,
        lambda before, after: sys.modules["numpy"].seterr(**{kind: before.get(kind, "warn") for kind in after}),
        lambda before, after: "it made numpy raise errors" * ("raise" in {*after.values()} - {*before.values()}),
    ),
]
