"""Tests that other tools ship, run against tenonnx-compat: passed, failed and refused.

``python benchmarks/own_tests.py --output docs/why/own-tests.md`` downloads source distributions from PyPI, runs their
test files with the imports of the tool answered by tenonnx-compat, and writes the table. It needs what the tests
import: pandas, scikit-learn and onnxruntime, and for tf2onnx an environment with TensorFlow.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

#: For each tool the files of its tests, and those of them that need the network or a GPU.
TOOLS = {
    "onnxslim": (
        "tests/test_*.py",
        {
            "test_amd",
            "test_benchmark",
            "test_modelzoo",
            "test_nvidia",
            "test_ultralytics",
            "test_onnx_nets",
            "test_folder",
        },
    ),
    "skl2onnx": ("tests/test_*.py", {"test_sklearn_documentation"}),
    "onnx2torch": ("tests/test_*.py", set()),
    "onnxsim": ("tests/test_*.py", set()),
    "tf2onnx": ("tests/test_api.py", set()),
}

#: Words of a failure that tell what is refused, or internal to a tool.
REFUSED = ("NotSupported", "tenonnx-compat does not have", "does not support")
INTERNAL = ("internal of the tool: ",)

#: What runs a test file: imports of internals give names that raise where they are used, so that only tests that use
#: them end; helpers of test suites get the few that they need.
HARNESS = """
import sys, types
import onnx.helper
import pytest
from tenonnx_compat import imports

class Internal:
    def __init__(self, name):
        self.name = name
    def __call__(self, *arguments, **options):
        raise RuntimeError(f"internal of the tool: {self.name}")
    def __getattr__(self, name):
        raise RuntimeError(f"internal of the tool: {self.name}.{name}")
    def __mro_entries__(self, bases):
        return (object,)

def stand_in(spec):
    module = types.ModuleType(spec.name)
    module.__path__ = []
    module.__spec__ = spec
    if spec.name == "skl2onnx.common._topology":
        versions = {row[2]: row[1] for row in onnx.helper.VERSION_TABLE}
        module.OPSET_TO_IR_VERSION = {n: versions.get(n, 10) for n in range(1, 30)}
    module.__getattr__ = lambda name: with_name(f"{spec.name}.{name}")
    return module

def with_name(name):
    if name.rpartition(".")[2].startswith("__"):
        raise AttributeError(name)
    return Internal(name)

known = imports._Redirect.create_module
keep = imports._Redirect.exec_module

def create(self, spec):
    try:
        module = known(self, spec)
    except ModuleNotFoundError:
        return stand_in(spec)
    theirs = getattr(module, "__getattr__", None)
    def missing(name):
        try:
            if theirs is not None:
                return theirs(name)
        except AttributeError:
            pass
        return with_name(f"{spec.name}.{name}")
    module.__getattr__ = missing
    return module

