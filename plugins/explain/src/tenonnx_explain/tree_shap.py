"""TreeSHAP: exact Shapley values of tree ensembles.

A leaf contributes its vote times the product of the conditions on the path to it. The Shapley value of a feature in
that product is an integral over t in [0, 1] of a product of one factor t o + (1 - t) z for each other feature. There o
is 1 if the row passes, else 0, and z is the share of other rows that pass: those of training (path dependent: Lundberg
et al., 2018) or one background row (interventional). The integrand is a polynomial, so that Gauss-Legendre quadrature
is exact; with one background row the integral is a beta function of two counts. Products are computed from the roots to
the leaves and sums from the leaves to the roots, for all trees at once, as in Linear TreeSHAP (Yu et al., 2022).
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

#: Lower bound of a factor, since factors are divided by: a path that neither row passes has the factor 0.
_LEAST = 1e-20

#: Elements of an array of edges, points and rows that fit into the cache.
_BLOCK = 1 << 19

#: Features of a path beyond which counting them is faster than integrating over points.
_COUNTED = 4

#: Terms summed at once.
_SEGMENT = 32


def tree_shap(graph: Graph, of: Value | None, background: Value | None, rows: Array | None) -> dict[str, Value]:
    """Shapley values ``[rows, features]`` or ``[rows, features, outputs]`` of a value that is affine in tree scores.

    By default that is an output, else the last such value: the margin before a logistic function or softmax.
    Without an input for the ``background``, a feature outside of a coalition follows both branches of a node, weighted
    by the numbers of training rows, or of ``rows`` where these are given. Raises ``InvalidCall`` without either.
    """
    found = forests(graph)
    if not found:
        raise InvalidCall("the model has no tree ensemble", do="use kernel-shap")
    scores = [forest.scores for forest in found]
    affine = affine_values(graph, scores)
    of = last_affine(graph, scores) if of is None else of
    if of not in affine:
        raise InvalidCall(
            f'"{of.name}" is not a sum of tree scores',
            available=", ".join(value.name for value in affine),
            do="explain one of these, or use kernel-shap",
        )
    read = [forest for forest in found if _reads(graph, of, forest.scores)]
    x, groups = features_of_columns(graph, [forest.X for forest in read])
    features = int(max(each.max(initial=-1) for each in groups)) + 1
    width = x.shape[1] if x.rank == 2 else None
    features = width if isinstance(width, int) else features
    parts, means = [], []
    for forest, feature_of in zip(read, groups, strict=True):
        seen = None if background is None else _seen(graph, x, forest.X, background)
        cover = _cover(graph, forest, x, rows) if background is None else None
        parts.append(_of_forest(forest, feature_of, features, seen, cover))
        means.append(None if cover is None else mean_votes(forest, cover))
    return _through(graph, of, read, parts, means, x, background)


def _reads(graph: Graph, of: Value, scores: Value) -> bool:
    wanted = {of}
    for node in reversed(graph.nodes):
        if wanted.intersection(value for value in node.outputs if value is not None):
            wanted.update(node.uses)
    return scores in wanted


def _seen(graph: Graph, x: Value, X: Value, background: Value) -> Value:
    """The background in the columns that the trees read."""
    return background if x is X else Explained(graph, X, [x], None).function([x])(background)[0]


def _cover(graph: Graph, forest: Forest, x: Value, rows: Array | None) -> Array:
    """The number of rows that reach each slot: of training, or of ``rows`` where they are given."""
    if forest.cover is not None and rows is None:
        return with_inner(forest, forest.cover)
    if rows is None:
        raise InvalidCall(
            "the tree ensemble has no count of training rows per leaf",
            given=f'nodes_hitrates of the trees of "{forest.scores.name}" are missing, or the same for all nodes',
            do="give rows to count: --background",
        )
    given = np.asarray(rows, x.dtype.numpy)
    if x is not forest.X:
        part = Explained(graph, forest.X, [x], None).part([x])
        given = np.asarray(part.run({x.name: given}, backend="numpy")[forest.X.name])
    given = given.astype(forest.thresholds.dtype)
    asked = (
        given
        if not forest.lowered
        else np.concatenate(
            [np.where(np.isnan(given[:, : forest.lowered]), -np.inf, given[:, : forest.lowered]), given], axis=1
        )
    )
    counts = np.zeros(len(forest.following))
    for root in range(forest.roots):
        slots = np.full(len(asked), root)
        while (forest.following[slots] != slots).any():
            below = asked[np.arange(len(asked)), forest.features[slots]] <= forest.thresholds[slots]
            leaf = forest.following[slots] == slots
            slots = np.where(leaf, slots, forest.following[slots] + below)
        np.add.at(counts, slots, 1)
    return with_inner(forest, counts)


def _through(
    graph: Graph,
    of: Value,
    read: list[Forest],
    parts: list[Value],
    means: list[Array | None],
    x: Value,
    background: Value | None,
) -> dict[str, Value]:
    """Attributions of ``of`` from those of the scores ``[rows, columns, features]``, by the affine function between."""
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
    found = ops.reshape(change, np.array([-1, features, *tail] if tail != [-1] else [0, features, -1], np.int64))
    if background is not None:
        base = ops.reduce_mean(Explained(graph, of, [x], None).function([x])(background)[0], [0], keepdims=1)
    else:
        given = [
            ops.cast(np.asarray(mean, np.float64).reshape(1, -1) if s.ndim > 1 else np.asarray(mean), to=s.dtype)
            for mean, s in zip(means, scores, strict=True)
        ]
        base = function(*given)[0]
    total = ops.reduce_sum(found, [1], keepdims=0)
    return {
        f"{x.name}/attribution": found,
        f"{of.name}/expected": ops.squeeze(base, [0]),
        f"{of.name}/delta": total - (of - base),
    }


# ----- one ensemble ---------------------------------------------------------------------------------------------------


def _of_forest(forest: Forest, groups: Array, features: int, background: Value | None, cover: Array | None) -> Value:
    """Shapley values of the scores of an ensemble: ``[rows, features, columns]``."""
    dtype = DType.of(forest.thresholds.dtype)
    columns = forest.votes.shape[1]
    parts: list[Value | None] = [None] * columns
    rows = _asked(forest, forest.X, dtype)
    shown = None if background is None else _asked(forest, background, dtype)
    for roots, together in _by_columns(forest):
        edges = edges_of(forest, groups, roots, together, cover)
        if not edges.count:
            continue
        found = _of_edges(edges, rows, shown, features, dtype)
        for place, column in enumerate(together):
            parts[column] = found[place]
    zeros = ops.zeros_like(rows[:, :1]) + np.zeros((1, features), dtype.numpy)
    return ops.concat(*(ops.unsqueeze(zeros if part is None else part, [2]) for part in parts), axis=2)


def _by_columns(forest: Forest) -> list[tuple[Array, Array]]:
    """Sets of trees with the columns that all of them vote for: one column for boosting, all columns for a forest."""
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


def _asked(forest: Forest, X: Value, dtype: DType) -> Value:
    """The columns that trees compare, those with minus infinity for a missing value first."""
    x = X if X.dtype is dtype else ops.cast(X, to=dtype)
    if not forest.lowered:
        return x
    part = x[:, : forest.lowered]
    return ops.concat(ops.where(ops.isnan(part), float("-inf"), part), x, axis=1)


def _of_edges(edges: Edges, rows: Value, shown: Value | None, features: int, dtype: DType) -> list[Value]:
    """Shapley values ``[rows, features]`` for each column, in blocks of rows."""
    points = -(-edges.features // 2)
    block = max(1, min(1024, _BLOCK // (edges.count * points)))
    columns = rows.shape[1]
    count = ops.shape(rows, end=1)  # runtimes refuse a Scan of no blocks
    blocks = ops.div(ops.maximum(count, np.int64(1)) + np.array([block - 1], np.int64), np.array([block], np.int64))
    missing = ops.mul(blocks, np.array([block], np.int64)) - count
    zero = np.array([0], np.int64)
    padded = ops.pad(rows, ops.concat(zero, zero, missing, zero, axis=0), np.zeros((), dtype.numpy))
    cut = ops.reshape(padded, np.array([-1, block, columns], np.int64))
    passed_by = None if shown is None else _passed(edges, shown, dtype)

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
    found = ops.scan(cut, body=body, num_scan_inputs=1)
    found = [found] if isinstance(found, Value) else list(found)
    flat = [ops.reshape(each, np.array([-1, features], np.int64)) for each in found]
    return [ops.slice_(each, zero, count, zero) for each in flat]


def _over_background(edges: Edges, passed: Value, passed_by: Value, dtype: DType) -> list[Value]:
    """Means of the terms over background rows."""
    count = ops.shape(passed_by, start=1)
    start = [ops.zeros_like(passed[: edges.count]) for _ in range(edges.columns)]

    def step(number: Value, *sums: Value) -> list[Value]:
        share = ops.unsqueeze(ops.gather(passed_by, number, axis=1), [1])
        terms = (_terms_of_pairs if edges.features > _COUNTED else _terms)(edges, passed, share, dtype)
        return [total + each for total, each in zip(sums, terms, strict=True)]

    sums = repeated(step, start, ops.squeeze(count, [0]))
    return [total / ops.cast(count, to=dtype) for total in sums]


def _passed(edges: Edges, rows: Value, dtype: DType) -> Value:
    """1 where a row passes an edge and all above it of its feature, else 0: ``[edges + 1, rows]``, ones in the end."""
    asked = ops.gather(ops.transpose(rows, perm=[1, 0]), edges.column)
    below = ops.less_or_equal(asked, edges.threshold[:, None].astype(dtype.numpy))
    passed = ops.cast(ops.equal(below, edges.is_below[:, None]), to=dtype)
    passed = ops.concat(passed, ops.ones_like(passed[:1]), axis=0)
    above = np.append(edges.above, edges.count)
    for _ in range((edges.chain - 1).bit_length()):
        passed = passed * ops.gather(passed, above)
        above = above[above]
    return passed


def _terms(edges: Edges, passed: Value, share: Any, dtype: DType) -> list[Value]:
    """The terms of edges in the Shapley values of their features: ``[edges, rows]`` for each column."""
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
    """The terms of edges where ``other`` is one background row: ``[edges, rows]`` for each column.

    Of the features on the way to a leaf the row alone passes ``a``, the background row alone ``b``, and both the rest,
    or the leaf counts for nothing. Then each of the ``a`` features gets the share ``(a - 1)! b! / (a + b)!`` of the
    vote, and each of the ``b`` features minus ``a! (b - 1)! / (a + b)!``. Both counts are digits of one number.
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
            found = reached[-1][level.inner :] if level.inner else reached[-1]
            at = ops.cast(ops.minimum(found, kind(dead)), to=DType.of(np.dtype(np.int32)))
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
    """The shares of a feature that the row alone passes, and of one that the background row alone passes, by number."""
    gains, losses = np.zeros(base * base + 1), np.zeros(base * base + 1)
    for b in range(base):
        for a in range(base - b):
            ways = math.comb(a + b, a)
            gains[a + base * b] = 1 / (a * ways) if a else 0
            losses[a + base * b] = 1 / (b * ways) if b else 0
    return gains, losses


def _summed(edges: Edges, reached: list[Value], column: int, dtype: DType, *, at_ends: bool = False) -> Value:
    """For each edge the sum, over the leaves below, of their votes times the product of the factors on the way.

    ``reached`` holds the products of all edges of each level or, with ``at_ends``, of those to leaves alone.
    """
    found: list[Value] = []
    axes = 1 if at_ends else 2
    for level, product in zip(reversed(edges.levels), reversed(reached), strict=True):
        parts = []
        if level.inner:
            below = found[-1]
            parts.append(ops.gather(below, level.children[:, 0]) + ops.gather(below, level.children[:, 1]))
        if len(level.votes):
            votes = level.votes[:, column].reshape(-1, *[1] * axes).astype(dtype.numpy)
            parts.append((product[level.inner :] if level.inner and not at_ends else product) * votes)
        found.append(parts[0] if len(parts) == 1 else ops.concat(*parts, axis=0))
    return found[0] if len(found) == 1 else ops.concat(*reversed(found), axis=0)


def _by_feature(edges: Edges, terms: Value, features: int) -> Value:
    """The sum of the terms of each feature: ``[features, rows]``, in rounds of a few terms each."""
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
