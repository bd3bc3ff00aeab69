"""Rules ``jax``: ops as functions of JAX arrays and attributes.

Importing a module of this package registers its rules. Packages register rules of their ops by ``op.rule("jax",
function)``. A rule returns ``NotImplemented`` for arguments that JAX does not support; then numpy computes the op,
which cannot be traced. Rules read contents that determine shapes by ``known``.
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
    """Tracing requires a fact that depends on the contents of an array."""


#: Raised by JAX for undecidable comparisons of symbolic dims; older releases have it only in ``jax.core``.
Inconclusive: type[Exception] = (
    getattr(jax.errors, "InconclusiveDimensionOperation", None) or jax.core.InconclusiveDimensionOperation
)


class Unproven(Exception):
    """An export requires a relation between symbolic dims as a constraint."""


def rule(*ops: Op, takes: Callable[..., bool] | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a rule for ops. Calls for which ``takes(*values, **attributes)`` is False use the op's body."""

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
    """Contents that determine a shape. Raises ``DataDependent`` where JAX traces them."""
    if is_traced(contents):
        raise DataDependent(
            "a shape depends on contents that are unknown when JAX compiles", given=f"an array {contents.aval}"
        )
    return np.asarray(contents)


def ints(contents: Any) -> list[int]:
    """Contents of a small array of sizes, indices or axes; symbolic dims of ``jax.export`` stay symbolic."""
    return [n if is_symbolic(n) else int(n) for n in known(contents).reshape(-1).tolist()]


def sizes(dims: Sequence[Any]) -> np.ndarray[Any, Any]:
    """Dims of a shape as known contents: an object array if some are symbolic."""
    return np.array(dims, object if any(map(is_symbolic, dims)) else np.int64)


def is_symbolic(dim: Any) -> bool:
    return jax.export.is_symbolic_dim(dim)


def with_symbols(contents: Any) -> bool:
    """Whether contents are known, and include symbolic dims."""
    return isinstance(contents, np.ndarray) and contents.dtype == object and any(map(is_symbolic, contents.flat))


def traced(contents: Any) -> Any:
    """Contents as a JAX array if they include symbolic dims."""
    if not with_symbols(contents):
        return contents
    dims = [jax.numpy.asarray(dim, "int64") for dim in contents.flat]
    return jax.numpy.stack(dims).reshape(contents.shape)


#: List that collects, for traced indices of each op, whether they are in range; None if nobody reads it.
IN_RANGE: ContextVar[list[Any] | None] = ContextVar("IN_RANGE", default=None)


def in_range(indices: Any, lengths: Any) -> None:
    """Raise ``IndexError`` for an index out of range, which JAX would clamp silently; traced checks are recorded."""
    lengths = traced(np.asarray(lengths)).astype(indices.dtype)
    fit = ((indices >= -lengths) & (indices < lengths)).all()
    noted = IN_RANGE.get()
    if not is_traced(fit):
        if not fit:
            raise IndexError(f"an index is out of range for an axis of length {' or '.join(map(str, lengths.flat))}")
    elif noted is not None:
        noted.append(fit)


def axes_of(axes: Any, rank: int) -> tuple[int, ...]:
    """Non-negative axes; all axes by default."""
    return tuple(range(rank)) if axes is None else tuple(dict.fromkeys(a % rank if rank else 0 for a in ints(axes)))


def filled(value: Sequence[int] | None, number: int, rank: int) -> list[int]:
    """An attribute with one number for each axis, or its default."""
    return [number] * rank if value is None else list(value)


def is_float(array: Any) -> bool:
    return bool(jax.numpy.issubdtype(array.dtype, jax.numpy.inexact))
