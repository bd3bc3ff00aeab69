"""TreeSHAP: exact Shapley values of tree ensembles.

A leaf contributes its vote times the product of the conditions on its path. The Shapley value of a feature in that
product is (o - z) times an integral over t in [0, 1] of a product of a factor t o + (1 - t) z for each other feature.
Here o is 1 if the row passes the conditions of that feature, else 0. z is the fraction of reference rows that pass
them: training rows (path dependent, Lundberg et al., 2018), or one background row (interventional). The integrand is a
polynomial, so that Gauss-Legendre quadrature is exact; with one background row, the integral is a beta function of two
counts. Products are computed from the roots to the leaves and sums from the leaves to the roots, for all trees at once,
as in Linear TreeSHAP (Yu et al., 2022).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Graph, InvalidCall, TensorType, Value, subgraph
from tenonnx_explain.affine import affine_values, last_affine
from tenonnx_explain.columns import features_of_columns
from tenonnx_explain.parts import Explained, repeated
from tenonnx_explain.structure import Edges, edges_of, mean_votes, with_inner
from tenonnx_explain.trees import Forest, forests

Array = np.ndarray[Any, Any]

#: Lower bound of a factor, which avoids division by 0: a path that neither row passes has the factor 0.
_LEAST = 1e-20

#: Maximum number of elements of an array of edges, quadrature points and rows, so that it fits into the cache.
_BLOCK = 1 << 19

#: Number of features of a path above which the closed form by counts is faster than quadrature.
_COUNTED = 4

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
        part = Explained(graph, forest.X, [x], None).part([x])
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
        edges = edges_of(forest, groups, roots, together, cover)
        if not edges.count:
            continue
        values = _of_edges(edges, rows, background_rows, features, dtype)
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


def _of_edges(edges: Edges, rows: Value, background: Value | None, features: int, dtype: DType) -> list[Value]:
    """Shapley values ``[rows, features]`` for each column of votes, computed by a Scan over blocks of rows."""
    points = -(-edges.features // 2)
    block = max(1, min(1024, _BLOCK // (edges.count * points)))
    columns = rows.shape[1]
    count = ops.shape(rows, end=1)  # at least one block, since runtimes reject an empty Scan
    blocks = ops.div(ops.maximum(count, np.int64(1)) + np.array([block - 1], np.int64), np.array([block], np.int64))
    missing = ops.mul(blocks, np.array([block], np.int64)) - count
    zero = np.array([0], np.int64)
    padded = ops.pad(rows, ops.concat(zero, zero, missing, zero, axis=0), np.zeros((), dtype.numpy))
    cut = ops.reshape(padded, np.array([-1, block, columns], np.int64))
    passed_by = None if background is None else _passed(edges, background, dtype)

    def step(part: Value) -> list[Value]:
        passed = _passed(edges, part, dtype)
        if passed_by is None:
            assert edges.share is not None
            shares = np.append(edges.share, 1.0)[:, None].astype(dtype.numpy)
            terms = _terms(edges, passed, shares, dtype)
        else:
            terms = _over_background(edges, passed, passed_by, dtype)
        return [ops.transpose(_by_feature(edges, each, features), perm=[1, 0]) for each in terms]

    kind = TensorType(dtype, (block, columns))
    body = subgraph(step, [("rows", kind)])
    stacked = ops.scan(cut, body=body, num_scan_inputs=1)
    stacked = [stacked] if isinstance(stacked, Value) else list(stacked)
    flat = [ops.reshape(each, np.array([-1, features], np.int64)) for each in stacked]
    return [ops.slice_(each, zero, count, zero) for each in flat]


def _over_background(edges: Edges, passed: Value, passed_by: Value, dtype: DType) -> list[Value]:
    """The terms of edges, averaged over background rows: ``[edges, rows]`` for each column of votes."""
    count = ops.shape(passed_by, start=1)
    start = [ops.zeros_like(passed[: edges.count]) for _ in range(edges.columns)]

    def step(number: Value, *sums: Value) -> list[Value]:
        share = ops.unsqueeze(ops.gather(passed_by, number, axis=1), [1])
        terms = (_terms_of_pairs if edges.features > _COUNTED else _terms)(edges, passed, share, dtype)
        return [total + each for total, each in zip(sums, terms, strict=True)]

    sums = repeated(step, start, ops.squeeze(count, [0]))
    return [total / ops.cast(count, to=dtype) for total in sums]


def _passed(edges: Edges, rows: Value, dtype: DType) -> Value:
    """1 if a row passes an edge and all its ancestor edges of the same feature, else 0: ``[edges + 1, rows]``.

    The last entry is 1, for edges without such an ancestor.
    """
    columns = ops.gather(ops.transpose(rows, perm=[1, 0]), edges.column)
    below = ops.less_or_equal(columns, edges.threshold[:, None].astype(dtype.numpy))
    passed = ops.cast(ops.equal(below, edges.is_below[:, None]), to=dtype)
    passed = ops.concat(passed, ops.ones_like(passed[:1]), axis=0)
    above = np.append(edges.above, edges.count)
    for _ in range((edges.chain - 1).bit_length()):
        passed = passed * ops.gather(passed, above)
        above = above[above]
    return passed


def _terms(edges: Edges, passed: Value, share: Any, dtype: DType) -> list[Value]:
    """The terms of edges in the Shapley values of their features: ``[edges, rows]`` for each column of votes."""
    points, weights = np.polynomial.legendre.leggauss(-(-edges.features // 2))
    t = ((points + 1) / 2).reshape(1, -1, 1).astype(dtype.numpy)
    here = ops.unsqueeze(passed, [1])
    other = share[:, None] if isinstance(share, np.ndarray) else ops.unsqueeze(share, [1])
    factor = ops.maximum(here * t + other * (1 - t), dtype.numpy.type(_LEAST))  # [edges + 1, points, rows]
    pull = (here - other) / factor
    count = edges.count
    ratio, net = factor[:count], pull[:count]
    if edges.chain > 1:
        ratio = ratio / ops.gather(factor, edges.above)
        net = net - ops.gather(pull, edges.above)
    starts = np.cumsum([0, *(len(level.parent) for level in edges.levels)])
    reached: list[Value] = []
    for number, level in enumerate(edges.levels):
        own = ratio[int(starts[number]) : int(starts[number + 1])]
        reached.append(own if not reached else ops.gather(reached[-1], level.parent) * own)
    scale = net * (weights / 2).reshape(1, -1, 1).astype(dtype.numpy)
    return [
        ops.reduce_sum(_summed(edges, reached, column, dtype) * scale, [1], keepdims=0)
        for column in range(edges.columns)
    ]


def _terms_of_pairs(edges: Edges, passed: Value, other: Value, dtype: DType) -> list[Value]:
    """The terms of edges for one background row ``other``: ``[edges, rows]`` for each column of votes.

    On the path to a leaf, let only the row pass ``a`` features and only the background row ``b`` features; a leaf with
    a feature that neither passes has no effect. Each of the ``a`` features gets ``(a - 1)! b! / (a + b)!`` times the
    vote, each of the ``b`` features minus ``a! (b - 1)! / (a + b)!`` times the vote. One number encodes both counts, as
    digits.
    """
    base = edges.features + 1
    dead = base * base
    count, kind = edges.count, dtype.numpy.type
    lacking, missed = 1 - other, 1 - passed
    number = lacking + missed * (lacking * kind(dead - 1) + other * kind(base))
    gain, loss = passed * lacking, missed * other
    if edges.chain > 1:
        number, gain, loss = (each[:count] - ops.gather(each, edges.above) for each in (number, gain, loss))
    else:
        number, gain, loss = (each[:count] for each in (number, gain, loss))
    starts = np.cumsum([0, *(len(level.parent) for level in edges.levels)])
    reached: list[Value] = []
    shares = [each.astype(dtype.numpy) for each in _shares(base)]
    ends: list[list[Value]] = [[], []]
    for place, level in enumerate(edges.levels):
        own = number[int(starts[place]) : int(starts[place + 1])]
        reached.append(own if not reached else ops.gather(reached[-1], level.parent) + own)
        if len(level.votes):
            numbers = reached[-1][level.inner :] if level.inner else reached[-1]
            at = ops.cast(ops.minimum(numbers, kind(dead)), to=DType.of(np.dtype(np.int32)))
            for share, end in zip(shares, ends, strict=True):
                end.append(ops.gather(share, at))
        else:
            for end in ends:
                end.append(reached[-1])
    return [
        _summed(edges, ends[0], column, dtype, at_ends=True) * gain
        - _summed(edges, ends[1], column, dtype, at_ends=True) * loss
        for column in range(edges.columns)
    ]


def _shares(base: int) -> tuple[Array, Array]:
    """Factors of a feature that only the row passes, and of one that only the background row passes, by number."""
    gains, losses = np.zeros(base * base + 1), np.zeros(base * base + 1)
    for b in range(base):
        for a in range(base - b):
            ways = math.comb(a + b, a)
            gains[a + base * b] = 1 / (a * ways) if a else 0
            losses[a + base * b] = 1 / (b * ways) if b else 0
    return gains, losses


def _summed(edges: Edges, reached: list[Value], column: int, dtype: DType, *, at_ends: bool = False) -> Value:
    """For each edge, the sum over the leaves below it of the vote times the product of the factors on the path.

    ``reached`` has the products of all edges of each level; with ``at_ends``, only of the edges to leaves.
    """
    sums: list[Value] = []
    axes = 1 if at_ends else 2
    for level, product in zip(reversed(edges.levels), reversed(reached), strict=True):
        parts = []
        if level.inner:
            below = sums[-1]
            parts.append(ops.gather(below, level.children[:, 0]) + ops.gather(below, level.children[:, 1]))
        if len(level.votes):
            votes = level.votes[:, column].reshape(-1, *[1] * axes).astype(dtype.numpy)
            parts.append((product[level.inner :] if level.inner and not at_ends else product) * votes)
        sums.append(parts[0] if len(parts) == 1 else ops.concat(*parts, axis=0))
    return sums[0] if len(sums) == 1 else ops.concat(*reversed(sums), axis=0)


def _by_feature(edges: Edges, terms: Value, features: int) -> Value:
    """The sum of the terms of each feature: ``[features, rows]``, by repeated sums of ``_SEGMENT`` terms."""
    owner = edges.feature
    while True:
        order = np.argsort(owner, kind="stable")
        counts = np.bincount(owner, minlength=features)
        if counts.max(initial=0) <= 1:
            break
        width = min(_SEGMENT, int(counts.max()))
        lists, owners = [], []
        for feature, members in enumerate(np.split(order, np.cumsum(counts)[:-1])):
            for start in range(0, len(members), width):
                chosen = members[start : start + width]
                lists.append(np.pad(chosen, (0, width - len(chosen)), constant_values=len(owner)))
                owners.append(feature)
        terms = ops.concat(terms, ops.zeros_like(terms[:1]), axis=0)
        terms = ops.reduce_sum(ops.gather(terms, np.array(lists)), [1], keepdims=0)
        owner = np.array(owners)
    places = np.full(features, len(owner))
    places[owner] = np.arange(len(owner))
    if (places < len(owner)).all() and (np.diff(places) == 1).all():
        return terms
    terms = ops.concat(terms, ops.zeros_like(terms[:1]), axis=0)
    return ops.gather(terms, places)
