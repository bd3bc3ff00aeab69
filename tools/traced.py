"""Run a command under ``strace``, and report the files that it wrote or read in a folder, and its connections.

    python tools/traced.py --allow /tmp/own --read models -- python -m tenonnx inspect models/model.keras

strace sees native code too, unlike an audit hook of Python. The exit code is 1 if the command opened a file outside
the allowed folders for writing, connected an internet socket, or started a program other than this Python. With
``--read`` it is also 1 if the command read a file outside those folders, this Python, and the system's libraries and
settings.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

#: Device files and files of the kernel, which every process writes.
_HARMLESS = ("/dev/", "/proc/self/", "/sys/kernel/")

_CALL = re.compile(r"^(?:\[?(?:pid\s+)?\d+\]?\s+)?(?P<call>\w+)\((?P<arguments>.*)$")
_PATH = re.compile(r'(?:(?:\d+|AT_FDCWD)<(?P<folder>[^>]*)>, )?"(?P<path>(?:[^"\\]|\\.)*)"')
_CHANGES = frozenset({"unlink", "unlinkat", "rename", "renameat", "renameat2", "mkdir", "mkdirat", "rmdir"})
_WRITES = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_APPEND")


def findings(
    lines: Iterable[str], allowed: Sequence[str], programs: Sequence[str], readable: Sequence[str] = ()
) -> list[str]:
    """Forbidden actions in the output of strace. Failed calls do not count; reads only count with ``readable``."""
    found: dict[str, None] = {}
    for line in _whole(lines):
        match = _CALL.match(line)
        if match is None or re.search(r"= -1 E\w+", line):
            continue
        call, path = match["call"], _PATH.search(match["arguments"])
        name = "" if path is None else os.path.join(path["folder"] or "", path["path"])  # noqa: PTH118
        inside = name.startswith((*_HARMLESS, *allowed))
        if call in ("open", "openat", "creat") and _WRITES.search(line) and not inside:
            found[f"wrote {name}"] = None
        elif call in ("open", "openat") and readable and not inside and _is_outside(name, readable):
            found[f"read {name}"] = None
        elif (
            call in ("unlink", "unlinkat", "rename", "renameat", "renameat2", "mkdir", "mkdirat", "rmdir")
            and not inside
        ):
            found[f"{call} {name}"] = None
        elif call == "connect" and "AF_INET" in line:
            found[f"connected {match['arguments'][:80]}"] = None
        elif call == "execve" and name not in programs:
            found[f"started {name}"] = None
    return list(found)


def _whole(lines: Iterable[str]) -> Iterator[str]:
    """Join calls that strace printed in two parts, since another process interrupted them."""
    begun: dict[str, str] = {}
    for line in lines:
        process = line.split(None, 1)[0] if line else ""
        if line.endswith("<unfinished ...>"):
            begun[process] = line.removesuffix("<unfinished ...>")
        elif " resumed>" in line and process in begun:
            yield begun.pop(process) + line.partition(" resumed>")[2]
        else:
            yield line
    yield from begun.values()


def _is_outside(name: str, folders: Sequence[str]) -> bool:
    """Whether a file is outside all folders. Relative paths are inside, unless they contain ``..``."""
    path = os.path.normpath(os.path.join(os.getcwd(), name))  # noqa: PTH109, PTH118 - a name of any system call
    return not any(path == folder or path.startswith(f"{folder}{os.sep}") for folder in folders)


def _of_python(command: str) -> list[str]:
    """Folders of the traced interpreter, and of the system's libraries and settings."""
    code = "import sys, sysconfig; print(*sys.path, sys.prefix, sys.base_prefix, sys.exec_prefix, sep='\\n')"
    done = subprocess.run([command, "-c", code], capture_output=True, text=True, check=False)  # noqa: S603
    listed = done.stdout.split("\n")
    system = ["/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/etc/localtime", "/etc/ssl", "/proc", "/sys"]
    return [*system, *(os.path.realpath(each) for each in listed if each), *(each for each in listed if each)]


def traced(
    command: Sequence[str], allowed: Sequence[str], readable: Sequence[str] = (), programs: Sequence[str] = ()
) -> tuple[list[str], int]:
    """Run a command; returns its forbidden actions and its exit code. Raises ``FileNotFoundError`` without strace."""
    tracer = shutil.which("strace")
    if tracer is None:
        raise FileNotFoundError("strace is not installed")
    own = [command[0], shutil.which(command[0]) or "", sys.executable, os.path.realpath(sys.executable)]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        kinds = "trace=open,openat,creat,unlink,unlinkat,rename,renameat,renameat2,mkdir,mkdirat,rmdir,connect,execve"
        done = subprocess.run([tracer, "-f", "-y", "-s", "400", "-e", kinds, "-o", str(log), *command], check=False)  # noqa: S603
        lines = log.read_text("utf-8", "replace").splitlines()
    may_read = [*readable, *map(os.path.realpath, readable), *_of_python(command[0])] if readable else []
    return findings(lines, allowed, [*programs, *own], may_read), done.returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--allow", action="append", default=[], help="a folder that may be written")
    parser.add_argument("--read", action="append", default=[], help="a folder that may be read; others may not")
    parser.add_argument("--program", action="append", default=[], help="a program that may be started")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    command = given.command[1:] if given.command[:1] == ["--"] else given.command
    if not command:
        parser.error("no command")
    try:
        found, code = traced(command, given.allow, given.read, given.program)
    except FileNotFoundError as error:
        parser.error(str(error))
    for each in found:
        sys.stdout.write(f"{each}\n")
    return 1 if found else min(code, 1)


if __name__ == "__main__":
    sys.exit(main())
