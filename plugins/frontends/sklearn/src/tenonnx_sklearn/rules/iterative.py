"""Iterative solvers for each row, with the same steps as the estimator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import add
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, TensorType, Value, subgraph
from tenonnx_frontends.gamma import digamma_above_zero
from tenonnx_sklearn.algebra import beside, cast, column, columns, double, is_zero, smallest, total, upright
from tenonnx_sklearn.conversion import Outputs, converts, refusal
from tenonnx_sklearn.rules.neighbors import distances

ROWS = np.array([0], np.int64)
EACH = np.array([0, 1], np.int64)


def repeated(step: Callable[..., Sequence[Value]], state: Sequence[Value], limit: int) -> list[Value]:
    """Repeat ``step(number, *state)``, which returns whether to go on and the next state, at most ``limit`` times."""
    scalar = TensorType(DType.int64, ())
    formals = [("number", scalar), ("goes_on", scalar.with_dtype(DType.bool))]
    formals += [(f"held_{k}", value.type) for k, value in enumerate(state)]
    body = subgraph(lambda number, _, *states: list(step(number, *states)), formals)
    found = ops.loop(np.int64(limit), None, *state, body=body)
    return [found] if isinstance(found, Value) else list(found)


def sum_of(X: Value) -> Value:
    """The sum of all elements of a matrix."""
    return ops.reduce_sum(X, EACH, keepdims=0)


def any_of(mask: Value) -> Value:
    """Whether any element of a boolean column is true; false for no rows."""
    return ops.reduce_sum(cast(mask, DType.int64), EACH, keepdims=0) > 0


# ----- non-negative matrix factorization ------------------------------------------------------------------------------


@converts("sklearn.NMF")
def factors(model: Any, X: Value) -> Outputs:
    """NMF. Convergence is tested over all rows, so that rows affect each other, as in scikit-learn."""
    rows, H = double(X), np.asarray(model.components_, np.float64)
    if model.solver == "mu":
        return {"transform": cast(_multiplied_to_tolerance(model, rows, H), X.dtype)}
    if model.shuffle:
        raise refusal(model, "shuffle=True, which draws an order at random")
    l1, l2 = _penalties(model)
    gram, near = H @ H.T + l2 * np.eye(len(H)), rows @ H.T - l1

    def sweep(number: Value, W: Value, first: Value) -> list[Value]:
        slopes, parts, violation = W @ gram - near, [], None
        for t in range(len(H)):
            w, slope = columns(W, [t]), columns(slopes, [t])
            missed = sum_of(ops.absolute(ops.where(is_zero(w), ops.minimum(slope, np.float64(0)), slope)))
            violation = missed if violation is None else violation + missed
            moved = ops.relu(w - slope / float(gram[t, t])) if gram[t, t] else w
            slopes = slopes + (moved - w) * gram[t][None]
            parts.append(moved)
        assert violation is not None
        first = ops.where(ops.equal(number, np.int64(0)), violation, first)
        return [violation > first * float(model.tol), beside(parts), first]

    start = rows @ np.zeros((X.shape[1], len(H)))
    found, _ = repeated(sweep, [start, sum_of(start)], model.max_iter)
    return {"transform": cast(found, X.dtype)}


@converts("sklearn.MiniBatchNMF")
def factors_of_batches(model: Any, X: Value) -> Outputs:
    rows, H = double(X), np.asarray(model.components_, np.float64)

    def update(_: Value, W: Value) -> list[Value]:
        found = _multiplied(model, rows, W, H)
        change = ops.sqrt(sum_of((found - W) * (found - W))) / ops.sqrt(sum_of(found * found))
        return [ops.not_(change <= float(model.tol if model.tol > 0 else -1)), found]

    limit = model._transform_max_iter
    return {"transform": cast(repeated(update, [_even(rows, H)], limit)[0], X.dtype)}


def _penalties(model: Any) -> tuple[float, float]:
    features = model.n_features_in_
    return features * model.alpha_W * model.l1_ratio, features * model.alpha_W * (1.0 - model.l1_ratio)


def _even(rows: Value, H: Any) -> Value:
    """Common initialization of both multiplicative solvers."""
    mean = ops.reduce_mean(rows, EACH, keepdims=1) / float(len(H))
    return rows @ np.zeros((H.shape[1], len(H))) + ops.sqrt(mean)


def _beta(model: Any) -> float:
    return {"frobenius": 2.0, "kullback-leibler": 1.0, "itakura-saito": 0.0}.get(model.beta_loss, model.beta_loss)


EPSILON = float(np.finfo(np.float32).eps)


def _multiplied(model: Any, rows: Value, W: Value, H: Any) -> Value:
    """One multiplicative update, which keeps numbers non-negative."""
    beta, (l1, l2) = _beta(model), _penalties(model)
    if beta == 2:
        above, below = rows @ H.T, W @ (H @ H.T)
    else:
        product = W @ H
        safe = ops.maximum(product, np.float64(EPSILON))
        above = (rows * ops.pow_(safe if beta < 2 else product, np.float64(beta - 2))) @ H.T
        bounded = safe if beta < 1 else product
        below = W * 0.0 + H.sum(axis=1) if beta == 1 else ops.pow_(bounded, np.float64(beta - 1)) @ H.T
    below = below + l1 if l1 > 0 else below
    below = below + W * l2 if l2 > 0 else below
    share = above / ops.where(is_zero(below), np.float64(EPSILON), below)
    power = 1 / (2 - beta) if beta < 1 else 1 / (beta - 1) if beta > 2 else 1.0
    return W * (share if power == 1 else ops.pow_(share, np.float64(power)))


def _multiplied_to_tolerance(model: Any, rows: Value, H: Any) -> Value:
    """Multiplicative updates with a convergence test every ten steps."""
    beta = _beta(model)

    def ten_updates(_: Value, W: Value, before: Value, first: Value) -> list[Value]:
        for _step in range(10):
            W = _multiplied(model, rows, W, H)
            if beta < 1:
                W = ops.where(float(np.finfo(np.float64).eps) > W, np.float64(0), W)
        error = _divergence(beta, rows, W, H)
        goes_on = ops.not_((before - error) / first < float(model.tol if model.tol > 0 else -np.inf))
        return [goes_on, W, error, first]

    if model.max_iter % 10:
        raise refusal(model, f"max_iter={model.max_iter}, which is not a multiple of ten")
    start = _even(rows, H)
    error = _divergence(beta, rows, start, H)
    return repeated(ten_updates, [start, error, error], model.max_iter // 10)[0]


def _divergence(beta: float, rows: Value, W: Value, H: Any) -> Value:
    product = W @ H
    if beta == 2:
        gap = rows - product
        return ops.sqrt(sum_of(gap * gap))
    counted = rows > EPSILON
    x = ops.where(counted, rows, np.float64(1))
    y = ops.where(counted, ops.maximum(product, np.float64(EPSILON)), np.float64(1))
    if beta == 1:  # log of 1 where there are no counts
        found = sum_of(x * ops.log(x / y)) + sum_of(product) - sum_of(ops.where(counted, rows, np.float64(0)))
    elif beta == 0:
        ratio = x / y
        found = sum_of(ops.where(counted, ratio - 1.0, np.float64(0))) - sum_of(ops.log(ratio))
        found = found - sum_of(ops.where(counted, np.float64(0), np.float64(1)))
    else:
        powers = ops.pow_(x, np.float64(beta)) - x * ops.pow_(y, np.float64(beta - 1)) * beta
        found = sum_of(ops.where(counted, powers, np.float64(0)))
        found = (found + sum_of(ops.pow_(product, np.float64(beta))) * (beta - 1)) / (beta * (beta - 1))
    return ops.sqrt(ops.relu(found) * 2.0)


# ----- topics ---------------------------------------------------------------------------------------------------------


@converts("sklearn.LatentDirichletAllocation")
def topics(model: Any, X: Value) -> Outputs:
    """LDA: each row stops as soon as its topics converge."""
    rows, words = double(X), np.asarray(model.exp_dirichlet_component_, np.float64)
    count, tiny = len(words), float(np.finfo(np.float32 if X.dtype is DType.float32 else np.float64).eps)

    def expected(topics: Value) -> Value:
        return ops.exp(digamma_above_zero(topics) - digamma_above_zero(total(topics, keepdims=True)))

    def step(_: Value, topics: Value, weights: Value, active: Value) -> list[Value]:
        share = rows / (weights @ words + tiny)
        found = weights * (share @ words.T) + float(model.doc_topic_prior_)
        change = total(ops.absolute(found - topics), keepdims=True) / float(count)
        topics, weights = ops.where(active, found, topics), ops.where(active, expected(found), weights)
        active = ops.and_(active, ops.not_(change < float(model.mean_change_tol)))
        return [any_of(active), topics, weights, active]

    start = rows @ np.zeros((X.shape[1], count)) + 1.0
    active = total(start, keepdims=True) > 0.0
    found, *_ = repeated(step, [start, expected(start), active], model.max_doc_update_iter)
    return {"transform": cast(found / total(found, keepdims=True), X.dtype)}


# ----- sparse codes ---------------------------------------------------------------------------------------------------

#: Maximum condition number of the Gram matrix at which all lasso solvers agree.
REGULAR = 1e4


@converts("sklearn.DictionaryLearning", "sklearn.MiniBatchDictionaryLearning", "sklearn.SparseCoder")
def sparse_codes(model: Any, X: Value) -> Outputs:
    atoms = np.asarray(model.dictionary if hasattr(model, "dictionary") else model.components_, np.float64)
    alpha = getattr(model, "alpha", None) if model.transform_alpha is None else model.transform_alpha
    alpha = 1.0 if alpha is None else float(alpha)
    near, gram, kind = double(X) @ atoms.T, atoms @ atoms.T, model.transform_algorithm
    if kind == "threshold":
        size = near if model.positive_code else ops.absolute(near)
        code = ops.relu(size - alpha) * (1.0 if model.positive_code else ops.sign(near))
    elif kind == "omp":
        chosen = model.transform_n_nonzero_coefs
        chosen = min(max(X.shape[1] / 10, 1), len(atoms)) if chosen is None else chosen
        code = _matching_pursuit(near, gram, int(chosen))
    elif kind in ("lasso_cd", "lasso_lars"):
        if np.linalg.cond(gram) > REGULAR:
            raise refusal(model, f"transform_algorithm={kind} for linearly dependent atoms: it stops near the minimum")
        if kind == "lasso_lars" and model.positive_code:
            raise refusal(model, f"transform_algorithm={kind} with positive_code, which does not reach the minimum")
        code = _lasso(near, gram, alpha, bool(model.positive_code))
    else:
        raise refusal(model, f"transform_algorithm={kind}, which follows a regularization path for each row")
    if model.split_sign:
        code = beside([ops.relu(code), ops.relu(-code)])
    return {"transform": cast(code, X.dtype)}


def _matching_pursuit(near: Value, gram: Any, count: int) -> Value:
    """Orthogonal matching pursuit: ``count`` times the atom closest to the residual, with least-squares weights.

    Atoms are orthogonalized one by one (a Cholesky factor whose rows span all atoms). Each step subtracts one multiple
    from the residual; the weights follow by back substitution.
    """
    tiny = float(np.finfo(np.float64).eps)
    left, going = near, total(near * 0.0, keepdims=True) + 1.0 > 0.0
    rows: list[Value] = []
    marks: list[Value] = []
    shares: list[Value] = []
    for _ in range(count):
        place = upright(ops.argmax(ops.absolute(left), axis=1, keepdims=0))
        best = ops.gather_elements(left, place, axis=1)
        row = ops.gather(gram, ops.squeeze(place, np.array([1], np.int64)), axis=0)
        for other in rows:
            row = row - other * ops.gather_elements(other, place, axis=1)
        size = ops.gather_elements(row, place, axis=1)
        going = ops.and_(going, ops.and_(best * best >= tiny, size > tiny))
        length = ops.sqrt(ops.where(going, size, np.float64(1)))
        row = ops.where(going, row / length, np.float64(0))
        share = ops.where(going, best / length, np.float64(0))
        left = left - row * share
        rows.append(row)
        shares.append(share)
        marks.append(ops.where(going, cast(ops.equal(place, np.arange(len(gram))[None]), DType.float64), np.float64(0)))
    code = near * 0.0
    weights: list[Value] = []
    for k in reversed(range(count)):
        size = total(rows[k] * marks[k], keepdims=True)
        weight = shares[k]
        for later, mark in zip(weights, reversed(marks[k + 1 :]), strict=True):
            weight = weight - later * total(rows[k] * mark, keepdims=True)
        weight = weight / ops.where(is_zero(size), np.float64(1), size)
        weights.append(weight)
        code = code + marks[k] * weight
    return code


def _lasso(near: Value, gram: Any, alpha: float, positive: bool) -> Value:
    """Coordinate descent until convergence; any solver finds the minimum of this convex function."""

    def sweep(_: Value, W: Value) -> list[Value]:
        slopes, parts = near - W @ gram, []
        for t in range(len(gram)):
            w = columns(W, [t])
            if not gram[t, t]:
                parts.append(w)
                continue
            aim = columns(slopes, [t]) + w * float(gram[t, t])
            size = ops.relu((aim if positive else ops.absolute(aim)) - alpha) / float(gram[t, t])
            moved = size if positive else size * ops.sign(aim)
            slopes = slopes - (moved - w) * gram[t][None]
            parts.append(moved)
        found = beside(parts)
        moving = ops.absolute(found - W) > (ops.absolute(found) + 1e-3) * 1e-9
        return [any_of(moving), found]

    return repeated(sweep, [near * 0.0], 5000)[0]


# ----- neighbors and votes -------------------------------------------------------------------------------------------


@converts("sklearn.LocallyLinearEmbedding")
def locally_linear(model: Any, X: Value) -> Outputs:
    """Reconstruct a row from its nearest points, and apply the weights to their embedding."""
    points, count = np.asarray(model.nbrs_._fit_X, np.float64), model.n_neighbors
    _, place = smallest(distances(model.nbrs_, X), count)
    gaps = ops.gather(points, place, axis=0) - ops.unsqueeze(double(X), np.array([1], np.int64))
    products = ops.matmul(gaps, ops.transpose(gaps, perm=[0, 2, 1]))
    unit = np.eye(count)
    trace = ops.reduce_sum(products * unit, np.array([1, 2], np.int64), keepdims=1)
    more = ops.where(trace > 0.0, trace, np.float64(1)) * float(model.reg)
    weights = solved(products + more * unit, count)
    weights = weights / ops.reduce_sum(weights, np.array([1], np.int64), keepdims=1)
    laid = ops.gather(np.asarray(model.embedding_, np.float64), place, axis=0)
    return {"transform": cast(ops.reduce_sum(laid * weights, np.array([1], np.int64), keepdims=0), X.dtype)}


def solved(matrices: Value, size: int) -> Value:
    """Solve ``matrix @ x = 1`` for positive definite matrices: ``[rows, size, 1]``."""
    A = ops.concat(matrices, ops.reduce_sum(matrices * 0.0, np.array([2], np.int64), keepdims=1) + 1.0, axis=2)
    for k in range(size):
        pivot = ops.gather(A, np.array([k], np.int64), axis=1)
        pivot = pivot / ops.gather(pivot, np.array([k], np.int64), axis=2)
        rest = ops.gather(A, np.array([k], np.int64), axis=2) * (np.arange(size) != k)[None, :, None].astype(np.float64)
        A = ops.where((np.arange(size) == k)[None, :, None], pivot, A - rest * pivot)
    return ops.gather(A, np.array([size], np.int64), axis=2)


def coupled(pairs: Sequence[tuple[int, int]], firsts: Value, count: int) -> Value:
    """Class probabilities from pairwise ones by libsvm's iteration, until convergence.

    ``firsts`` is the probability of the first class of each pair, ``float64[rows, pairs]``.
    """
    r = {pair: column(firsts, k) for k, pair in enumerate(pairs)}
    r |= {(j, i): 1.0 - p for (i, j), p in list(r.items())}
    Q = {
        (t, j): -r[j, t] * r[t, j]
        if j != t
        else sum((r[j, t] * r[j, t] for j in range(count) if j != t), np.float64(0))
        for t in range(count)
        for j in range(count)
    }
    near = 0.005 / count

    def step(_: Value, P: Value, active: Value) -> list[Value]:
        p = [column(P, t) for t in range(count)]
        Qp = [reduce(add, [Q[t, j] * p[j] for j in range(count)]) for t in range(count)]
        pQp = reduce(add, [p[t] * Qp[t] for t in range(count)])
        far = reduce(add, [cast(ops.absolute(each - pQp) >= near, DType.float64) for each in Qp])
        active = ops.and_(active, upright(far) > 0.0)
        for t in range(count):
            change = (pQp - Qp[t]) / Q[t, t]
            grown = change + 1.0
            p[t] = p[t] + change
            pQp = (pQp + change * (change * Q[t, t] + Qp[t] * 2.0)) / (grown * grown)
            Qp = [(Qp[j] + change * Q[t, j]) / grown for j in range(count)]
            p = [each / grown for each in p]
        return [any_of(active), ops.where(active, beside(p), P), active]

    start = beside([column(firsts, 0) * 0.0 + 1 / count] * count)
    result, _ = repeated(step, [start, total(start, keepdims=True) > 0.0], max(100, count))
    return result
