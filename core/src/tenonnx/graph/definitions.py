"""What packages define, as graphs and ops ask for it: the registry of a graph, or of everything that is installed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from tenonnx.graph.late_bindings import late

if TYPE_CHECKING:
    from tenonnx.graph.operators import Operators

Function = TypeVar("Function", bound=Callable[..., Any])


class Definitions(Protocol):
    """A registry, as floors below it see it."""

    def load(self, domain: str) -> None:
        """Import the packages that serve a domain."""
        ...

    def operators(self) -> Operators:
        """What Python's operators on values mean, and what transforms ask for by name."""
        ...

    def rule(self, op: Any, consumer: str) -> Callable[..., Any] | None:
        """The rule that a package gave to an op of another, or None."""
        ...

    def add_rule(self, op: Any, consumer: str, rule: Callable[..., Any]) -> None:
        """Give another package's op a rule."""
        ...

    def element_types(self, op: Any) -> Any:
        """The element types that an op takes, or None where no package says."""
        ...


_ambient: ContextVar[Definitions | None] = ContextVar("tenonnx_definitions", default=None)


def definitions() -> Definitions:
    """The registry in use here: that of the graph at work, else the one of everything that is installed."""
    ambient = _ambient.get()
    return late("default_registry")() if ambient is None else ambient


@contextmanager
def defined_by(registry: Definitions | None) -> Iterator[None]:
    """Let ``registry`` answer what is asked inside; None leaves that to the one in use."""
    if registry is None:
        yield
        return
    token = _ambient.set(registry)
    try:
        yield
    finally:
        _ambient.reset(token)


def in_registry_of_graph(function: Function) -> Function:
    """Let the registry of its first argument, a graph, answer what a function asks."""

    @functools.wraps(function)
    def within(*args: Any, **kwargs: Any) -> Any:
        with defined_by((args[0] if args else kwargs["graph"]).registry):
            return function(*args, **kwargs)

    return cast("Function", within)
