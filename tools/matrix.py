"""Smoke tests in environments of every Python, with the lowest and the newest declared versions.

``python tools/matrix.py --write`` builds all of them and writes the table; ``--cell 3.11-lowest-all`` builds one.
The declared requirements are read from the wheels.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from packaging.requirements import Requirement
from wheels import ROOT, build, metadata

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
ENDS = {"lowest": "lowest-direct", "newest": "highest"}
SMOKE = ROOT / "tools/smoke"
TABLE = ROOT / "benchmarks/matrix.md"

#: Packages to install in a cell. Those before ``all`` come with their declared requirements only.
SUBJECTS = {
    "core": ["tenonnx-core"],
    "standard": ["tenonnx-standard[test]"],
    "onnx-ml": ["tenonnx-onnx-ml[test]"],
    "contrib-ms": ["tenonnx-contrib-ms[test]"],
    "quantized": ["tenonnx-quantized[test]"],
    "training": ["tenonnx-training[test,commands]"],
    "optimize": ["tenonnx-optimize", "tenonnx-standard"],
    "onnxruntime": ["tenonnx-onnxruntime"],
    "cli": ["tenonnx-cli", "tenonnx-standard"],
    "serve": ["tenonnx-serve[test]"],
    "score": ["tenonnx-score", "tenonnx-standard"],
    "sklearn": ["tenonnx-sklearn", "tenonnx-onnxruntime"],
    "tensorflow": ["tenonnx-tensorflow", "tenonnx-litert", "tenonnx-onnxruntime"],
    "tenonnx": ["tenonnx"],
    "all": ["tenonnx[all]", "tenonnx-serve", "tenonnx-testing"],
}
#: The test runner, which is not a requirement of our packages.
RUNNER = ["pytest>=8.3", "pytest-xdist>=3.6"]
SHOWN = ("numpy", "onnx", "onnxruntime", "protobuf", "ml_dtypes")


@dataclass
class Cell:
    python: str
    end: str
    subject: str
    versions: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    problem: str = ""

    @property
    def name(self) -> str:
        return f"{self.python}-{self.end}-{self.subject}"

    @property
    def passed(self) -> bool:
        return not self.problem and not self.counts.get("failed") and self.counts.get("passed", 0) > 0

    def row(self) -> str:
        versions = [self.versions.get(name, "") for name in SHOWN]
        result = self.problem or ", ".join(f"{count} {what}" for what, count in self.counts.items() if count)
        return f"| {self.python} | {self.end} | {self.subject} | {' | '.join(versions)} | {result} |"


def ours(wheels: Path) -> dict[str, Path]:
    """The wheels of our packages by package name."""
    return {file.name.split("-")[0].replace("_", "-"): file for file in sorted(wheels.glob("*.whl"))}


def declared(wheels: Path, subject: list[str]) -> list[str]:
    """Third-party requirements of packages, direct ones and those of our packages that they require."""
    built = ours(wheels)
    found: dict[str, None] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    left = [Requirement(text) for text in subject]
    while left:
        wanted = left.pop()
        if wanted.name not in built:
            found[f"{wanted.name}{wanted.specifier}"] = None
            continue
        key = (wanted.name, frozenset(wanted.extras))
        if key in seen:
            continue
        seen.add(key)
        for line in metadata(built[wanted.name]).get_all("Requires-Dist") or []:
            requirement = Requirement(line)
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in (*wanted.extras, "")):
                left.append(requirement)
    return list(found)


def run(cell: Cell, wheels: Path, work: Path) -> None:
    """Build the environment of a cell and run the smoke tests that apply to it."""
    environment = work / cell.name
    start = time.monotonic()
    # uv downloads no Python: the cell of a missing one reports it
    chosen = ["--no-python-downloads", "--python", interpreter(cell.python)]
    _call("uv", "venv", "--quiet", *chosen, str(environment))
    python = environment / "bin/python"
    install = ["uv", "pip", "install", "--quiet", "--python", str(python), "--find-links", str(wheels)]
    for name in ours(wheels):  # not the cached build of an earlier day, which has the same version
        install += ["--refresh-package", name]
    resolution = ["--resolution", ENDS[cell.end], "--only-binary", ":all:"]
    _call(*install, *resolution, *SUBJECTS[cell.subject], *declared(wheels, SUBJECTS[cell.subject]))
    _call(*install, *RUNNER)
    listed = _call("uv", "pip", "list", "--python", str(python), "--format", "freeze")
    cell.versions = {n.replace("-", "_"): v for n, v in (line.split("==") for line in listed.split() if "==" in line)}
    report = work / f"{cell.name}.xml"
    line = [
        str(python),
        "-m",
        "pytest",
        "-q",
        "-c",
        os.devnull,
        "--rootdir",
        str(work),
        "--confcutdir",
        str(SMOKE),
        "-p",
        "no:cacheprovider",
    ]
    line += ["-n", str(os.cpu_count() or 1), "--junitxml", str(report), str(SMOKE)]
    if "tenonnx_testing" in cell.versions:
        line += ["--tenonnx-examples", "1", "-k", _OF_OPS]
    said = subprocess.run(line, cwd=work, env=_environment(), check=False, capture_output=True, text=True)
    cell.seconds = time.monotonic() - start
    if said.returncode not in (0, 1):
        cell.problem = f"the tests ended with code {said.returncode}"
        sys.stderr.write(said.stdout + said.stderr)
        return
    suite = ElementTree.parse(report).getroot()[0]  # noqa: S314  our own file
    count = {name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")}
    failed = count["failures"] + count["errors"]
    cell.counts = {
        "passed": count["tests"] - failed - count["skipped"],
        "failed": failed,
        "skipped": count["skipped"],
    }
    if failed:
        sys.stderr.write(said.stdout)


def interpreter(version: str) -> str:
    """Path of a Python, or its version if it is not installed. Ignores pyenv shims, which may refuse to start."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for program in [shutil.which(f"python{version}"), *sorted(versions.glob(f"{version}.*/bin/python"), reverse=True)]:
        if program and subprocess.run([program, "--version"], check=False, capture_output=True).returncode == 0:
            return str(program)
    return version