imports._Redirect.create_module = create
imports._Redirect.exec_module = lambda self, module: keep(self, module) if module.__spec__.name in self._specs else None
imports.redirect_imports()
sys.exit(pytest.main(sys.argv[1:]))
"""


def fetched(tool: str, folder: Path) -> Path:
    """The folder of the newest source distribution of a tool."""
    if not list(folder.glob(f"{tool}-*.tar.gz")):
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--no-binary",
            ":all:",
            "-d",
            folder,
            tool,
        ]
        subprocess.run(command, check=True)
    (archive,) = folder.glob(f"{tool}-*.tar.gz")
    place = folder / archive.name.removesuffix(".tar.gz")
    if not place.exists():
        with tarfile.open(archive) as opened:
            opened.extractall(folder, filter="data")
    return place


def results(path: Path, seconds: int) -> tuple[Counter[str], list[str]]:
    """Outcomes of the tests of a file, with a line for each failure."""
    counts: Counter[str] = Counter()
    reasons = []
    with tempfile.TemporaryDirectory() as folder:
        harness, report = Path(folder) / "harness.py", Path(folder) / "report.xml"
        harness.write_text(HARNESS)
        command = [
            sys.executable,
            str(harness),
            "--noconftest",
            "-q",
            "-W",
            "ignore",
            "-p",
            "no:cacheprovider",
            "-o",
            "addopts=",
        ]
        command += ["--rootdir", folder, f"--junitxml={report}", str(path)]
        environment = {**os.environ, "PYTHONPATH": str(path.parent), "MPLBACKEND": "agg"}
        try:
            subprocess.run(command, cwd=folder, env=environment, timeout=seconds, capture_output=True, check=False)
        except subprocess.TimeoutExpired:
            return Counter({"failed": 1}), [f"{path.name}: not finished within {seconds} s"]
        if not report.exists():
            return Counter({"failed": 1}), [f"{path.name}: the process ended"]
        for case in ElementTree.parse(report).iter("testcase"):
            trouble = next((each for each in case if each.tag in ("failure", "error", "skipped")), None)
            if trouble is None:
                counts["passed"] += 1
                continue
            text = f"{trouble.get('message', '')} {trouble.text or ''}"
            kind = outcome(trouble.tag, text)
            counts[kind] += 1
            if kind in ("failed", "refused"):
                told = re.sub(r"\s+", " ", trouble.get("message", ""))[:140]
                reasons.append(f"{kind} {path.stem}::{case.get('name')}: {told}")
    return counts, reasons


def outcome(tag: str, text: str) -> str:
    """Passed, failed, skipped, refused, or internal: the test reads what is no interface of the tool."""
    lacking = re.search(r"No module named '([^']*)'", text)
    if tag == "skipped" or "No such file or directory" in text:
        return "skipped"
    if lacking is not None:
        return "internal" if lacking[1].partition(".")[0] in TOOLS else "skipped"
    if any(words in text for words in REFUSED):
        return "refused"
    return "internal" if any(words in text for words in INTERNAL) else "failed"


def page(rows: list[list[str]], reasons: dict[str, list[str]]) -> str:
    """The table and the reasons as Markdown."""
    header = ["tool", "files", "passed", "failed", "refused", "internal", "skipped", "passed of public"]
    lines = [
        "# Tests of other tools against tenonnx-compat",
        "",
        f"Written by `python benchmarks/own_tests.py` on {datetime.now(UTC).date()}:",
        "test files of source distributions, with the imports of the tool answered by tenonnx-compat. *Internal* tests",
        "use what is no public interface of the tool,",
        "*refused* ones an argument or function without a translation; *skipped* ones lack a file or a package.",
        "",
        *(f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows)),
    ]
    for tool, told in reasons.items():
        counted = Counter(re.sub(r"^(\w+) [^:]*::[^:]*: ", r"\1: ", line) for line in told)
        lines += ["", f"## {tool}", "", "| tests | outcome | message |", "| --- | --- | --- |"]
        for line, count in counted.most_common():
            kind, _, message = line.partition(": ")
            lines.append(f"| {count} | {kind} | `{message.replace('|', '/').replace('`', chr(39)) or 'no message'}` |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", default="onnxslim,skl2onnx", help="names, separated by commas")
    parser.add_argument("--sdists", type=Path, default=Path(tempfile.gettempdir()) / "own-tests")
    parser.add_argument("--seconds", type=int, default=300, help="limit for a file")
    parser.add_argument("--files", default="", help="only files whose names have one of these in them")
    parser.add_argument("--output", type=Path, help="page to write")
    given = parser.parse_args()
    given.sdists.mkdir(parents=True, exist_ok=True)
    rows, reasons = [], {}
    for tool in given.tools.split(","):
        pattern, left_out = TOOLS[tool]
        place = fetched(tool, given.sdists)
        there = sorted(path for path in place.glob(pattern) if path.stem not in left_out)
        files = [path for path in there if any(part in path.name for part in given.files.split(","))]
        counts: Counter[str] = Counter()
        reasons[place.name] = []
        for path in files:
            found, told = results(path, given.seconds)
            print(path.name, dict(found), *told, sep="\n  ", flush=True)
            counts += found
            reasons[place.name] += told
        public = counts["passed"] + counts["failed"] + counts["refused"]
        share = f"{counts['passed'] / public:.0%}" if public else "-"
        columns = [str(counts[name]) for name in ("passed", "failed", "refused", "internal", "skipped")]
        rows.append([place.name, f"{len(files)} of {len(there)}", *columns, share])
    text = page(rows, reasons)
    if given.output:
        given.output.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
