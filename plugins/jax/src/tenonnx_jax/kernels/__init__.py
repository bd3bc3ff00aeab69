"""What JAX knows of ops: rules ``jax``, which take arrays and the attributes.

Importing a module of this package registers its rules. A package gives its own ops such rules by
``op.rule("jax", function)``. A rule returns ``NotImplemented`` where JAX has no form for its arguments; then numpy
computes, which cannot be traced. What decides a shape is asked for by ``known``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import jax
import numpy as np

from tenonnx.extend import NotRepresentable, Op, add_rule, rule_kind

JAX = rule_kind("jax", "arrays, then attributes; an array, a tuple, or NotImplemented")


class DataDependent(NotRepresentable):
    """What must be known while JAX traces depends on the contents of an array."""


def rule(*ops: Op, takes: Callable[..., bool] | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give ops a rule. Calls for which ``takes``, called with values and attributes, is False go by the body."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for op in ops:

            def held(*args: Any, **attributes: Any) -> Any:
                return function(*args, **attributes)

            held.takes = takes  # type: ignore[attr-defined]
            add_rule(op, JAX.name, held)
        return function

    return register


def is_traced(contents: Any) -> bool:
    return isinstance(contents, jax.core.Tracer)


def known(contents: Any) -> np.ndarray[Any, Any]:
    """The contents of what decides a shape. Raises ``DataDependent`` while JAX traces them."""
    if is_traced(contents):
        raise DataDependent("what decides a shape must be known when JAX compiles", given=f"an array {contents.aval}")
    return np.asarray(contents)


def ints(contents: Any) -> list[int]:
    """The contents of a small array of sizes, positions or axes."""
    return [int(n) for n in known(contents).reshape(-1).tolist()]


#: Whether indices that JAX traces are in range, one array for each op with indices, where somebody looks at it.
IN_RANGE: ContextVar[list[Any] | None] = ContextVar("IN_RANGE", default=None)


def in_range(indices: Any, lengths: Any) -> None:
    """Raise ``IndexError`` for an index out of range; JAX takes another element in silence. What is traced is noted."""
    lengths = np.asarray(lengths).astype(indices.dtype)
    fit = ((indices >= -lengths) & (indices < lengths)).all()
    noted = IN_RANGE.get()
    if not is_traced(fit):
        if not fit:
            raise IndexError(f"an index is out of range for an axis of length {' or '.join(map(str, lengths.flat))}")
    elif noted is not None:
        noted.append(fit)


def axes_of(axes: Any, rank: int) -> tuple[int, ...]:
    """Axes counted from the front, all of them where none are given."""
    return tuple(range(rank)) if axes is None else tuple(dict.fromkeys(a % rank if rank else 0 for a in ints(axes)))


def filled(value: Sequence[int] | None, number: int, rank: int) -> list[int]:
    """An attribute with a number for each axis, or its default."""
    return [number] * rank if value is None else list(value)


def is_float(array: Any) -> bool:
    return bool(jax.numpy.issubdtype(array.dtype, jax.numpy.inexact))
