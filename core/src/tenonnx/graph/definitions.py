"""The registry of a graph, or of all installed packages."""

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

#: operands and results are values, whose module imports this one
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
    """Implementation of operators for ``registry.add_operators``. Missing operators raise ``TypeMismatch`` on use."""

    # Python operators: operands are values, numbers and arrays, at least one of them a value
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

    # for graphs: the length of an axis as a scalar int64; ints and int64 values as one vector; a copy of a value, for
    # use as an output
    dimension: Callable[[Any, int], Any] = _lacking("dimension")
    vector: Callable[[Sequence[Any]], Any] = _lacking("vector")
    identity: Unary = _lacking("identity")
    transpose: Callable[[Any, Sequence[int]], Any] = _lacking("transpose")

    # for transforms: cast to another element type; constant tensors with the shape of another one; reduction of a
    # gradient to the shape of a value; sum of two gradients; a vector of dims equal to those of some values, or None
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
        """Implementation of Python operators on values, and of the ops that transforms use."""
        ...

    def rule(self, op: Any, consumer: str) -> Callable[..., Any] | None:
        """The rule that a package added to another package's op, or None."""
        ...

    def add_rule(self, op: Any, consumer: str, rule: Callable[..., Any]) -> None:
        """Add a rule to another package's op."""
        ...

    def element_types(self, op: Any) -> Any:
        """The element types that an op accepts, or None if unknown."""
        ...


_ambient: ContextVar[Definitions | None] = ContextVar("tenonnx_definitions", default=None)


def definitions() -> Definitions:
    """The active registry: that of the current graph, else the default registry."""
    ambient = _ambient.get()
    return lazy_import("default_registry")() if ambient is None else ambient


def operators() -> Operators:
    """The operators of the active registry."""
    return definitions().operators()


@contextmanager
def defined_by(registry: Definitions | None) -> Iterator[None]:
    """Make ``registry`` the active one in the block; None changes nothing."""
    if registry is None:
        yield
        return
    token = _ambient.set(registry)
    try:
        yield
    finally:
        _ambient.reset(token)


def in_registry_of_graph(function: Function) -> Function:
    """Decorate a function of a graph to run with the graph's registry."""

    @functools.wraps(function)
    def within(*args: Any, **kwargs: Any) -> Any:
        with defined_by((args[0] if args else kwargs["graph"]).registry):
            return function(*args, **kwargs)

    return cast("Function", within)
