"""Looking at packages from a child process, which one of them may end or keep busy for ever."""

from __future__ import annotations

import json
import os
import select
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tenonnx_cli.output import attending, complain

if TYPE_CHECKING:
    from tenonnx.tools import Plugin

#: Seconds that one package may take to load.
LONGEST = 30.0

Row = dict[str, Any]
Found = tuple[list[Row], list[str]]


def survived(look: Callable[[], Found], row: Callable[[Plugin, str, str], Row]) -> Found:
    """What ``look`` finds, with a row for each plugin of a package that it did not survive, which is left out of it."""
    if not hasattr(os, "fork"):
        return look()
    hurtful: dict[str, str] = {}
    while True:
        found, doing, why = _in_a_child(look)
        if found is not None:
            return _with_rows(found, hurtful, row)
        source = doing.rpartition(" ")[0].rpartition(" ")[2]
        if not source or source in hurtful:
            raise RuntimeError(f"a package {why} while {doing or 'plugins were listed'}")
        hurtful[source] = f"{doing}: it {why}; leave it out with TENONNX_PLUGINS=-{source}"
        os.environ["TENONNX_PLUGINS"] = ",".join(filter(None, [os.environ.get("TENONNX_PLUGINS"), f"-{source}"]))


def _with_rows(found: Found, hurtful: dict[str, str], row: Callable[[Plugin, str, str], Row]) -> Found:
    rows, problems = found
    for each in rows:
        if each["package"] in hurtful:
            each |= {"status": "failed", "reason": hurtful[each["package"]]}
    return rows, [*hurtful.values(), *problems]


def _in_a_child(look: Callable[[], Found]) -> tuple[Found | None, str, str]:
    """What ``look`` finds in a child; or nothing, what was being done when the child ended, and how it did."""
    read, write = os.pipe()
    with warnings.catch_warnings(action="ignore"):  # of threads, of which none of ours is at work here
        process = os.fork()
    if not process:
        os.close(read)
        _child(look, write)
    os.close(write)
    doing, since, buffer = "", time.monotonic(), b""
    found: Found | None = None
    status: int | None = None
    try:
        while status is None:
            ended, code = os.waitpid(process, os.WNOHANG)
            status = code if ended else None
            while select.select([read], [], [], 0.0 if ended else 0.2)[0] and (chunk := os.read(read, 1 << 16)):
                *lines, buffer = (buffer + chunk).split(b"\n")
                for line in lines:
                    told = json.loads(line)
                    if isinstance(told, str):
                        doing, since = told, time.monotonic()
                    else:
                        found = told[0], told[1]
            if status is None and doing and time.monotonic() - since > LONGEST:
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
                return None, doing, f"did not end within {LONGEST:.0f} seconds"
    except KeyboardInterrupt as error:
        if doing:
            error.add_note(f"interrupted while {doing}")
        raise
    finally:
        os.close(read)
    return found, doing, f"ended the process with {_exit(os.waitstatus_to_exitcode(status))}"


def _exit(code: int) -> str:
    return f"code {code}" if code >= 0 else signal.Signals(-code).name


def _child(look: Callable[[], Found], write: int) -> None:
    """Look, and tell through the pipe what is being done, and at last what was found."""
    from tenonnx.tools import Attendants

    def tell(what: Any) -> None:
        os.write(write, json.dumps(what).encode() + b"\n")

    @contextmanager
    def telling(doing: str) -> Iterator[None]:
        tell(doing)
        with attending(doing):
            yield
        tell("")

    end = os._exit
    try:
        Attendants.attend = telling
        found = look()
        with os.fdopen(write, "wb") as pipe:
            pipe.write(json.dumps(found).encode() + b"\n")
    except KeyboardInterrupt:
        end(130)
    except Exception as error:
        complain(f"{type(error).__name__}: {error}")
        end(1)
    finally:
        end(0)
