"""Every case: equal to TensorFlow as a graph and at opsets 13, 17 and 21, or rejected by name."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from judging import Case, judge

MODULES = sorted(path.stem for path in (Path(__file__).parent / "cases").glob("[a-z]*.py"))
CASES = {f"{m}.{name}": case for m in MODULES for name, case in import_module(f"cases.{m}").CASES.items()}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_case(case: Case) -> None:
    judge(case)