#: Conformance checks to run: types, and results of calls.
_OF_OPS = "not test_ops or types or test_call"


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}


class Failed(Exception):
    """An external program failed; the text is the last line of its output."""


def _call(*line: str) -> str:
    done = subprocess.run(line, check=False, capture_output=True, text=True)
    if done.returncode:
        raise Failed(next((text.strip() for text in done.stderr.splitlines() if text.strip()), "no message"))
    return done.stdout


def cells(pattern: str) -> list[Cell]:
    """Cells whose name matches the pattern. Single families are only tried on the first Python."""
    found = [
        Cell(python, end, subject)
        for python in PYTHONS
        for end in ENDS
        for subject in SUBJECTS
        if python == PYTHONS[0] or subject in ("core", "tenonnx", "all")
    ]
    return [cell for cell in found if fnmatch.fnmatch(cell.name, pattern)]


def _with(found: list[Cell]) -> list[str]:
    """The lines of the table, with the rows of ``found`` replaced or added."""
    head = ["Python", "versions", "installed", *SHOWN, "smoke tests"]
    lines = TABLE.read_text("utf-8").splitlines() if TABLE.is_file() else []
    rows = {tuple(line.split(" | ")[:3]): line for line in lines if line.startswith("| 3.")}
    rows.update({tuple(cell.row().split(" | ")[:3]): cell.row() for cell in found})
    order = [tuple(cell.row().split(" | ")[:3]) for cell in cells("*")]
    return [f"| {' | '.join(head)} |", "|" + " --- |" * len(head), *(rows[key] for key in order if key in rows)]


_HEAD = """# The versions that are promised

`python tools/matrix.py --write` makes an environment for each line, from wheels, and runs the smoke tests of
`tools/smoke` in it: every module imports, every example is read, run, exported and verified, or says what to install
for it, every command works, and a call of every op gives what the op means, with its types. *lowest* are the lowest
versions of what our packages declare that the Python has wheels of, *newest* the newest. A family is alone with what
it declares. Continuous integration runs `3.11-lowest-all`. Lines that are not here yet were not run.

"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cell", default="", metavar="PATTERN", help="the cells to run, such as '3.11-*-all'")
    parser.add_argument("--write", action="store_true", help="put the lines into the table")
    parser.add_argument("--wheels", type=Path, help="a folder of wheels; by default they are built")
    given = parser.parse_args()
    chosen = cells(given.cell or "*")
    if not chosen:
        sys.stderr.write(f"no cell matches {given.cell}; there are {', '.join(cell.name for cell in cells('*'))}\n")
        return 2
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        wheels = given.wheels.absolute() if given.wheels else work / "wheels"
        if not given.wheels:
            build(wheels)
        for cell in chosen:
            try:
                run(cell, wheels, work)
            except Failed as error:
                cell.problem = re.sub(r"^(error|×) *:? *", "", str(error))[:120]
            sys.stdout.write(f"{cell.row()} {cell.seconds:.0f} s\n")
            sys.stdout.flush()
            shutil.rmtree(work / cell.name, ignore_errors=True)
            if given.write:  # after each cell, since all of them take an hour
                TABLE.write_text(_HEAD + "\n".join(_with([cell])) + "\n", encoding="utf-8")
    absent = [cell for cell in chosen if cell.problem and "No interpreter" in cell.problem]
    return int(any(not cell.passed for cell in chosen if cell not in absent))


if __name__ == "__main__":
    sys.exit(main())
