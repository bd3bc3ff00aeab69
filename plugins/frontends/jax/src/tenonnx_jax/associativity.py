"""Test of functions for associativity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

#: Number of random triples that a function is tried on.
_TRIPLES = 512


def is_associative(jaxpr: Any, dtypes: Sequence[Any]) -> bool:
    """Whether f(f(a, b), c) equals f(a, f(b, c)), up to rounding, for random a, b and c of all sizes.

    ``jaxpr`` maps two tuples of scalars of ``dtypes``, flattened, to one.
    """
    draw = np.random.default_rng(0)
    a, b, c = ([_numbers(draw, dtype) for dtype in dtypes] for _ in range(3))

    def combined(left: Any, right: Any) -> Any:
        return jax.vmap(lambda *each: jax.core.eval_jaxpr(jaxpr, [], *each))(*left, *right)

    largest = np.max([np.abs(np.asarray(x, np.float64)) for x in (*a, *b, *c)], axis=0)
    results = zip(combined(combined(a, b), c), combined(a, combined(b, c)), strict=True)
    return all(_are_near(*pair, largest) for pair in results)


def _numbers(draw: np.random.Generator, dtype: Any) -> Any:
    """Zeros, small whole numbers, and numbers of many magnitudes."""
    magnitudes = draw.normal(size=_TRIPLES) * 10 ** draw.uniform(-2, 3, _TRIPLES)
    drawn = np.stack([np.zeros(_TRIPLES), draw.integers(-3, 4, _TRIPLES), magnitudes])
    return jnp.asarray(drawn[draw.integers(0, 3, _TRIPLES), np.arange(_TRIPLES)]).astype(dtype)


def _are_near(x: Any, y: Any, largest: Any) -> bool:
    one, other = np.asarray(x, np.float64), np.asarray(y, np.float64)
    near = 0.0
    if jnp.issubdtype(x.dtype, jnp.floating):
        near = 32 * float(jnp.finfo(x.dtype).eps)
    with np.errstate(invalid="ignore"):
        close = np.abs(one - other) <= near * np.maximum(largest, np.abs(one))
    return bool((close | (one == other) | (np.isnan(one) & np.isnan(other))).all())
