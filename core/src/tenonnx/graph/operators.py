"""What core asks of the family that its graphs are made of: Python's operators, and a few words of transforms."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tenonnx.errors import TypeMismatch
from tenonnx.graph.definitions import definitions

if TYPE_CHECKING:
    from tenonnx.graph.dtypes import DType
    from tenonnx.graph.symbolic import Dim
    from tenonnx.graph.values import Value

    Unary = Callable[[Value], Value]
    Binary = Callable[[Any, Any], Value]


def _lacking(name: str) -> Callable[..., Value]:
    def refuse(*_: Any) -> Value:
        raise TypeMismatch(
            f"the operator {name!r} needs a package that defines arithmetic on tensors",
            do="pip install tenonnx-standard",
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
    getitem: Callable[[Value, Any], Value] = _lacking("getitem")

    # Graphs: the length of an axis as a scalar int64, ints and int64 values as one vector, an output of its own
    dimension: Callable[[Value, int], Value] = _lacking("dimension")
    vector: Callable[[Sequence[Any]], Value] = _lacking("vector")
    identity: Unary = _lacking("identity")
    transpose: Callable[[Value, Sequence[int]], Value] = _lacking("transpose")

    # Transforms: another element type; tensors shaped like one; a gradient summed back to the shape of a value; the
    # sum of two gradients; a vector of dims that are those of some values, or None
    cast: Callable[[Value, DType], Value] = _lacking("cast")
    zeros_like: Unary = _lacking("zeros_like")
    ones_like: Unary = _lacking("ones_like")
    sum_to: Callable[[Value, Value], Value] = _lacking("sum_to")
    gradient_sum: Callable[[Value, Value], Value] = operator.add
    lengths: Callable[[Sequence[Dim], Sequence[Value]], Value | None] = _lacking("lengths")


def operators() -> Operators:
    """The operators of the registry in use here."""
    return definitions().operators()
