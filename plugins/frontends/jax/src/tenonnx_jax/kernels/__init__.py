"""Rules ``jax``: ops as functions of JAX arrays and attributes.

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
    """A fact needed while JAX traces depends on the contents of an array."""


#: Raised by JAX where symbolic dims do not say what is asked; older releases have it in ``jax.core`` alone.
Inconclusive: type[Exception] = (
    getattr(jax.errors, "InconclusiveDimensionOperation", None) or jax.core.InconclusiveDimensionOperation
)


class Unproven(Exception):
    """A relation between symbolic dims that an export has to be given as a constraint."""


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
        raise DataDependent(
            "a shape depends on contents that are unknown when JAX compiles", given=f"an array {contents.aval}"
        )
    return np.asarray(contents)


def ints(contents: Any) -> list[int]:
    """The contents of a small array of sizes, positions or axes; symbolic dims of ``jax.export`` stay symbolic."""
    return [n if is_symbolic(n) else int(n) for n in known(contents).reshape(-1).tolist()]


def sizes(dims: Sequence[Any]) -> np.ndarray[Any, Any]:
    """Dims of a shape as known contents: an array of objects where some are symbolic."""
    return np.array(dims, object if any(map(is_symbolic, dims)) else np.int64)


def is_symbolic(dim: Any) -> bool:
    return jax.export.is_symbolic_dim(dim)


def with_symbols(contents: Any) -> bool:
    """Whether contents are known but for symbolic dims."""
    return isinstance(contents, np.ndarray) and contents.dtype == object and any(map(is_symbolic, contents.flat))


def traced(contents: Any) -> Any:
    """Contents as JAX traces them, if symbolic dims are among them."""
    if not with_symbols(contents):
        return contents
    dims = [jax.numpy.asarray(dim, "int64") for dim in contents.flat]
    return jax.numpy.stack(dims).reshape(contents.shape)


#: Whether indices that JAX traces are in range, one array for each op with indices, where somebody looks at it.
IN_RANGE: ContextVar[list[Any] | None] = ContextVar("IN_RANGE", default=None)


def in_range(indices: Any, lengths: Any) -> None:
    """Raise ``IndexError`` for an index out of range; JAX takes another element in silence. What is traced is noted."""
    lengths = traced(np.asarray(lengths)).astype(indices.dtype)
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
