"""Timing: the contestants in turn, the median of the rounds, ratios within one run."""

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
    contestants: Mapping[str, Callable[[], object]],
    count: int = 7,
    warmup: int = 1,
    summary: Callable[[Sequence[float]], float] = statistics.median,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """The ``summary`` of the seconds of each contestant, called in turn ``count`` times after ``warmup`` calls."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for k in range(count + warmup):
        for name, call in contestants.items():
            start = clock()
            call()
            if k >= warmup:
                times[name].append(clock() - start)
    return {name: summary(found) for name, found in times.items()}


def processes(commands: Mapping[str, Sequence[str]], count: int = 9) -> dict[str, tuple[float, float]]:
    """Median seconds and peak memory in MiB of whole processes, started in turn; the first round does not count.

    It caches the bytecode, where this is not done already. The peak is known of commands made by ``python`` alone.
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


#: How a process says its peak. The kernel's account of a child would count the memory of the parent too.
PEAK = "VmHWM:"


def python(code: str) -> list[str]:
    """The command that runs ``code`` in a fresh interpreter and says its peak memory."""
    peak = f"print(*[line for line in open('/proc/self/status') if line.startswith({PEAK!r})])"
    return [sys.executable, "-c", f"{code}\n{peak}"]


def geometric(values: Sequence[float]) -> float:
    """The geometric mean."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a Markdown table, in which NaN is a dash."""
    print(f"\n### {title}\n")
    print("| " + " | ".join(columns) + " |")
    print("| " + " | ".join("---" for _ in columns) + " |")
    for row in rows:
        print("| " + " | ".join(map(_cell, row)) + " |")


def _cell(content: object) -> str:
    if not isinstance(content, float):
        return str(content)
    return "-" if math.isnan(content) else f"{content:.3g}"
