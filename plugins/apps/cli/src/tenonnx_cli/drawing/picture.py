"""Layout of an outline: positions of boxes and routes of edges."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from tenonnx import Graph, Node, Value
from tenonnx_cli.drawing.layers import Arrangement, Line, arrange
from tenonnx_cli.drawing.outline import Bodies, Element, Scope, outline, sizes
from tenonnx_cli.drawing.text import short, width

#: Height of a title and of a fact line, and padding of a box.
TITLE, FACT, INSET = 17.0, 13.0, 9.0

#: Space above the contents of an open group, for its title, and around them.
HEAD, MARGIN = 26.0, 16.0

#: Maximum length of a note in a box.
_LONGEST_NOTE = 64

#: Number of cached group layouts, which are reused when a group is reopened.
_KEPT = 512

#: Size of the point where an edge crosses the border of a group.
_RIM = (4.0, 0.0)


@dataclass(slots=True)
class Drawn:
    """An edge with its label, and the boxes at its ends, which may be border points."""

    points: list[tuple[float, float]]
    value: Value
    text: str = ""
    source: Element | None = None
    target: Element | None = None

    @property
    def arrow(self) -> bool:
        return self.target is not None and self.target.kind != "exit"


@dataclass(slots=True)
class Picture:
    """Boxes, outer ones first, and edges."""

    boxes: list[Element] = field(default_factory=list)
    lines: list[Drawn] = field(default_factory=list)
    titles: list[tuple[float, float, str]] = field(default_factory=list)
    width: float = 0.0
    height: float = 0.0


def picture(
    graph: Graph,
    opened: Collection[str] | None = None,
    bodies: Bodies | None = None,
    prefix: str = "",
    notes: Mapping[str, str] | None = None,
) -> Picture:
    """Lay out ``graph`` with the elements ``opened`` expanded, and ``notes`` in boxes by key; see ``outline``."""
    scope = outline(graph, opened, bodies, prefix)
    if notes:
        _annotate(scope, notes)
    _lay_out(scope)
    result = Picture(width=scope.width + 2 * MARGIN, height=scope.height + 2 * MARGIN)
    _collect(scope, MARGIN, MARGIN, result)
    return result


def _annotate(scope: Scope, notes: Mapping[str, str]) -> None:
    for element in scope.elements:
        if element.key in notes:
            element.facts = [*element.facts, short(notes[element.key], _LONGEST_NOTE)]
        for inner in element.inside:
            _annotate(inner, notes)


def _lay_out(scope: Scope) -> None:
    """Assign positions to the elements of a scope, recursively."""
    elements = scope.elements
    for element in elements:
        _measure(element)
    rims = {id(element) for element in (*scope.entries.values(), *scope.exits.values())}
    ordered = [*scope.entries.values(), *(e for e in elements if id(e) not in rims), *scope.exits.values()]
    number = {element: place for place, element in enumerate(ordered)}
    bundles: dict[tuple[Element, Any], int] = {}
    lines: list[_Ends] = []
    turned = []
    for link in scope.links:
        source, target = number[link.source], number[link.target]
        leaves, enters = _end(link.source, link.value, "exits"), _end(link.target, link.value, "entries")
        bundle = bundles.setdefault((link.source, link.value), len(bundles))
        back = source > target  # groups may depend on each other: such an edge leads up
        if back:
            source, target, leaves, enters = target, source, enters, leaves
        turned.append(back)
        lines.append((source, target, bundle, leaves, enters))
    sizes_of = tuple((e.width, e.height) for e in ordered)
    places, routes = _arranged(sizes_of, tuple(lines), len(scope.entries), len(scope.exits))
    for element, middle, top in zip(ordered, places.middles, places.tops, strict=True):
        element.x, element.y = middle - element.width / 2, top
    for link, points, back in zip(scope.links, routes, turned, strict=True):
        link.points = points[::-1] if back else points
    scope.width, scope.height = places.width, places.height


#: An edge between boxes: their indices, its bundle, and its offsets at both ends.
_Ends = tuple[int, int, int, float | None, float | None]


@lru_cache(_KEPT)
def _arranged(
    boxes: tuple[tuple[float, float], ...], ends: tuple[_Ends, ...], first: int, last: int
) -> tuple[Arrangement, list[list[tuple[float, float]]]]:
    """The layout of boxes of these sizes, ``first`` and ``last`` of them on the borders, and the points of edges."""
    lines = [Line(*each) for each in ends]
    places = arrange(boxes, lines, range(first), range(len(boxes) - last, len(boxes)))
    return places, [line.points for line in lines]


def _measure(element: Element) -> None:
    """Set the size of a box by its text, or by its contents."""
    if element.kind in ("entry", "exit"):
        element.width, element.height = _RIM
        return
    for scope in element.inside:
        _lay_out(scope)
    if element.inside:
        title = HEAD if len(element.inside) > 1 or element.kind == "node" else 0.0
        inside = sum(max(scope.width, width(scope.title)) for scope in element.inside)
        element.width = max(inside + MARGIN * (len(element.inside) + 1), width(element.title) + 60)
        element.height = HEAD + MARGIN + title + max(scope.height for scope in element.inside)
        return
    texts = [width(element.title) + 2, *(width(fact) * 0.88 for fact in element.facts)]
    element.width = max(texts) + 2 * INSET + (16 if element.kind == "group" else 0)
    element.height = TITLE + FACT * len(element.facts) + INSET


def _end(element: Element, value: Any, rims: str) -> float | None:
    """Offset at which an edge meets the border of an open group, from its center."""
    if element.kind != "group" or not element.inside:
        return None
    (scope,) = element.inside
    rim: Element | None = getattr(scope, rims).get(value)
    if rim is None:
        return None
    return rim.x + rim.width / 2 - scope.width / 2


def _collect(scope: Scope, left: float, top: float, picture: Picture) -> None:
    """Add boxes and edges with their positions in the whole picture."""
    labeled = set()
    for element in scope.elements:
        element.x += left
        element.y += top
        if element.kind not in ("entry", "exit"):
            picture.boxes.append(element)
        if element.kind == "group" and element.inside:
            (inner,) = element.inside
            _collect(inner, element.x + (element.width - inner.width) / 2, element.y + HEAD, picture)
            _stretch(inner, element, picture)
            continue
        beside = element.x + MARGIN
        for inner in element.inside:
            room = max(inner.width, width(inner.title))
            picture.titles.append((beside, element.y + HEAD + 14, inner.title))
            _collect(inner, beside + (room - inner.width) / 2, element.y + 2 * HEAD, picture)
            beside += room + MARGIN
    for link in scope.links:
        points = [(x + left, y + top) for x, y in link.points]
        key = id(link.source), id(link.value)
        text = "" if key in labeled or link.source.kind == "entry" else short(sizes(link.value.type), 30)
        labeled.add(key)
        picture.lines.append(Drawn(points, link.value, text, link.source, link.target))


def _stretch(scope: Scope, around: Element, picture: Picture) -> None:
    """Add edges from the border points of an open group to its border."""
    for rims, end in ((scope.entries, around.y), (scope.exits, around.y + around.height)):
        for value, rim in rims.items():
            x = rim.x + rim.width / 2
            picture.lines.append(Drawn([(x, rim.y), (x, end)][:: 1 if rims is scope.exits else -1], value))


def kind_of(element: Element) -> str:
    """Kind of a box: an input, output or group, or the kind that its op declares."""
    node = element.item
    if element.kind != "node" or not isinstance(node, Node):
        return element.kind
    if node.subgraphs:
        return "control"
    op = node.op
    if any(value is not None and value.is_constant and (value.rank or 0) > 1 for value in node.inputs):
        return "weights"
    traits = getattr(op, "facts", {})
    return "movement" if traits.get("data_movement") else "elementwise" if traits.get("elementwise") else "node"
