#!/usr/bin/env python3
"""Entry script of the GitHub action: checks a pull request's models, plans and compares them.

``tools/action.py --models "models/*.onnx" --target tensorrt-10 --base origin/main --report report.md`` writes a report
in Markdown, and appends it to the file that the variable ``GITHUB_STEP_SUMMARY`` names. The exit code is 1 if a model
is invalid, does not fit the target, or computes other numbers than the file on the base branch.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the report and return the exit code of the action."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="**/*.onnx", help="pattern of the models, from the root of the repository")
    parser.add_argument("--target", default="", help="a target that `tenonnx targets` lists")
    parser.add_argument("--base", default="", help="the commit or branch to compare with")
    parser.add_argument("--report", type=Path, default=Path("tenonnx-report.md"), help="file to write")
    given = parser.parse_args(arguments)
    models = sorted(path for path in Path().glob(given.models) if path.is_file())
    rows, details, failed = [], [], False
    for path in models:
        row = [f"`{path.as_posix()}`", *_checked("check", str(path))]
        if given.target:
            row += _checked("plan", str(path), "--target", given.target)
        if given.base:
            verdict, detail = _compared(path, given.base)
            row.append(verdict)
            details += [detail] if detail else []
        failed |= FAILED in " ".join(row)
        rows.append(row)
    header = ["model", "valid"]
    header += [given.target] if given.target else []
    header += [f"as in {given.base}"] if given.base else []
    text = _report(header, rows, details)
    given.report.write_text(text, "utf-8")
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(summary).open("a", encoding="utf-8") as file:
            file.write(text)
    print(text)
    return 1 if failed else 0


#: Cells of the table for a passed and a failed check.
PASSED, FAILED = "yes", "**no**"


def _tenonnx(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tenonnx", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _checked(*arguments: str) -> list[str]:
    """Run a command of tenonnx; returns a cell with the verdict and, after a failure, the first line of its message."""
    found = _tenonnx(*arguments)
    if found.returncode == 0:
        return [PASSED]
    lines = (found.stdout or found.stderr).strip().splitlines()
    return [f"{FAILED}: {_escaped(lines[0] if lines else 'no output')[:200]}"]


def _compared(path: Path, base: str) -> tuple[str, str]:
    """Compare a file with the one on the base branch, if it exists there; returns a cell and the tables."""
    before = subprocess.run(["git", "show", f"{base}:{path.as_posix()}"], capture_output=True, check=False)
    if before.returncode:
        return "new", ""
    if before.stdout == path.read_bytes():
        return f"{PASSED}, unchanged", ""
    with tempfile.TemporaryDirectory() as folder:
        old = Path(folder) / f"base-{path.name}"
        old.write_bytes(before.stdout)
        found = _tenonnx("compare", str(old), str(path), "--markdown")
    if found.returncode not in (0, 1):
        lines = found.stderr.strip().splitlines()
        return f"not compared: {_escaped(lines[0] if lines else 'no output')[:200]}", ""
    return PASSED if found.returncode == 0 else FAILED, found.stdout


def _escaped(text: str) -> str:
    for mark in "|<>`*":
        text = text.replace(mark, f"\\{mark}")
    return text


def _report(header: Sequence[str], rows: Sequence[Sequence[str]], details: Sequence[str]) -> str:
    lines = ["## ONNX models", ""]
    if not rows:
        return "\n".join([*lines, "no model matches", ""])
    lines += [f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows)]
    for detail in details:
        lines += ["", detail.strip()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
