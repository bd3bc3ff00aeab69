"""Running a command with its time, and the peak memory of its process tree."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

#: Seconds between two measurements of memory.
EVERY = 0.2

_PSS = re.compile(rb"^Pss:\s+(\d+) kB", re.MULTILINE)


class Watched(NamedTuple):
    """Wall-clock seconds, CPU seconds, peak memory in MiB, and the output."""

    seconds: float
    processor: float
    peak: float
    output: str


def watched(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Watched:
    """Run a command. Raises ``RuntimeError`` with its output if it fails.

    Memory is the proportional set size (PSS), in which shared memory counts once.
    """
    began, before = perf_counter(), _children()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **(environment or {})}
    )
    peaks = [0]
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(EVERY):
            peaks[0] = max(peaks[0], sum(_memory(each) for each in below(process.pid)))

    watch = threading.Thread(target=look)
    watch.start()
    output, _ = process.communicate()
    seconds = perf_counter() - began
    ended.set()
    watch.join()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)}: code {process.returncode}\n{output[-2000:]}")
    return Watched(seconds, _children() - before, peaks[0] / 1024, output)


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def below(process: int) -> Iterator[int]:
    """A process and its descendants."""
    yield process
    try:
        for task in Path(f"/proc/{process}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from below(int(child))
    except OSError:
        pass  # it has ended


def _memory(process: int) -> int:
    try:
        found = _PSS.search(Path(f"/proc/{process}/smaps_rollup").read_bytes())
    except OSError:
        return 0
    return int(found[1]) if found else 0
