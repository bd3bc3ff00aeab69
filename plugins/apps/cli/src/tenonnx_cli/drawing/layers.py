"""Layered graph drawing from top to bottom, after Sugiyama.

Each box is assigned to a layer below its inputs; edges that cross layers get a position in each; the order within
layers minimizes crossings; then positions are chosen that straighten edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

#: Distance between boxes of one layer, and between layers.
GAP, LAYER_GAP = 22.0, 40.0

#: Width of an edge that passes a layer.
PASSING = 10.0

#: Maximum distance between the ends of edges at one box.
ENDS = 16.0

#: Maximum total number of layers that edges pass; further edges get no positions in layers.
MOST_PASSING = 60_000

#: Weights of straightness for edge segments: between boxes, from a box into a passage, within a passage.
_STRAIGHT = (1.0, 2.0, 8.0)


@dataclass(slots=True)
class Line:
    """Edge between two boxes, given by index; edges of a source with the same ``bundle`` share their route.

    ``leaves`` and ``enters`` are offsets from the centers of the boxes, or None for automatic ones.
    """

    source: int
    target: int
    bundle: int = 0
    leaves: float | None = None
    enters: float | None = None
    points: list[tuple[float, float]] = field(default_factory=list)


@dataclass(slots=True)
class _Vertex:
    """A box, or the position at which a bundle of edges passes a layer."""

    width: float
    height: float
    layer: int
    box: bool
    x: float = 0.0
    y: float = 0.0
    order: float = 0.0
    above: list[tuple[_Vertex, float]] = field(default_factory=list)
    below: list[tuple[_Vertex, float]] = field(default_factory=list)


@dataclass(slots=True)
class Arrangement:
    """Centers and tops of boxes, and the total extent."""

    middles: list[float]
    tops: list[float]
    width: float
    height: float


def arrange(
    sizes: Sequence[tuple[float, float]],
    lines: Sequence[Line],
    first: Sequence[int] = (),
    last: Sequence[int] = (),
) -> Arrangement:
    """Positions for boxes of these sizes, and points of edges, which lead to boxes of larger index.

    Boxes in ``first`` and ``last`` are placed at the borders. Points are ends of curves with vertical tangents.
    """
    vertices = [
        _Vertex(width, height, layer, True)
        for (width, height), layer in zip(sizes, _layers(len(sizes), lines, first, last), strict=True)
    ]
    ways = _routes(vertices, lines)
    rows: list[list[_Vertex]] = [[] for _ in range(1 + max((v.layer for v in vertices), default=0))]
    for vertex in vertices:
        rows[vertex.layer].append(vertex)
    _order(rows)
    _straighten(rows)
    tops = _stack(rows)
    left = min((v.x - v.width / 2 for v in vertices), default=0.0)
    for vertex in vertices:
        vertex.x -= left
    _route(vertices, lines, ways, rows, tops)
    boxes = vertices[: len(sizes)]
    width = max((v.x + v.width / 2 for v in vertices), default=0.0)
    return Arrangement([v.x for v in boxes], [v.y for v in boxes], width, tops[-1])


# ----- layers ---------------------------------------------------------------------------------------------------------


def _layers(count: int, lines: Sequence[Line], first: Sequence[int], last: Sequence[int]) -> list[int]:
    """The layer of each box: below its inputs, and near its consumers if that shortens edges."""
    sources: list[list[int]] = [[] for _ in range(count)]
    targets: list[list[int]] = [[] for _ in range(count)]
    for line in lines:
        sources[line.target].append(line.source)
        targets[line.source].append(line.target)
    rim = set(first)
    start = 1 if rim else 0
    layer = [0] * count
    constant = [False] * count  # reads no graph input, directly or indirectly
    for box in range(count):
        if box not in rim:
            layer[box] = max((layer[s] + 1 for s in sources[box]), default=start)
            constant[box] = all(constant[s] for s in sources[box])
    for box in reversed(range(count)):
        if targets[box] and (constant[box] or (box not in rim and len(targets[box]) > len(set(sources[box])))):
            layer[box] = max(layer[box], min(layer[t] for t in targets[box]) - 1)
    if last:
        others = [layer[box] for box in range(count) if box not in set(last)]
        bottom = max(others, default=-1) + 1
        for box in last:
            layer[box] = bottom
    return layer


def _routes(vertices: list[_Vertex], lines: Sequence[Line]) -> list[list[_Vertex]]:
    """Add vertices where edges pass layers, and connect all; returns the vertices of each edge."""
    shared: dict[tuple[int, int], list[_Vertex]] = {}
    ways: list[list[_Vertex]] = []
    added = 0
    for line in sorted(lines, key=lambda line: vertices[line.target].layer - vertices[line.source].layer):
        source, target = vertices[line.source], vertices[line.target]
        way = shared.setdefault((line.source, line.bundle), [])
        while added < MOST_PASSING and len(way) < target.layer - source.layer - 1:
            passage = _Vertex(PASSING, 0.0, source.layer + len(way) + 1, False, order=line.source)
            _connect(way[-1] if way else source, passage, _STRAIGHT[2 if way else 1])
            way.append(passage)
            vertices.append(passage)
            added += 1
    for number, vertex in enumerate(vertices):
        if vertex.box:
            vertex.order = number
    for line in lines:
        source, target = vertices[line.source], vertices[line.target]
        length = target.layer - source.layer - 1
        way = shared[line.source, line.bundle][: max(length, 0)]
        ways.append(way)
        if length == len(way):
            _connect(way[-1] if way else source, target, _STRAIGHT[1 if way else 0])
    return ways


def _connect(upper: _Vertex, lower: _Vertex, weight: float) -> None:
    upper.below.append((lower, weight))
    lower.above.append((upper, weight))


# ----- the order within layers ----------------------------------------------------------------------------------------


def _order(rows: list[list[_Vertex]]) -> None:
    """Sort each layer by barycenters of neighbors above and below, alternately."""
    for row in rows:
        row.sort(key=lambda v: v.order)
        for place, vertex in enumerate(row):
            vertex.order = place
    vertices = sum(map(len, rows))
    for turn in range(9 if vertices < 3000 else 5):
        down = turn % 2 == 0
        for row in rows if down else reversed(rows):
            if len(row) < 2:
                continue
            for place, vertex in enumerate(row):
                near = vertex.above if down else vertex.below
                if len(near) == 1:  # most vertices, if edges are long
                    vertex.x = near[0][0].order
                else:
                    vertex.x = sum(v.order for v, _ in near) / len(near) if near else place
            row.sort(key=lambda v: v.x)
            for place, vertex in enumerate(row):
                vertex.order = place


# ----- places within layers -------------------------------------------------------------------------------------------


def _straighten(rows: list[list[_Vertex]]) -> None:
    """Move vertices towards their neighbors in other layers, as far as the order allows."""
    offsets = [_offsets(row) for row in rows]
    for row, offset in zip(rows, offsets, strict=True):
        for vertex, x in zip(row, offset, strict=True):
            vertex.x = x - offset[-1] / 2
    for turn in range(10):
        down, both = turn % 2 == 0, turn >= 8
        for number in range(len(rows)) if down else reversed(range(len(rows))):
            wanted, weights = [], []
            for vertex in rows[number]:
                near = vertex.above + vertex.below if both else vertex.above if down else vertex.below
                if len(near) == 1:
                    other, weight = near[0]
                    wanted.append(other.x)
                else:
                    weight = sum([w for _, w in near])
                    wanted.append(sum([v.x * w for v, w in near]) / weight if weight else vertex.x)
                weights.append(weight or 0.05)
            _place(rows[number], offsets[number], wanted, weights)


def _offsets(row: list[_Vertex]) -> list[float]:
    """Minimum distance of each center from the first."""
    offsets = [0.0] * min(len(row), 1)
    for before, vertex in pairwise(row):
        offsets.append(offsets[-1] + (before.width + vertex.width) / 2 + (_gap(before) + _gap(vertex)) / 2)
    return offsets


def _gap(vertex: _Vertex) -> float:
    return GAP if vertex.box else PASSING


def _place(row: list[_Vertex], offsets: list[float], wanted: list[float], weights: list[float]) -> None:
    """Positions nearest to ``wanted``, in order and with minimum distances: isotonic regression by pooling."""
    pools: list[tuple[float, float, int]] = []  # pools of neighbors at one position: position, weight, count
    for offset, where, weight in zip(offsets, wanted, weights, strict=True):
        where, many = where - offset, 1
        while pools and pools[-1][0] > where:
            other, heavy, more = pools.pop()
            where = (where * weight + other * heavy) / (weight + heavy)
            weight, many = weight + heavy, many + more
        pools.append((where, weight, many))
    place = 0
    for where, _, many in pools:
        for _ in range(many):
            row[place].x = where + offsets[place]
            place += 1


def _stack(rows: list[list[_Vertex]]) -> list[float]:
    """Stack the layers; returns their tops, and the bottom."""
    tops, top = [], 0.0
    for row in rows:
        height = max((v.height for v in row), default=0.0)
        for vertex in row:
            vertex.y = top + (height - vertex.height) / 2
        tops += [top, top + height]
        top += height + LAYER_GAP
    return tops


# ----- lines ----------------------------------------------------------------------------------------------------------


def _route(
    vertices: list[_Vertex],
    lines: Sequence[Line],
    ways: list[list[_Vertex]],
    rows: list[list[_Vertex]],
    tops: list[float],
) -> None:
    _spread_ends(vertices, lines, ways)
    for line, way in zip(lines, ways, strict=True):
        source, target = vertices[line.source], vertices[line.target]
        bottom = source.y + source.height
        points = [
            (source.x + (line.leaves or 0.0), bottom),
            (source.x + (line.leaves or 0.0), tops[2 * source.layer + 1]),
        ]
        for passage in way:
            points += [(passage.x, tops[2 * passage.layer]), (passage.x, tops[2 * passage.layer + 1])]
        enters = target.x + (line.enters or 0.0)
        points += [(enters, tops[2 * target.layer]), (enters, target.y)]
        line.points = _thinned(points)


def _spread_ends(vertices: list[_Vertex], lines: Sequence[Line], ways: list[list[_Vertex]]) -> None:
    """Choose where edges leave and enter boxes, sorted by the positions of their other ends."""
    leaving: dict[int, dict[int, list[tuple[Line, float]]]] = {}
    entering: dict[int, list[tuple[float, Line]]] = {}
    for line, way in zip(lines, ways, strict=True):
        if line.enters is None:
            entering.setdefault(line.target, []).append(((way[-1] if way else vertices[line.source]).x, line))
        if line.leaves is None:
            to = (way[0] if way else vertices[line.target]).x
            leaving.setdefault(line.source, {}).setdefault(line.bundle, []).append((line, to))
    for box, ends in entering.items():
        ends.sort(key=lambda end: end[0])
        for place, (_, line) in zip(_spread(len(ends), vertices[box].width), ends, strict=True):
            line.enters = place
    for box, bundles in leaving.items():
        ordered = sorted(bundles.values(), key=lambda ends: sum(x for _, x in ends) / len(ends))
        for place, several in zip(_spread(len(ordered), vertices[box].width), ordered, strict=True):
            for line, _ in several:
                line.leaves = place


def _spread(count: int, width: float) -> list[float]:
    step = min(ENDS, 0.7 * width / max(count - 1, 1))
    return [(k - (count - 1) / 2) * step for k in range(count)]


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Points without those between two straight pieces, and without duplicates."""
    kept = [points[0]]
    for before, point in enumerate(points[1:]):
        following = points[before + 2] if before + 2 < len(points) else None
        if point == kept[-1]:
            continue
        straight = following is not None and abs(kept[-1][0] - point[0]) < 0.5 and abs(point[0] - following[0]) < 0.5
        if not straight:
            kept.append(point)
    return kept
