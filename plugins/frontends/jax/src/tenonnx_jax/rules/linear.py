"""Linear algebra, as JAX functions with loops."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tenonnx_jax.rules import composed


def _each(function: Any, rank: int, *arrays: Any) -> Any:
    """Apply a function of matrices along the leading axes."""
    for _ in range(arrays[0].ndim - rank):
        function = jax.vmap(function)
    return function(*arrays)


@composed("cholesky")
def cholesky(a: Any, **_: Any) -> Any:
    return _each(_cholesky, 2, a)


def _cholesky(a: Any) -> Any:
    n = a.shape[-1]
    rows = jnp.arange(n)

    def column(k: Any, lower: Any) -> Any:
        row = jnp.where(rows < k, lower[k], 0)
        rest = a[:, k] - lower @ row
        pivot = jnp.sqrt(rest[k])
        return lower.at[:, k].set(jnp.where(rows < k, 0, jnp.where(rows == k, pivot, rest / pivot)))

    found = lax.fori_loop(0, n, column, jnp.zeros_like(a))
    return jnp.where(jnp.isnan(found).any(), jnp.where(rows[:, None] >= rows, jnp.nan, 0), found).astype(a.dtype)


@composed("triangular_solve")
def triangular_solve(
    a: Any, b: Any, *, left_side: bool, lower: bool, transpose_a: bool, unit_diagonal: bool, **_: Any
) -> Any:
    def solve(a: Any, b: Any) -> Any:
        a = jnp.tril(a) if lower else jnp.triu(a)
        a = a.T if transpose_a else a
        if not left_side:
            return _substituted(a.T, b.T, lower != transpose_a, unit_diagonal, flip=True).T
        return _substituted(a, b, lower != transpose_a, unit_diagonal)

    return _each(solve, 2, a, b)


def _substituted(a: Any, b: Any, is_lower: bool, unit: bool, flip: bool = False) -> Any:
    """Solve a x = b by forward or backward substitution."""
    n = a.shape[-1]
    is_lower = is_lower != flip

    def step(k: Any, x: Any) -> Any:
        row = k if is_lower else n - 1 - k
        rest = b[row] - jnp.where(jnp.arange(n) == row, 0, a[row]) @ x
        return x.at[row].set(rest if unit else rest / a[row, row])

    return lax.fori_loop(0, n, step, jnp.zeros_like(b))


@composed("lu")
def lu(a: Any, **_: Any) -> Any:
    return _each(_lu, 2, a)


def _lu(a: Any) -> Any:
    """LU factorization by columns, with partial pivoting."""
    m, n = a.shape
    count = min(m, n)
    rows, columns = jnp.arange(m), jnp.arange(n)

    def step(k: Any, state: Any) -> Any:
        pivots, order, a = state
        size = jnp.where(rows >= k, jnp.abs(a[:, k]), -1)
        best = jnp.argmax(size).astype(jnp.int32)
        pivots = pivots.at[k].set(best)
        swap = jnp.where(rows == k, best, jnp.where(rows == best, k, rows))
        a, order = a[swap], order[swap]
        pivot = a[k, k]
        factor = jnp.where((rows > k) & (pivot != 0), a[:, k] / jnp.where(pivot == 0, 1, pivot), 0)
        a = a - jnp.where(columns > k, factor[:, None] * a[k], 0)
        return pivots, order, a.at[:, k].set(jnp.where(rows > k, jnp.where(pivot == 0, a[:, k], factor), a[:, k]))

    start = (jnp.zeros(count, jnp.int32), jnp.arange(m, dtype=jnp.int32), a)
    pivots, order, result = lax.fori_loop(0, count, step, start)
    return result, pivots, order


@composed("lu_pivots_to_permutation")
def pivots_to_permutation(pivots: Any, *, permutation_size: int, **_: Any) -> Any:
    def permuted(pivots: Any) -> Any:
        def step(k: Any, order: Any) -> Any:
            other = pivots[k]
            a, b = order[k], order[other]
            return order.at[k].set(b).at[other].set(a)

        start = jnp.arange(permutation_size, dtype=jnp.int32)
        return lax.fori_loop(0, pivots.shape[0], step, start)

    return _each(permuted, 1, pivots)


@composed("geqrf")
def geqrf(a: Any, **_: Any) -> Any:
    return _each(_reflected, 2, a)


def _reflected(a: Any) -> Any:
    """Householder reflections in LAPACK's format: vectors below the diagonal, and scalar factors."""
    m, n = a.shape
    count = min(m, n)
    rows = jnp.arange(m)

    def step(k: Any, state: Any) -> Any:
        a, factors = state
        column = jnp.where(rows >= k, a[:, k], 0)
        alpha = a[k, k]
        below = jnp.where(rows > k, column, 0)
        tail = jnp.sqrt(jnp.sum(below * below))
        norm = jnp.sqrt(alpha * alpha + tail * tail)
        beta = jnp.where(alpha >= 0, -norm, norm)
        none = tail == 0
        factor = jnp.where(none, 0, (beta - alpha) / jnp.where(none, 1, beta))
        v = jnp.where(rows == k, 1, jnp.where(rows > k, a[:, k] / jnp.where(none, 1, alpha - beta), 0))
        changed = a - factor * v[:, None] * (v @ a)
        packed = jnp.where(rows > k, v, jnp.where(rows == k, jnp.where(none, alpha, beta), a[:, k]))
        columns = jnp.arange(n)
        a = jnp.where(columns > k, changed, a).at[:, k].set(packed)
        return a, factors.at[k].set(factor)

    return lax.fori_loop(0, count, step, (a, jnp.zeros(count, a.dtype)))


