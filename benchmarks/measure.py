"""Timing of alternating implementations, with the median over the rounds."""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence


def rounds(
    implementations: Mapping[str, Callable[[], object]],
    count: int = 7,
    warmup: int = 1,
    summary: Callable[[Sequence[float]], float] = statistics.median,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Call the implementations in turn; returns the ``summary`` of the seconds of ``count`` calls, without warm-up."""
    times: dict[str, list[float]] = {name: [] for name in implementations}
    for k in range(count + warmup):
        for name, call in implementations.items():
            start = clock()
            call()
            if k >= warmup:
                times[name].append(clock() - start)
    return {name: summary(found) for name, found in times.items()}


def processes(commands: Mapping[str, Sequence[str]], count: int = 9) -> dict[str, tuple[float, float]]:
    """Run processes in turn; returns median seconds and peak memory in MiB of each.

    A first round that is not counted writes bytecode. The peak is only known for commands made by ``python``.
    """
    times: dict[str, list[float]] = {name: [] for name in commands}
    peaks: dict[str, list[float]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory() as bytecode:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode, "PYTHONDONTWRITEBYTECODE": ""}
        for k in range(count + 1):
            for name, command in commands.items():
                seconds, peak = _process(command, environment)
                if k:
                    times[name].append(seconds)
                    peaks[name].append(peak)
    return {name: (statistics.median(times[name]), statistics.median(peaks[name])) for name in commands}


def _process(command: Sequence[str], environment: Mapping[str, str]) -> tuple[float, float]:
    start = time.perf_counter()
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    seconds = time.perf_counter() - start
    peaks = [line.split()[1] for line in done.stdout.splitlines() if line.startswith(PEAK)]
    return seconds, int(peaks[-1]) / 1024 if peaks else math.nan


#: Field of ``/proc/self/status`` with the peak. ``getrusage`` of a child would include the memory of its parent.
PEAK = "VmHWM:"


def python(code: str) -> list[str]:
    """A command that runs ``code`` in a new interpreter and prints its peak memory."""
    peak = f"print(*[line for line in open('/proc/self/status') if line.startswith({PEAK!r})])"
    return [sys.executable, "-c", f"{code}\n{peak}"]


def geometric(values: Sequence[float]) -> float:
    """The geometric mean."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a Markdown table, with a dash for NaN."""
    print(f"\n### {title}\n")
    print("| " + " | ".join(columns) + " |")
    print("| " + " | ".join("---" for _ in columns) + " |")
    for row in rows:
        print("| " + " | ".join(map(_cell, row)) + " |")


def _cell(content: object) -> str:
    if not isinstance(content, float):
        return str(content)
    return "-" if math.isnan(content) else f"{content:.3g}"
