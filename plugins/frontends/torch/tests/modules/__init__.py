"""Modules to export, for tests, benchmarks and the table in docs/how-to/pytorch.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

#: Dynamic first axis of the first input.
BATCH: Mapping[int, Any] = {0: {0: "batch"}}

CASES: dict[str, Case] = {}


@dataclass(frozen=True)
class Case:
    """A module with the arguments of one call; ``make`` builds both with a fixed seed."""

    component: str
    name: str
    build: Callable[[], tuple[Any, ...]]
    dims: Mapping[Any, Any] | None
    training: bool
    quick: bool

    def make(self) -> tuple[nn.Module, tuple[Any, ...]]:
        torch.manual_seed(len(self.name))
        module, *examples = self.build()
        module = module if isinstance(module, nn.Module) else Apply(module)
        return module.train(self.training), tuple(examples)


class Apply(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def case(component: str, name: str, *, dims: Any = BATCH, training: bool = False, quick: bool = False) -> Any:
    """Register a function that builds a module and its examples. Tests run only ``quick`` cases, benchmarks all."""

    def register(build: Callable[[], tuple[Any, ...]]) -> Callable[[], tuple[Any, ...]]:
        assert name not in CASES, name
        CASES[name] = Case(component, name, build, dims, training, quick)
        return build

    return register


def function(component: str, name: str, compute: Callable[..., Any], *examples: Any, **flags: Any) -> None:
    """Register a function as a module; callable examples are called to make them."""
    case(component, name, **flags)(lambda: (compute, *(e() if callable(e) else e for e in examples)))


def normal(*shape: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.randn(*shape)


def whole(high: int, *shape: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.randint(high, shape)
