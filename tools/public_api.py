"""The public names and what they take, a line each: ``docs/reference/api.txt`` has those of the last release.

``tests/test_public_api.py`` compares. ``python tools/public_api.py`` writes the file, as a release does.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from documenting.json_output import every_key

FILE = Path(__file__).parents[1] / "docs/reference/api.txt"

#: What ``docs/reference/stability.md`` calls public.
MODULES = (
    "tenonnx", "tenonnx.extend", "tenonnx.extend.backends", "tenonnx.extend.checks", "tenonnx.extend.formats",
    "tenonnx.extend.frontends", "tenonnx.extend.options", "tenonnx.extend.rules", "tenonnx.extend.symbolic",
    "tenonnx.extend.testing", "tenonnx.extend.transforms", "tenonnx_cli.extend", "tenonnx_testing", "tenonnx_training",
)  # fmt: skip


def lines() -> list[str]:
    """Every public name, sorted, such as ``tenonnx.verify(graph, other=, *, feeds=)``: ``=`` stands for a default.

    The keys of what commands print with ``--json`` are names, too.
    """
    of_python = {line for name in MODULES for line in _of_module(import_module(name))}
    return sorted(of_python | {f"tenonnx {command} --json: {key}" for command, key in every_key()})


def write() -> None:
    FILE.write_text("\n".join(lines()) + "\n", encoding="utf-8")


def _of_module(module: ModuleType) -> Iterator[str]:
    for name in getattr(module, "__all__", None) or dir(module):
        if not name.startswith("_"):
            value = getattr(module, name)
            if not isinstance(value, ModuleType):
                yield from _of(f"{module.__name__}.{name}", value)


def _of(title: str, value: Any) -> Iterator[str]:
    yield title + (_signature(value) if callable(value) else "")
    if inspect.isclass(value) and value.__module__.startswith("tenonnx"):
        for name in dir(value):
            member = inspect.getattr_static(value, name)
            if name.startswith("_") or isinstance(member, type):
                continue
            member = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            yield f"{title}.{name}" + (_signature(member) if inspect.isfunction(member) else "")


def _signature(value: Any) -> str:
    """The parameters, without annotations, which Pythons write differently, and without the values of defaults."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    bare = [
        each.replace(annotation=each.empty, default=each.empty if each.default is each.empty else _DEFAULT)
        for each in found.parameters.values()
    ]
    return str(inspect.Signature(bare))


class _Default:
    def __repr__(self) -> str:
        return ""


_DEFAULT = _Default()

if __name__ == "__main__":
    write()
    sys.stdout.write(f"{FILE}: {len(lines())} lines\n")
