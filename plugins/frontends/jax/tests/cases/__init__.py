"""Functions and modules to read, by name, with example arguments."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Case:
    """A source: ``make`` builds it, ``examples`` are its inputs, ``dims`` the dynamic axes."""

    name: str
    make: Callable[[], Any]
    examples: Sequence[Any]
    dims: Mapping[Any, Any] = field(default_factory=dict)
    keywords: Mapping[str, Any] = field(default_factory=dict)
    x64: bool = False


CASES: dict[str, Case] = {}


def case(name: str, function: Any, *examples: Any, dims: Mapping[Any, Any] | None = None, **options: Any) -> None:
    """Register a function as a case."""
    made(name, lambda: function, *examples, dims=dims, **options)


def made(
    name: str, make: Callable[[], Any], *examples: Any, dims: Mapping[Any, Any] | None = None, **options: Any
) -> None:
    """Register a case that ``make`` builds."""
    assert name not in CASES, name
    CASES[name] = Case(
        name, make, [np.asarray(e) if isinstance(e, float | int) else e for e in examples], dims or {}, **options
    )


def floats(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def positive(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(seed).uniform(0.1, 2, shape).astype(dtype)


def integers(*shape: int, low: int = -9, high: int = 10, seed: int = 0, dtype: Any = np.int32) -> Any:
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


def bools(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 2, shape).astype(bool)


#: Dynamic first axis of the first input.
BATCH = {0: {0: "batch"}}


def load_all() -> dict[str, Case]:
    """All cases, by name."""
    for path in sorted(Path(__file__).parent.glob("[a-z]*.py")):
        importlib.import_module(f"cases.{path.stem}")
    return CASES
