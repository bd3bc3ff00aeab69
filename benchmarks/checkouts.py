"""Processor time of this checkout compared with another one, each in its own environment.

    git worktree add ../before COMMIT && (cd ../before && uv sync)
    python benchmarks/checkouts.py ../before [NAME ...]

Programs are timed from the start of the process, or after their setup if they have one. The checkouts alternate, and
the minimum of each counts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import onnx
from measure import table
from reading import chain

ROOT = Path(__file__).parents[1]
ROUNDS = 12

#: By name, the setup, and the code that is timed after it; without a setup the time includes the start of the process.
PROGRAMS = {
    "import": ("", "import tenonnx as tx; tx.load"),
    "read a first file": ("", "import tenonnx as tx; tx.load(first)"),
    "read a first file with ops of a vendor": ("", "import tenonnx as tx; tx.load(vendor)"),
    "read 10,000 nodes": ("import tenonnx as tx; tx.load(nodes)", "tx.load(nodes)"),
    "retarget 10,000 nodes": (
        "import tenonnx as tx; tx.export(tx.load(first), written, opset_version=11); graph = tx.load(nodes)",
        "tx.export(graph, written, opset_version=11)",
    ),
    "compile a first file": ("import tenonnx as tx; graph = tx.load(first)", "graph.compile(backend='numpy')"),
    "convert the decoder example": (
        "from importlib.metadata import entry_points\n"
        "(script,) = entry_points(group='console_scripts', name='tenonnx'); command = script.load()\n"
        "command(['targets'])\n"
        "arguments = ['--opset', '17', '--domains', 'ai.onnx', '--inputs', inputs, '--verify', '--overwrite']",
        "assert command(['convert', vendor, '-o', written, *arguments]) == 0",
    ),
}


def _seconds(checkout: Path, names: str, ahead: str, timed: str) -> float:
    """Processor seconds of ``timed`` in the environment of a checkout."""
    start = "t = time.process_time()" if ahead else "t = 0.0"
    code = "\n".join(["import time", names, ahead, start, timed, "print(time.process_time() - t)"])
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["OPENBLAS_NUM_THREADS"] = "1"  # further BLAS threads spin at start-up and would add to the time
    python = checkout / ".venv" / "bin" / "python"
    done = subprocess.run([python, "-c", code], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout.splitlines()[-1])


def main() -> None:
    other, *only = sys.argv[1:]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        onnx.save(chain(10_000), nodes := Path(folder, "nodes.onnx"))
        examples = ROOT / "examples"
        files = {
            "first": examples / "digits_cnn" / "digits-cnn.onnx",
            "vendor": examples / "decoder" / "decoder.onnx",
            "inputs": examples / "decoder" / "samples.npz",
            "nodes": nodes,
            "written": Path(folder, "written.onnx"),
        }
        names = "\n".join(f"{name} = {str(path)!r}" for name, path in files.items())
        for name in only or PROGRAMS:
            found: dict[Path, list[float]] = {ROOT: [], Path(other): []}
            for _ in range(ROUNDS):
                for checkout, seconds in found.items():
                    seconds.append(_seconds(checkout, names, *PROGRAMS[name]))
            this, that = (min(seconds[1:]) for seconds in found.values())
            rows.append([name, this, that, this / that])
    table(f"This checkout against {Path(other).name}", ["program", "this, s", "other, s", "this / other"], rows)


if __name__ == "__main__":
    main()
