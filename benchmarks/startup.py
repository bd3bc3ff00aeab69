"""Start-up time of imports and of commands on a small file, as whole processes with cached bytecode."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

from measure import processes, python, table

ROUNDS = 9

#: Imports of any program that runs ONNX files; work on a small file should take at most 1.15 times as long.
LEAST = "import numpy, onnx, onnxruntime"
COLD = {
    "load and run": "import numpy, tenonnx as tx\n"
    "tx.load({file!r}).run({{'images': numpy.zeros((1, 1, 8, 8), numpy.float32)}})",
    "load and simplify": "import tenonnx as tx\ntx.simplify(tx.load({file!r}))",
}

DIGITS = str(Path(__file__).parents[1] / "examples" / "digits" / "digits.onnx")
CNN = str(Path(__file__).parents[1] / "examples" / "digits_cnn" / "digits-cnn.onnx")


def processor_seconds(code: str) -> float:
    """Processor seconds of a process that runs ``code``."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def from_cold() -> None:
    """Compare work on a small file with the bare imports: minimum processor time of alternating rounds."""
    programs = {LEAST: LEAST, **{name: code.format(file=CNN) for name, code in COLD.items()}}
    found = {name: min(times) for name, times in _in_turn(programs).items()}
    rows = [[name, seconds, seconds / found[LEAST]] for name, seconds in found.items()]
    table("From cold", ["program", "processor seconds", f"times {LEAST}"], rows)


def _in_turn(programs: dict[str, str]) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in programs}
    for code in programs.values():
        processor_seconds(code)  # writes bytecode
    for _ in range(ROUNDS):
        for name, code in programs.items():
            times[name].append(processor_seconds(code))
    return times


#: Command lines to complete.
LINES = ("tenonnx con", "tenonnx convert --opt", "tenonnx convert --target ", "tenonnx train --loss ")


def without_a_model() -> None:
    """Compare help and completion with an empty program: minimum processor time of alternating rounds."""
    code = "import os, sys; os.environ.update({0!r}); import tenonnx_cli; sys.exit(tenonnx_cli.main({1!r}))"
    programs = {"python -c pass": "pass", "tenonnx --help": code.format({}, ["--help"])}
    for line in LINES:
        completion = {"_TENONNX_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
        programs[f"completion of {line!r}"] = code.format(completion, [])
    found = {name: min(times) for name, times in _in_turn(programs).items()}
    rows = [[name, seconds, seconds / found["python -c pass"]] for name, seconds in found.items()]
    table("Help and completion", ["program", "processor seconds", "times python -c pass"], rows)


def main() -> None:
    found = processes(
        {
            "import numpy": python("import numpy"),
            "import onnx": python("import onnx"),
            "import tenonnx": python("import tenonnx"),
            "tenonnx with its names": python("import tenonnx; tenonnx.load"),
            "tenonnx and the standard family": python("import tenonnx as tx; tx.default_registry().load('ai.onnx')"),
            "import onnx_ir": python("import onnx_ir"),
            "tenonnx --help": ["tenonnx", "--help"],
            "tenonnx targets": ["tenonnx", "targets"],
            "tenonnx inspect digits.onnx": ["tenonnx", "inspect", DIGITS],
            "tenonnx plan digits.onnx --opset 13": ["tenonnx", "plan", DIGITS, "--opset", "13"],
            "python -c pass": python("pass"),
        }
    )
    numpy, onnx = found["import numpy"][0], found["import onnx"][0]
    rows = [[name, seconds * 1e3, seconds / numpy, seconds / onnx] for name, (seconds, _) in found.items()]
    table("Start-up", ["", "milliseconds", "times import numpy", "times import onnx"], rows)
    from_cold()
    without_a_model()


if __name__ == "__main__":
    main()
