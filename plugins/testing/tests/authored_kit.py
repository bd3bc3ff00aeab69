"""Run the conformance kit on the ops of ``authored``, unchanged or with one planted mistake."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tenonnx.extend import Op, Registry
from tenonnx_testing.cases import EXAMPLES, _collected, collected
from tenonnx_testing.collecting import Item, items_of_cases, items_of_op
from tenonnx_testing.run import Failure

FOLDER = Path(__file__).with_name("authored")
OPS = sorted(file.stem for file in FOLDER.glob("[a-z]*.py"))


@dataclass(frozen=True)
class Mistake:
    """A mistake in the file of ``op``: ``new`` replaces ``old`` once; ``second`` is another such pair."""

    kind: str
    op: str
    what: str
    old: str
    new: str
    second: tuple[str, str] | None = None

    def plant(self, text: str) -> str:
        for old, new in filter(None, [(self.old, self.new), self.second]):
            assert old in text, f"{self.op}: {self.what}: no such text: {old}"
            text = text.replace(old, new, 1)
        return text


def items_of(name: str, text: str) -> Iterator[Item]:
    """Yield the conformance tests of the op that a source text defines."""
    module = types.ModuleType(f"authored_{name}")
    sys.modules[module.__name__] = module
    before = set(_collected)
    exec(compile(text, f"{name}.py", "exec"), module.__dict__)
    registry = Registry()
    result = {op: None for value in vars(module).values() if isinstance(value, Op) for op in value.meanings}
    result = [op for op in result if op.domain == "com.authored"]
    registry.add(*{op.name: op for op in sorted(result, key=lambda op: op.before or 10**9, reverse=False)}.values())
    for op in result:
        yield from items_of_cases(collected(op))
    for op in result:
        yield from items_of_op(op, registry)
    for op in set(_collected) - before:
        del _collected[op]


def failures(name: str, mistake: Mistake | None = None, *, first: bool = False) -> dict[str, str]:
    """Messages of the failing tests of an op, by test id."""
    result: dict[str, str] = {}
    text = (FOLDER / f"{name}.py").read_text("utf-8")
    text = text if mistake is None else mistake.plant(text)
    try:
        for item in items_of(name, text):
            if first and result:
                break
            try:
                item.run(EXAMPLES)
            except Failure as failure:
                result[item.label] = "\n".join([str(failure), *getattr(failure, "__notes__", [])])
            except (pytest.skip.Exception, pytest.xfail.Exception):
                pass
    except Exception as error:  # a failing import counts too
        result["import"] = f"{type(error).__name__}: {error}"
    return result
