"""Kill a run or a worker with kill -9 at many moments; the output must be complete after resuming.

``python plugins/apps/score/benchmarks/kills.py --places 20`` kills each 20 times and prints the outcomes. A place is
the call or return of one of the package's functions, counted from the start of the process.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

import tenonnx as tx
import tenonnx_standard as ops

ROWS, PARTS = 8000, 8
ROLES = ("driver", "worker")

#: Start-up code of each process of a run: counts calls, and kills the process at one of them, once.
_HOOK = """
import itertools, os, signal, sys, threading
role, place, armed, counted = (os.environ["KILL_" + name] for name in ("ROLE", "PLACE", "ARMED", "COUNTED"))
if role == ("worker" if "tenonnx_score.engines.worker" in sys.orig_argv else "driver"):
    numbers = itertools.count(1)
    def count(frame, event, argument):
        if event in ("call", "return") and "tenonnx_score" in frame.f_code.co_filename:
            number = next(numbers)
            if number % 50 == 0 and place == "0":
                with open(f"{counted}.{os.getpid()}", "w") as file:
                    file.write(str(number))
            if number == int(place):
                try:
                    os.unlink(armed)
                except FileNotFoundError:
                    return
                os.kill(os.getpid(), signal.SIGKILL)
    sys.setprofile(count)
    threading.setprofile(count)
"""


class Runs:
    """Runs of one model on one table, in a separate folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        graph = tx.Graph(opsets={"ai.onnx": 17})
        graph.output("y", ops.reduce_sum(graph.input("x", "float32", ("rows", 4)), [1], keepdims=0))
        tx.export(graph, folder / "model.onnx")
        draw = np.random.default_rng(5)
        rows = {"id": np.arange(ROWS), **{name: draw.standard_normal(ROWS) for name in "abcd"}}
        rows["a"][::1001] = 1e300  # a few bad rows
        parquet.write_table(pa.table(rows), folder / "t.parquet", row_group_size=ROWS // PARTS)
        (folder / "hook").mkdir()
        (folder / "hook" / "sitecustomize.py").write_text(_HOOK)
        self.expected = self._bits(self._run("expected"))

    def places(self, role: str, count: int) -> list[int]:
        """Places distributed evenly over a process of a run, in which either process may do most of the work."""
        self._run(f"counted-{role}", role=role, place=0)
        counts = [int(path.read_text()) for path in self.folder.glob(f"counted-{role}.count.*")]
        last = sum(counts) // len(counts)
        return [max(last * k // (count + 1), 1) for k in range(1, count + 1)]

    def killed(self, role: str, place: int) -> str:
        """Kill a process of a run and resume the run; returns the problem, or an empty string."""
        name = f"killed-{role}-{place}"
        (self.folder / f"{name}.armed").touch()
        found = self._run(name, role=role, place=place)
        if (self.folder / f"{name}.armed").exists():
            return "nothing was killed"
        if role == "worker" and found.returncode:
            return f"the run ended with {found.returncode}: {found.stderr[-300:]}"
        if role == "driver":
            if found.returncode != -9:
                return f"the run was not killed: {found.returncode}"
            found = self._run(name)
            if found.returncode:
                return f"the run did not go on: {found.stderr[-300:]}"
        problem = "" if self._bits(found) == self.expected else "the output is another"
        left = [path.name for path in (self.folder / name).rglob("*.tmp")]
        return problem or (f"{left} was left behind" if left else "")

    def _run(self, name: str, role: str = "", place: int = 0) -> subprocess.CompletedProcess[str]:
        environment = dict(os.environ)
        if role:
            variables = {"ROLE": role, "PLACE": str(place), "ARMED": f"{self.folder / name}.armed"}
            variables["COUNTED"] = f"{self.folder / name}.count"
            environment |= {f"KILL_{key}": value for key, value in variables.items()}
            environment["PYTHONPATH"] = str(self.folder / "hook")
        program = "import sys; from tenonnx_cli import main; sys.exit(main(sys.argv[1:]))"
        options = ["--keep", "id", "--on", "local:2", "--batch-size", "50", "--part-rows", str(ROWS // PARTS)]
        files = [str(self.folder / each) for each in ("model.onnx", "t.parquet", name)]
        command = [sys.executable, "-c", program, "score", files[0], "--input", files[1], "-o", files[2], *options]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
        done.args = name
        return done

    def _bits(self, run: subprocess.CompletedProcess[str]) -> dict[str, bytes]:
        files = (self.folder / run.args).rglob("*part-*")
        return {path.name: path.read_bytes() for path in files}

    def whole(self) -> Any:
        """The row numbers of an uninterrupted run."""
        return parquet.read_table(self.folder / "expected")["id"].to_numpy()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--places", type=int, default=20)
    places = parser.parse_args().places
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(Path(folder))
        for role in ROLES:
            found = {place: runs.killed(role, place) for place in runs.places(role, places)}
            wrong += sum(map(bool, found.values()))
            print(
                f"{role}: killed at {len(found)} places, whole after {sum(not problem for problem in found.values())}"
            )
            for place, problem in found.items():
                if problem:
                    print(f"  {place}: {problem}")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
