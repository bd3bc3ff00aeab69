"""Integer tensors as symbolic dims, and their use in normal forms."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx.extend import Dim, TensorType, Value, constant, elements, is_trainable, static, symbolic
from tenonnx_standard.casting import cast
from tenonnx_standard.constants import range_
from tenonnx_standard.logic import less_or_equal
from tenonnx_standard.math import add, maximum, sub
from tenonnx_standard.shapes import expand, identity, reshape, shape, squeeze, unsqueeze

#: Maximum producers visited by a search.
MOST_STEPS = 16

#: Ops whose results are elements of their first input.
_SPREADING = (reshape, expand, unsqueeze, squeeze, identity, cast)


def known_shape(x: Value) -> tuple[Any, ...] | None:
    """The shape, if all dims are known, possibly symbolic."""
    shape = x.type.shape if isinstance(x.type, TensorType) else None
    return None if shape is None or None in shape else shape


def fixed(x: Value | None) -> np.ndarray[Any, Any] | None:
    """The contents of a constant that is not trainable."""
    return None if is_trainable(x) else static(x)


def bounds(x: Value, steps: int = MOST_STEPS) -> tuple[Dim, Dim]:
    """Lower and upper bounds of an integer tensor, None where unknown."""
    kind, contents, node = x.type, elements(x), x.producer
    if not isinstance(kind, TensorType) or not kind.dtype.is_integer or not steps:
        return None, None
    if contents:
        numbers = [number for number in contents if isinstance(number, int)]
        if all(number == contents[0] for number in contents):
            return contents[0], contents[0]
        return (min(numbers), max(numbers)) if len(numbers) == len(contents) else (None, None)
    if node is None or node.op not in (*_SPREADING, range_, add, sub, maximum):
        return None, None
    low, high = bounds(node.uses[0], steps - 1)
    if node.op in _SPREADING or len(node.uses) == 1:
        return low, high
    least, most = bounds(node.uses[1], steps - 1)
    if node.op is range_:
        return (low, symbolic.subtract(most, 1)) if static(node.uses[2]) == 1 else (None, None)
    if node.op is sub:
        return symbolic.subtract(low, most), symbolic.subtract(high, least)
    combine = symbolic.add if node.op is add else symbolic.maximum
    return (combine(low, least), combine(high, most)) if len(node.uses) == 2 else (None, None)


def everywhere(x: Value) -> Dim:
    """The number that all elements of an integer tensor equal, None if unknown."""
    low, high = bounds(x)
    return low if low == high else None


def is_most(small: Value, large: Value) -> bool:
    """Whether no element of ``small`` exceeds any element of ``large``."""
    room = symbolic.subtract(bounds(large)[0], bounds(small)[1])
    return isinstance(room, int) and room >= 0


def counts(x: Value) -> bool:
    """Whether a value is 0, 1, 2, ... along its last axis."""
    node = x.producer
    if node is None:
        return False
    if node.op is range_:
        first, step = static(node.uses[0]), static(node.uses[2])
        return first is not None and step is not None and not first.any() and bool((step == 1).all())
    if node.op in (expand, reshape, unsqueeze):
        inner, outer = known_shape(node.uses[0]), known_shape(x)
        same = inner is not None and outer is not None and inner[-1:] == outer[-1:]
        return same and counts(node.uses[0]) and (node.op is expand or inner is None or all(d == 1 for d in inner[:-1]))
    if node.op is add:
        for one, other in (node.uses, node.uses[::-1]):
            contents = static(other)
            if contents is not None and not contents.any():
                return counts(one)
    return False


def counts_from(x: Value) -> Dim:
    """The start of a value that increases by 1 along its last axis, else None."""
    contents = elements(x)
    if contents and isinstance(contents[0], int) and contents == list(range(contents[0], contents[0] + x.shape[-1])):
        return contents[0]
    if counts(x) or (x.rank and x.shape[-1] == 1):
        return 0 if counts(x) else everywhere(x)
    if x.producer is not None and x.producer.op is add:
        for one, other in (x.producer.uses, x.producer.uses[::-1]):
            start = symbolic.add(everywhere(other), counts_from(one))
            if start is not None:
                return start
    return None


def is_spread(x: Value, *others: Value) -> bool:
    """Whether broadcasting ``x`` with the others surely keeps its shape."""
    full, *shapes = [v.type.shape if isinstance(v.type, TensorType) else None for v in (x, *others)]
    if full is None:
        return all(shape == () for shape in shapes)
    return all(
        shape is not None
        and len(shape) <= len(full)
        and all(b == 1 or (b is not None and a == b) for a, b in zip(full[::-1], shape[::-1], strict=False))
        for shape in shapes
    )


def spread(x: Value, *others: Value) -> Value:
    """``x`` broadcast with the others."""
    if is_spread(x, *others):
        return x
    for other in others:
        x = expand(x, shape(other))
    return x


@less_or_equal.rule("normal")
def less_or_equal_normal(A: Value, B: Value) -> Value | None:
    """A comparison that is always true is a constant."""
    return spread(constant(np.array(True)), A, B) if is_most(A, B) else None


def always_holds(condition: Value) -> bool:
    """Whether all elements are surely true."""
    while condition.producer is not None and condition.producer.op in _SPREADING[:-1]:
        condition = condition.producer.uses[0]
    contents: Any = static(condition)
    return contents is not None and bool(contents.all())