@composed("householder_product")
def householder_product(a: Any, factors: Any, **_: Any) -> Any:
    def product(a: Any, factors: Any) -> Any:
        m, n = a.shape
        count = factors.shape[0]
        rows = jnp.arange(m)

        def step(k: Any, q: Any) -> Any:
            k = count - 1 - k
            v = jnp.where(rows == k, 1, jnp.where(rows > k, a[:, k], 0))
            return q - factors[k] * v[:, None] * (v @ q)

        return lax.fori_loop(0, count, step, jnp.eye(m, n, dtype=a.dtype))

    return _each(product, 2, a, factors)


@composed("qr")
def qr(a: Any, *, full_matrices: bool, **_: Any) -> Any:
    def parts(a: Any) -> Any:
        m, n = a.shape
        packed, factors = geqrf(a)
        wide = m if full_matrices else min(m, n)
        padded = jnp.pad(packed, ((0, 0), (0, max(0, wide - n))))[:, :wide]
        return householder_product(padded, factors), jnp.triu(packed[:wide])

    return _each(parts, 2, a)


def _jacobi(a: Any) -> tuple[Any, Any]:
    """Eigenvalues and eigenvectors of a symmetric matrix, by cyclic Jacobi rotations (Jacobi 1846)."""
    n = a.shape[-1]
    pairs = jnp.asarray([(p, q) for p in range(n) for q in range(p + 1, n)] or [(0, 0)], jnp.int32)

    def rotate(k: Any, state: Any) -> Any:
        a, v = state
        p, q = pairs[k % pairs.shape[0], 0], pairs[k % pairs.shape[0], 1]
        app, aqq, apq = a[p, p], a[q, q], a[p, q]
        none = apq == 0
        theta = (aqq - app) / (2 * jnp.where(none, 1, apq))
        t = jnp.where(theta >= 0, 1, -1) / (jnp.abs(theta) + jnp.sqrt(theta * theta + 1))
        t = jnp.where(none, 0, t)
        c = 1 / jnp.sqrt(t * t + 1)
        s = t * c

        def rotated(x: Any) -> Any:
            first, second = x[:, p], x[:, q]
            return x.at[:, p].set(c * first - s * second).at[:, q].set(s * first + c * second)

        return rotated(rotated(a).T).T, rotated(v)

    sweeps = 10 if n > 1 else 0
    a, v = lax.fori_loop(0, sweeps * pairs.shape[0], rotate, (a, jnp.eye(n, dtype=a.dtype)))
    return jnp.diagonal(a), v


@composed("eigh")
def eigh(a: Any, *, lower: bool, sort_eigenvalues: bool = True, **_: Any) -> Any:
    def values(a: Any) -> Any:
        below = jnp.tril(a) if lower else jnp.triu(a).T
        whole = below + jnp.tril(below, -1).T
        found, vectors = _jacobi(whole)
        order = jnp.argsort(found)
        return vectors[:, order], found[order]

    return _each(values, 2, a)


@composed("svd")
def svd(a: Any, *, full_matrices: bool, compute_uv: bool, **_: Any) -> Any:
    """Singular values by one-sided Jacobi rotations (Hestenes 1958)."""

    def values(a: Any) -> Any:
        m, n = a.shape
        wide = m < n
        x = a.T if wide else a
        u, s, v = _one_sided(x)
        if not compute_uv:
            return (s,)
        if full_matrices and m != n:
            u = _completed(u)
        return (s, v, u.T) if wide else (s, u, v.T)

    result = _each(values, 2, a)
    return result if compute_uv else result[0]


def _one_sided(a: Any) -> tuple[Any, Any, Any]:
    n = a.shape[-1]
    pairs = jnp.asarray([(p, q) for p in range(n) for q in range(p + 1, n)] or [(0, 0)], jnp.int32)

    def rotate(k: Any, state: Any) -> Any:
        a, v = state
        p, q = pairs[k % pairs.shape[0], 0], pairs[k % pairs.shape[0], 1]
        x, y = a[:, p], a[:, q]
        alpha, beta, gamma = x @ x, y @ y, x @ y
        none = gamma == 0
        zeta = (beta - alpha) / (2 * jnp.where(none, 1, gamma))
        t = jnp.where(none, 0, jnp.where(zeta >= 0, 1, -1) / (jnp.abs(zeta) + jnp.sqrt(1 + zeta * zeta)))
        c = 1 / jnp.sqrt(1 + t * t)
        s = c * t

        def rotated(x: Any) -> Any:
            first, second = x[:, p], x[:, q]
            return x.at[:, p].set(c * first - s * second).at[:, q].set(s * first + c * second)

        return rotated(a), rotated(v)

    sweeps = 12 if n > 1 else 0
    a, v = lax.fori_loop(0, sweeps * pairs.shape[0], rotate, (a, jnp.eye(n, dtype=a.dtype)))
    size = jnp.sqrt(jnp.sum(a * a, 0))
    order = jnp.argsort(-size)
    size, a, v = size[order], a[:, order], v[:, order]
    return a / jnp.where(size == 0, 1, size), size, v


def _completed(u: Any) -> Any:
    """Orthonormal columns, extended to a square matrix."""
    packed, factors = geqrf(u)
    m, n = u.shape
    whole = householder_product(jnp.pad(packed, ((0, 0), (0, m - n))), factors)
    return jnp.concatenate([u, whole[:, n:]], 1)
