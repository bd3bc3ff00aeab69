"""The registry of a graph, or of everything that is installed."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast

from tenonnx.errors import TypeMismatch, installing
from tenonnx.graph.lazy_methods import lazy_import

if TYPE_CHECKING:
    from tenonnx.graph.dtypes import DType
    from tenonnx.graph.symbolic import Dim

Function = TypeVar("Function", bound=Callable[..., Any])

#: Operands and results are values of graphs, which are defined by means of these.
Unary = Callable[[Any], Any]
Binary = Callable[[Any, Any], Any]


def _lacking(name: str) -> Callable[..., Any]:
    def refuse(*_: Any) -> Any:
        raise TypeMismatch(
            f"the operator {name!r} is undefined: no installed package defines arithmetic on tensors",
            do=installing(lazy_import("provider")("ai.onnx", "*")),
        )

    return refuse


class Operators(NamedTuple):
    """The table that ``registry.add_operators`` takes. What a family leaves out raises ``TypeMismatch`` where used."""

    # Python's operators: operands are values, numbers and arrays, at least one a value
    add: Binary = _lacking("add")
    subtract: Binary = _lacking("subtract")
    multiply: Binary = _lacking("multiply")
    divide: Binary = _lacking("divide")
    floor_divide: Binary = _lacking("floor_divide")
    modulo: Binary = _lacking("modulo")
    power: Binary = _lacking("power")
    matmul: Binary = _lacking("matmul")
    negative: Unary = _lacking("negative")
    and_: Binary = _lacking("and")
    or_: Binary = _lacking("or")
    not_: Unary = _lacking("not")
    less: Binary = _lacking("less")
    less_or_equal: Binary = _lacking("less_or_equal")
    greater: Binary = _lacking("greater")
    greater_or_equal: Binary = _lacking("greater_or_equal")
    getitem: Callable[[Any, Any], Any] = _lacking("getitem")

    # Graphs: the length of an axis as a scalar int64, ints and int64 values as one vector, an output of its own
    dimension: Callable[[Any, int], Any] = _lacking("dimension")
    vector: Callable[[Sequence[Any]], Any] = _lacking("vector")
    identity: Unary = _lacking("identity")
    transpose: Callable[[Any, Sequence[int]], Any] = _lacking("transpose")

    # Transforms: another element type; tensors shaped like one; a gradient summed back to the shape of a value; the
    # sum of two gradients; a vector of dims that are those of some values, or None
    cast: Callable[[Any, DType], Any] = _lacking("cast")
    zeros_like: Unary = _lacking("zeros_like")
    ones_like: Unary = _lacking("ones_like")
    sum_to: Callable[[Any, Any], Any] = _lacking("sum_to")
    gradient_sum: Callable[[Any, Any], Any] = operator.add
    lengths: Callable[[Sequence[Dim], Sequence[Any]], Any] = _lacking("lengths")


class Definitions(Protocol):
    """The part of a registry that lower layers use."""

    def load(self, domain: str) -> None:
        """Import the packages that serve a domain."""
        ...

    def operators(self) -> Operators:
        """Meanings of Python's operators on values, and of the ops that transforms request by name."""
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
    return lazy_import("default_registry")() if ambient is None else ambient


def operators() -> Operators:
    """The operators of the registry in use here."""
    return definitions().operators()


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
