"""TreeSHAP: exact Shapley values of tree ensembles.

A leaf contributes its vote times the product of the conditions on its path. The Shapley value of a feature in that
product is (o - z) times an integral over t in [0, 1] of a product of a factor t o + (1 - t) z for each other feature.
Here o is 1 if the row passes the conditions of that feature, else 0. z is the fraction of reference rows that pass
them: training rows (path dependent, Lundberg et al., 2018), or one background row (interventional). The integrand is a
polynomial, so that Gauss-Legendre quadrature is exact, as in Linear TreeSHAP (Yu et al., 2022). The leaves of all trees
are computed at once, by MatMuls.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Graph, InvalidCall, TensorType, Value, subgraph
from tenonnx_explain.affine import affine_values, last_affine
from tenonnx_explain.columns import features_of_columns
from tenonnx_explain.parts import Explained, free_name, repeated
from tenonnx_explain.structure import PathGroup, Paths, mean_votes, paths_of, with_inner
from tenonnx_explain.trees import Forest, forests

Array = np.ndarray[Any, Any]

#: A function from the failed features of the paths of each group to the effects, both ``[paths, features, rows]``.
Effects = Callable[[list[Value]], list[Value]]

#: Lower bound of a fraction of training rows, whose logarithm is finite.
_LEAST = 1e-20

#: Maximum number of elements of an array of paths, their features, and rows, so that it fits into the cache.
_BLOCK = 1 << 20

#: Number of background rows compared at once.
_BACKGROUND = 32

#: Number of terms summed at once.
_SEGMENT = 32


def tree_shap(graph: Graph, of: Value | None, background: Value | None, rows: Array | None) -> dict[str, Value]:
    """Shapley values ``[rows, features]`` or ``[rows, features, outputs]`` of a value that is affine in tree scores.

    ``of`` is by default an output, else the last such value: the margin before a logistic function or softmax. Without
    a ``background``, a feature outside of a coalition follows both branches of a node, weighted by the numbers of
    training rows, or of ``rows`` if given. Raises ``InvalidCall`` for a model without tree ensembles, another ``of``,
    and missing counts of rows.
    """
    ensembles = forests(graph)
    if not ensembles:
        raise InvalidCall("the model has no tree ensemble", do="use kernel-shap")
    scores = [forest.scores for forest in ensembles]
    affine = affine_values(graph, scores)
    of = last_affine(graph, scores) if of is None else of
    if of not in affine:
        raise InvalidCall(
            f'"{of.name}" is not a sum of tree scores',
            available=", ".join(value.name for value in affine),
            do="explain one of these, or use kernel-shap",
        )
    read = [forest for forest in ensembles if _reads(graph, of, forest.scores)]
    x, groups = features_of_columns(graph, [forest.X for forest in read])
    features = int(max(each.max(initial=-1) for each in groups)) + 1
    width = x.shape[1] if x.rank == 2 else None
    features = width if isinstance(width, int) else features
    parts, means = [], []
    for forest, feature_of in zip(read, groups, strict=True):
        columns = None if background is None else _background_columns(graph, x, forest.X, background)
        cover = _cover(graph, forest, x, rows) if background is None else None
        parts.append(_of_forest(forest, feature_of, features, columns, cover))
        means.append(None if cover is None else mean_votes(forest, cover))
    return _through_affine(graph, of, read, parts, means, x, background)


def _reads(graph: Graph, of: Value, scores: Value) -> bool:
    """Whether ``of`` depends on ``scores``."""
    wanted = {of}
    for node in reversed(graph.nodes):
        if wanted.intersection(value for value in node.outputs if value is not None):
            wanted.update(node.uses)
    return scores in wanted


def _background_columns(graph: Graph, x: Value, X: Value, background: Value) -> Value:
    """The background rows ``X`` that the trees read, computed from background rows of ``x``."""
    return background if x is X else Explained(graph, X, [x], None).function([x])(background)[0]


def _cover(graph: Graph, forest: Forest, x: Value, rows: Array | None) -> Array:
    """The number of rows that reach each slot: of ``rows`` if given, else of training rows.

    Raises ``InvalidCall`` if neither is known.
    """
    if forest.cover is not None and rows is None:
        return with_inner(forest, forest.cover)
    if rows is None:
        raise InvalidCall(
            "the tree ensemble has no count of training rows per leaf",
            given=f'nodes_hitrates of the trees of "{forest.scores.name}" are missing, or the same for all nodes',
            do="give rows to count: --background",
        )
    data = np.asarray(rows, x.dtype.numpy)
    if x is not forest.X:
        part = Explained(graph, forest.X, [x], None).subgraph([x])
        data = np.asarray(part.run({x.name: data}, backend="numpy")[forest.X.name])
    data = data.astype(forest.thresholds.dtype)
    if forest.lowered:
        replaceable = data[:, : forest.lowered]
        data = np.concatenate([np.where(np.isnan(replaceable), -np.inf, replaceable), data], axis=1)
    counts = np.zeros(len(forest.following))
    for root in range(forest.roots):
        slots = np.full(len(data), root)
        while (forest.following[slots] != slots).any():
            below = data[np.arange(len(data)), forest.features[slots]] <= forest.thresholds[slots]
            leaf = forest.following[slots] == slots
            slots = np.where(leaf, slots, forest.following[slots] + below)
        np.add.at(counts, slots, 1)
    return with_inner(forest, counts)


def _through_affine(
    graph: Graph,
    of: Value,
    read: list[Forest],
    parts: list[Value],
    means: list[Array | None],
    x: Value,
    background: Value | None,
) -> dict[str, Value]:
    """Attributions of ``of``: those of the scores (``parts``), mapped by the affine function from scores to ``of``."""
    scores = [forest.scores for forest in read]
    is_flat = of.ndim < 2
    function = (lambda *inputs: list(inputs)) if scores == [of] else Explained(graph, of, scores, None).function(scores)
    flat, zeros = [], []
    for part, score in zip(parts, scores, strict=True):
        columns = part.shape[-1]
        rows = ops.cast(ops.reshape(part, np.array([-1, columns], np.int64)), to=score.dtype)
        flat.append(ops.reshape(rows, np.array([-1], np.int64)) if score.ndim < 2 else rows)
        zeros.append(ops.zeros_like(flat[-1]))
    change = function(*flat)[0] - function(*zeros)[0]
    features = parts[0].shape[1]
    tail = [] if is_flat else [of.shape[-1] if isinstance(of.shape[-1], int) else -1]
    shape = [-1, features, *tail] if tail != [-1] else [0, features, -1]
    attribution = ops.reshape(change, np.array(shape, np.int64))
    if background is not None:
        base = ops.reduce_mean(Explained(graph, of, [x], None).function([x])(background)[0], [0], keepdims=1)
    else:
        mean_scores = [
            ops.cast(np.asarray(mean, np.float64).reshape(1, -1) if s.ndim > 1 else np.asarray(mean), to=s.dtype)
            for mean, s in zip(means, scores, strict=True)
        ]
        base = function(*mean_scores)[0]
    total = ops.reduce_sum(attribution, [1], keepdims=0)
    return {
        f"{x.name}/attribution": attribution,
        f"{of.name}/expected": ops.squeeze(base, [0]),
        f"{of.name}/delta": total - (of - base),
    }


# ----- one ensemble ---------------------------------------------------------------------------------------------------


def _of_forest(forest: Forest, groups: Array, features: int, background: Value | None, cover: Array | None) -> Value:
    """Shapley values of the scores of an ensemble: ``[rows, features, columns]``."""
    dtype = DType.of(forest.thresholds.dtype)
    columns = forest.votes.shape[1]
    parts: list[Value | None] = [None] * columns
    rows = _tree_columns(forest, forest.X, dtype)
    background_rows = None if background is None else _tree_columns(forest, background, dtype)
    for roots, together in _by_columns(forest):
        paths = paths_of(forest, groups, roots, together, cover)
        if not paths.count:
            continue
        values = _of_paths(paths, rows, background_rows, features, dtype)
        for place, column in enumerate(together):
            parts[column] = values[place]
    zeros = ops.zeros_like(rows[:, :1]) + np.zeros((1, features), dtype.numpy)
    return ops.concat(*(ops.unsqueeze(zeros if part is None else part, [2]) for part in parts), axis=2)


def _by_columns(forest: Forest) -> list[tuple[Array, Array]]:
    """Groups of trees that vote for the same columns: one column for boosting, all columns for a random forest."""
    leaf = forest.leaf
    voting = np.zeros((forest.roots, forest.votes.shape[1]), bool)
    for root in range(forest.roots):
        slots = np.array([root])
        while len(slots):
            voting[root] |= (forest.votes[slots[leaf[slots]]] != 0).any(axis=0)
            inner = slots[~leaf[slots]]
            slots = np.concatenate([forest.following[inner], forest.following[inner] + 1])
    sets: dict[bytes, list[int]] = {}
    for column in range(voting.shape[1]):
        sets.setdefault(voting[:, column].tobytes(), []).append(column)
    return [(np.flatnonzero(voting[:, together[0]]), np.array(together)) for together in sets.values()]


def _tree_columns(forest: Forest, X: Value, dtype: DType) -> Value:
    """The columns that ``forest.features`` indexes: first those with minus infinity in place of NaN, then all."""
    x = X if X.dtype is dtype else ops.cast(X, to=dtype)
    if not forest.lowered:
        return x
    part = x[:, : forest.lowered]
    return ops.concat(ops.where(ops.isnan(part), float("-inf"), part), x, axis=1)


def _of_paths(paths: Paths, rows: Value, background: Value | None, features: int, dtype: DType) -> list[Value]:
    """Shapley values ``[rows, features]`` for each column of votes, computed by a Scan over blocks of rows."""
    block = max(1, min(1024, _BLOCK // sum(group.edges.size for group in paths.groups)))
    columns = rows.shape[1]
    count = ops.shape(rows, end=1)  # at least one block, since runtimes reject an empty Scan
    blocks = ops.div(ops.maximum(count, np.int64(1)) + np.array([block - 1], np.int64), np.array([block], np.int64))
    missing = ops.mul(blocks, np.array([block], np.int64)) - count
    zero = np.array([0], np.int64)
    padded = ops.pad(rows, ops.concat(zero, zero, missing, zero, axis=0), np.zeros((), dtype.numpy))
    cut = ops.reshape(padded, np.array([-1, block, columns], np.int64))
    assert rows.graph is not None
    if background is None:
        effects = _path_dependent(paths, rows.graph, dtype)
    else:
        effects = _interventional(paths, background, dtype)

    def step(part: Value) -> list[Value]:
        failed = _failed(paths, part, dtype)
        terms = effects([ops.gather(failed, group.edges) for group in paths.groups])
        sums = [_by_feature(each, group, features, dtype) for each, group in zip(terms, paths.groups, strict=True)]
        total = functools.reduce(operator.add, sums)
        return [ops.transpose(total[:, column], perm=[1, 0]) for column in range(paths.columns)]

    kind = TensorType(dtype, (block, columns))
    body = subgraph(step, [("rows", kind)])
    stacked = ops.scan(cut, body=body, num_scan_inputs=1)
    stacked = [stacked] if isinstance(stacked, Value) else list(stacked)
    flat = [ops.reshape(each, np.array([-1, features], np.int64)) for each in stacked]
    return [ops.slice_(each, zero, count, zero) for each in flat]


def _failed(paths: Paths, rows: Value, dtype: DType) -> Value:
    """0 if a row passes an edge and all its ancestor edges of the same feature, else 1: ``[edges + 1, rows]``.

    The last entry is 0, for paths with fewer features than others.
    """
    columns = ops.gather(ops.transpose(rows, perm=[1, 0]), paths.column)
    below = ops.less_or_equal(columns, paths.threshold[:, None].astype(dtype.numpy))
    failed = ops.cast(ops.xor(below, paths.is_below[:, None]), to=dtype)
    failed = ops.concat(failed, ops.zeros_like(failed[:1]), axis=0)
    above = np.append(paths.above, paths.count)
    for _ in range((paths.chain - 1).bit_length()):
        failed = ops.maximum(failed, ops.gather(failed, above))
        above = above[above]
    return failed


def _quadrature(group: PathGroup, dtype: DType) -> tuple[Array, Array]:
    """Points and weights on [0, 1] that are exact for paths of a group: ``[points, 1]``."""
    points, weights = np.polynomial.legendre.leggauss(-(-group.edges.shape[1] // 2))
    return ((points + 1) / 2)[:, None].astype(dtype.numpy), (weights / 2)[:, None].astype(dtype.numpy)


def _path_dependent(paths: Paths, graph: Graph, dtype: DType) -> Effects:
    """The effects of features on paths whose conditions a known share of the training rows passes.

    At a point, the logarithm of the product of all factors is affine in the failed features: a MatMul. Another MatMul
    divides the product by the factor of each feature, and sums over the points.
    """
    assert paths.share is not None
    shares = np.append(np.maximum(paths.share, _LEAST), 1.0)[:, None].astype(dtype.numpy)
    known = graph.variable(free_name(graph, "path_shares"), shares)  # computing what follows keeps the file small
    factors = []
    for group in paths.groups:
        t, w = _quadrature(group, dtype)
        share = ops.gather(known, group.edges)  # [paths, features, 1]
        passed = share * (1 - t.T) + t.T  # [paths, features, points]
        log_passed = ops.log(passed)
        ratio = ops.transpose(ops.log(share * (1 - t.T)) - log_passed, perm=[0, 2, 1])
        start = ops.transpose(ops.reduce_sum(log_passed, [1], keepdims=1), perm=[0, 2, 1])
        factors.append((ratio, start, (1 - share) * w.T / passed, (w / (1 - t)).T[None]))

    def effects(failed: list[Value]) -> list[Value]:
        results = []
        for fails, (ratio, start, gain, loss) in zip(failed, factors, strict=True):
            product = ops.exp(ops.matmul(ratio, fails) + start)  # [paths, points, rows]
            results.append(_effect(fails, ops.matmul(gain, product), ops.matmul(loss, product)))
        return results

    return effects


def _interventional(paths: Paths, background: Value, dtype: DType) -> Effects:
    """The mean effects of features on paths over background rows.

    On a path, let ``a`` features fail for the background row only, and ``b`` features for the row only; no effect has
    a path with a feature that fails for both. Each of the ``a`` features gains ``(a - 1)! b! / (a + b)!``, the integral
    of ``t^(a - 1) (1 - t)^b``. The ``b`` features lose, in equal parts, the sum of these gains, or 1 if ``a`` is 0. One
    MatMul computes the integral minus twice the number of features that fail for both, and Relu selects.
    """
    count = ops.shape(background, end=1)
    all_failed = _failed(paths, background, dtype)
    prepared = []
    for group in paths.groups:
        t, w = _quadrature(group, dtype)
        fails = ops.gather(all_failed, group.edges)  # [paths, features, background rows]
        number = ops.reduce_sum(fails, [1], keepdims=1)
        powers = ops.exp((number - 1) * np.log(t)) * w
        factors = ops.transpose(ops.concat(fails * -2, powers, axis=1), perm=[0, 2, 1])
        passing = ops.reduce_sum(ops.cast(ops.equal(number, ops.zeros_like(number)), to=dtype), [2], keepdims=1)
        prepared.append((fails, factors, passing, np.log1p(-t)))

    def effects(failed: list[Value]) -> list[Value]:
        numbers = [ops.reduce_sum(fails, [1], keepdims=1) for fails in failed]
        factors_of_rows = [
            ops.concat(fails, ops.exp(number * logarithm), axis=1)
            for fails, number, (*_, logarithm) in zip(failed, numbers, prepared, strict=True)
        ]

        def step(chunk: Value, *sums: Value) -> list[Value]:
            start = ops.reshape(chunk * np.int64(_BACKGROUND), np.array([1], np.int64))
            end = start + np.array([_BACKGROUND], np.int64)
            results = []
            for total, factors, (fails, others, *_) in zip(sums, factors_of_rows, prepared, strict=True):
                one = ops.slice_(others, start, end, np.array([1], np.int64))
                two = ops.slice_(fails, start, end, np.array([2], np.int64))
                results.append(total + ops.matmul(two, ops.relu(ops.matmul(one, factors))))
            return results

        chunks = ops.div(count + np.array([_BACKGROUND - 1], np.int64), np.array([_BACKGROUND], np.int64))
        gains = repeated(step, [ops.zeros_like(fails) for fails in failed], ops.squeeze(chunks, [0]))
        results = []
        for fails, number, gain, (_, _, passing, _) in zip(failed, numbers, gains, prepared, strict=True):
            loss = (ops.reduce_sum(gain, [1], keepdims=1) + passing) / ops.maximum(number, dtype.numpy.type(1))
            results.append(_effect(fails, gain, loss) / ops.cast(count, to=dtype))
        return results

    return effects


def _effect(failed: Value, gain: Value, loss: Value) -> Value:
    """The effect of each feature of a path: its gain if its conditions are passed, else minus the loss of the path."""
    return gain - failed * (gain + loss)


def _by_feature(effects: Value, group: PathGroup, features: int, dtype: DType) -> Value:
    """The sum of effects times votes of each feature, ``[features, columns, rows]``, by sums of ``_SEGMENT`` terms."""
    terms = ops.reshape(effects, np.array([group.edges.size, effects.shape[2]], np.int64))
    owner = group.feature.reshape(-1)
    lists, owner = _segments(owner)
    votes = np.repeat(group.votes, group.edges.shape[1], axis=0)
    weights = np.where(lists[..., None] < 0, 0, votes[lists]).transpose(0, 2, 1)  # [segments, columns, terms]
    sums = ops.matmul(weights.astype(dtype.numpy), ops.gather(terms, np.maximum(lists, 0)))
    while len(owner) > len(np.unique(owner)):
        lists, owner = _segments(owner)
        sums = ops.concat(sums, ops.zeros_like(sums[:1]), axis=0)
        sums = ops.reduce_sum(ops.gather(sums, np.where(lists < 0, -1, lists)), [1], keepdims=0)
    places = np.full(features, -1)
    places[owner] = np.arange(len(owner))
    if (places >= 0).all() and (np.diff(places) == 1).all():
        return sums
    return ops.gather(ops.concat(sums, ops.zeros_like(sums[:1]), axis=0), places)


def _segments(owner: Array) -> tuple[Array, Array]:
    """Lists of at most ``_SEGMENT`` terms of one owner, padded with -1, and their owners. Owner -1 is left out."""
    lists, owners = [], []
    width = min(_SEGMENT, int(np.bincount(owner[owner >= 0]).max()))
    order = np.argsort(owner, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(owner[order])) + 1):
        if owner[members[0]] < 0:
            continue
        for start in range(0, len(members), width):
            chosen = members[start : start + width]
            lists.append(np.pad(chosen, (0, width - len(chosen)), constant_values=-1))
            owners.append(owner[members[0]])
    return np.array(lists), np.array(owners)
