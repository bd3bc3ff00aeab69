#!/usr/bin/env python3
"""pre-commit hooks for ONNX files: ``check``, ``opset``, ``domains`` and ``size``, see ``.pre-commit-hooks.yaml``.

They run in an environment with tenonnx, and print a line for each file that fails.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import tenonnx as tx

_UNITS = {"": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a hook; returns exit code 1 if a file fails, 2 if a file cannot be read."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="hook", required=True)
    commands.add_parser("check", help="the model is valid")
    opset = commands.add_parser("opset", help="the opset is not newer")
    opset.add_argument("--at-most", type=int, required=True, metavar="N")
    domains = commands.add_parser("domains", help="no other domains")
    domains.add_argument("--only", default="ai.onnx", metavar="A,B")
    size = commands.add_parser("size", help="the file is not larger, its external data included")
    size.add_argument("--at-most", type=_bytes, required=True, metavar="SIZE")
    for command in commands.choices.values():
        command.add_argument("files", nargs="*", type=Path)
    given = parser.parse_args(arguments)
    hooks: dict[str, Callable[[Path], str]] = {
        "check": _problems,
        "opset": lambda path: _too_new(path, given.at_most),
        "domains": lambda path: _foreign(path, given.only.split(",")),
        "size": lambda path: _too_large(path, given.at_most),
    }
    status = 0
    for path in given.files:
        try:
            problem = hooks[given.hook](path)
        except tx.TenonnxError as error:
            print(f"{path}: {error}")
            status = 2
            continue
        if problem:
            print(f"{path}: {problem}")
            status = max(status, 1)
    return status


def _bytes(text: str) -> int:
    number = text.rstrip("KMGBkmgb")
    try:
        return int(float(number) * _UNITS[text[len(number) :].upper()])
    except (KeyError, ValueError):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 500KB, 50MB or 2GB") from None


def _problems(path: Path) -> str:
    command = [sys.executable, "-m", "tenonnx", "check", str(path)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = (found.stdout or found.stderr).strip().splitlines()
    return "" if found.returncode == 0 else " ".join(lines)[:500].removeprefix(f"{path}: ")


def _too_new(path: Path, most: int) -> str:
    version = tx.load(path).opsets.get("ai.onnx", 0)
    advice = f"tenonnx convert {path} -o {path} --opset {most} --overwrite"
    return f"opset {version} is newer than {most}; do: {advice}" if version > most else ""


def _foreign(path: Path, known: Sequence[str]) -> str:
    graph = tx.load(path)
    found = sorted({f"{node.domain}::{node.op_type}" for node in graph.walk() if node.domain not in known})
    return f"ops of other domains: {', '.join(found)}; do: tenonnx convert --domains {','.join(known)}" if found else ""


def _too_large(path: Path, most: int) -> str:
    weights = sum(value.data.nbytes for value in tx.load(path).variables if value.data is not None)
    size = max(path.stat().st_size, weights)
    return f"{size:,} bytes are more than {most:,}" if size > most else ""


if __name__ == "__main__":
    sys.exit(main())
