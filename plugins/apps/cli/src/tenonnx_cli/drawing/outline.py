"""Outline of a drawing: nodes, groups by paths of names, and subgraphs, open or closed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tenonnx import Graph, Node, TensorType, Value
from tenonnx.extend import Constant
from tenonnx.tools import Op
from tenonnx_cli.drawing.text import short

#: Default maximum number of elements to draw.
BUDGET = 160

#: Maximum number of lines on a node's weights and attributes.
MOST_FACTS = 4

#: Maximum number of elements of a constant to print.
_FEW = 4

#: Maximum nesting depth of groups.
_DEEPEST = 12

#: Metadata key in which PyTorch's exporter lists the modules of a node, and the maximum length that is parsed.
_SCOPES, _LONGEST_SCOPES = "pkg.torch.onnx.name_scopes", 4000


@dataclass(slots=True, eq=False)
class Element:
    """A box: a node, an input or output, a group, or the point where an edge crosses an open group's border.

    ``key`` is its path: ``n3`` is the fourth node, ``n3/then_branch/n0`` the first of a subgraph in it, and ``g:``
    begins a group. ``inside`` is drawn within it.
    """

    key: str
    kind: str
    title: str
    facts: list[str] = field(default_factory=list)
    item: Node | Value | None = None
    nodes: int = 1
    can_open: bool = False
    inside: list[Scope] = field(default_factory=list)
    x: float = 0.0
    y: float = 0.0
    width: float = 0.0
    height: float = 0.0


@dataclass(slots=True, eq=False)
class Link:
    """A value between two elements of a scope, or between an element and the scope's border."""

    source: Element
    target: Element
    value: Value
    points: list[tuple[float, float]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Scope:
    """Elements that are laid out together, with the edges between them. ``entries`` and ``exits`` are on the border."""

    title: str = ""
    elements: list[Element] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    entries: dict[Value, Element] = field(default_factory=dict)
    exits: dict[Value, Element] = field(default_factory=dict)
    width: float = 0.0
    height: float = 0.0
    _linked: set[tuple[int, int, int]] = field(default_factory=set)

    def link(self, source: Element, target: Element, value: Value) -> None:
        key = id(source), id(target), id(value)
        if key not in self._linked:
            self._linked.add(key)
            self.links.append(Link(source, target, value))


#: Function that returns further graphs to draw in a node, such as its decomposition, with titles.
Bodies = Callable[[str, Node], Sequence[tuple[str, Graph]]]


@dataclass(slots=True)
class _Group:
    """Nodes with a common name prefix."""

    path: str
    title: str
    nodes: list[int] = field(default_factory=list)
    groups: dict[str, _Group] = field(default_factory=dict)
    count: int = 0


def outline(
    graph: Graph, opened: Collection[str] | None = None, bodies: Bodies | None = None, prefix: str = ""
) -> Scope:
    """Elements to draw, with those in ``opened`` expanded; with None as many as fit in a picture.

    An open node shows its subgraphs, or the graphs that ``bodies`` returns for it. All keys begin with ``prefix``.
    """
    keys = opened if opened is not None else {f"{prefix}{key}" for key in automatic(graph)}
    return _Outline(graph, keys, bodies, prefix).scope


def automatic(graph: Graph, budget: int = BUDGET) -> set[str]:
    """The keys of groups and nodes to open, from outside in, within the budget."""
    root = _grouped(graph)
    opened: set[str] = set()
    shown = len(root.nodes) + len(root.groups) + len(graph.all_inputs) + len(graph.outputs)
    waiting: list[_Group] = list(root.groups.values())
    while waiting:
        waiting.sort(key=lambda group: group.count)
        following: list[_Group] = []
        for group in waiting:
            inside = len(group.nodes) + len(group.groups)
            if shown + inside > budget:
                return opened
            opened.add(f"g:{group.path}")
            shown += inside
            following += group.groups.values()
        waiting = following
    for number, node in enumerate(graph.nodes):
        inside = sum(len(nested.nodes) for nested in node.subgraphs)
        if inside and shown + inside <= budget:
            opened.add(f"n{number}")
            shown += inside
    return opened


class _Outline:
    """The outline of one graph. ``prefix`` is its path from the drawn graph."""

    def __init__(self, graph: Graph, opened: Collection[str], bodies: Bodies | None, prefix: str = "") -> None:
        self.graph, self.opened, self.bodies, self.prefix = graph, opened, bodies, prefix
        self.scope = Scope(graph.name)
        #: for each producer of a value, and for each node, the elements that contain it, from outside in
        self.elements: dict[Node | Value, list[Element]] = {}
        self.scopes: dict[Element, Scope] = {}
        for number, value in enumerate(graph.all_inputs):
            if not value.is_constant:
                self._add_end(f"i{number}", "input", value, value)
        self._add(_grouped(graph), self.scope, [])
        ends = {value: self._end(f"o{number}", "output", value) for number, value in enumerate(graph.outputs)}
        for node in graph.nodes:
            for value in node.uses:
                self._lead(value, self.elements[node])
        for value, end in ends.items():
            self.scope.elements.append(end)
            self._lead(value, [end])

    def _add_end(self, name: str, kind: str, value: Value, of: Value) -> None:
        end = self._end(name, kind, value)
        self.scope.elements.append(end)
        self.elements[of] = [end]

    def _end(self, name: str, kind: str, value: Value) -> Element:
        return Element(self.prefix + name, kind, short(value.name), [short(str(value.type or "?"))], value)

    def _add(self, group: _Group, scope: Scope, way: list[Element]) -> None:
        """Add the elements of a group, in the order of the graph."""
        parts: list[tuple[int, int | _Group]] = [(number, number) for number in group.nodes]
        parts += [(_first(inner), inner) for inner in group.groups.values()]
        for _, part in sorted(parts, key=lambda each: each[0]):
            if isinstance(part, int):
                element = self._node(part)
                self.elements[self.graph.nodes[part]] = [*way, element]
                scope.elements.append(element)
                continue
            key = f"{self.prefix}g:{part.path}"
            element = Element(key, "group", short(part.title), nodes=part.count, can_open=True)
            scope.elements.append(element)
            if key in self.opened:
                inside = Scope()
                element.inside = [inside]
                self.scopes[element] = inside
                self._add(part, inside, [*way, element])
            else:
                element.facts = [f"{part.count:,} nodes"]
                for number in _all(part):
                    self.elements[self.graph.nodes[number]] = [*way, element]

    def _node(self, number: int) -> Element:
        node = self.graph.nodes[number]
        key = f"{self.prefix}n{number}"
        element = Element(key, "node", short(node.op_type), facts(node), node)
        element.can_open = bool(node.subgraphs) or (
            self.bodies is not None and not getattr(node.op, "primitive", False)
        )
        if key not in self.opened:
            return element
        named: Iterable[tuple[str, Graph]] = subgraphs(node)
        if not node.subgraphs and self.bodies is not None:
            named = self.bodies(key, node)
        for name, graph in named:
            inner = _Outline(graph, self.opened, self.bodies, f"{key}/{name}/").scope
            inner.title = name
            element.inside.append(inner)
        return element

    def _lead(self, value: Value, to: list[Element]) -> None:
        """Add an edge from a value's producer to an element, through the borders of open groups."""
        start = self.elements.get(value.producer or value)
        if start is None:  # a constant, or a captured value
            return
        level = 0
        while level < min(len(start), len(to)) and start[level] is to[level]:
            level += 1
        if level == len(start) or level == len(to):
            return  # within one closed group
        self._scope(start, level).link(start[level], to[level], value)
        for deep in range(level + 1, len(start)):
            scope = self._scope(start, deep)
            scope.link(start[deep], _rim(scope.exits, value, scope, "exit"), value)
        for deep in range(level + 1, len(to)):
            scope = self._scope(to, deep)
            scope.link(_rim(scope.entries, value, scope, "entry"), to[deep], value)

    def _scope(self, way: list[Element], level: int) -> Scope:
        return self.scope if level == 0 else self.scopes[way[level - 1]]


def _rim(rims: dict[Value, Element], value: Value, scope: Scope, kind: str) -> Element:
    if value not in rims:
        rims[value] = Element("", kind, "", item=value)
        scope.elements.append(rims[value])
    return rims[value]


# ----- groups ---------------------------------------------------------------------------------------------------------


def group_keys(graph: Graph) -> dict[Node, list[str]]:
    """The keys of the groups that contain each node, from outside in."""
    result: dict[Node, list[str]] = {}

    def note(group: _Group, keys: list[str]) -> None:
        for number in group.nodes:
            result[graph.nodes[number]] = keys
        for inner in group.groups.values():
            note(inner, [*keys, f"g:{inner.path}"])

    note(_grouped(graph), [])
    return result


def _grouped(graph: Graph) -> _Group:
    """Group the nodes of a graph by the paths of their names; groups with a single member are omitted.

    A module that is called twice becomes two groups, so that edges between groups never lead upwards.
    """
    root = _Group("", "")
    joined = _Joined()
    for number, node in enumerate(graph.nodes):
        group, around, left = root, [], joined.left_by(node)
        for part in path_of(node):
            group = joined.group(group, part, left)
            around.append(group)
        joined.add(node, around, left)
        group.nodes.append(number)
    _tidy(root)
    while not root.nodes and len(root.groups) == 1:  # a group of everything adds no information
        (root,) = root.groups.values()
    return root


class _Joined:
    """Detects groups that a path would leave and enter again, with bit sets of groups per node.

    Nodes are added in topological order.
    """

    def __init__(self) -> None:
        self._bits: dict[int, int] = {}
        self._calls: dict[tuple[int, str], int] = {}
        #: for each node the groups that contain it, and those that a path to it has left
        self._inside: dict[Node, int] = {}
        self._left: dict[Node, int] = {}

    def group(self, outer: _Group, part: str, left: int) -> _Group:
        """The last group with this name, or a new one if that is in ``left``."""
        call = self._calls.get((id(outer), part), 1)
        result = outer.groups.get(_called(part, call))
        if result is not None and not left & self._bits[id(result)]:
            return result
        call += result is not None
        self._calls[id(outer), part] = call
        title = _called(part, call)
        created = outer.groups[title] = _Group(f"{outer.path}/{title}", title)
        self._bits[id(created)] = 1 << len(self._bits)
        return created

    def left_by(self, node: Node) -> int:
        """The groups that some path to the node enters and leaves."""
        left = 0
        for value in node.uses:
            if value.producer in self._left:
                left |= self._left[value.producer]
        return left

    def add(self, node: Node, around: Sequence[_Group], left: int) -> None:
        """Record the groups that contain a node, and those that paths to it have left."""
        inside = 0
        for group in around:
            inside |= self._bits[id(group)]
        for value in node.uses:
            left |= self._inside.get(value.producer, 0) & ~inside if value.producer is not None else 0
        self._inside[node], self._left[node] = inside, left


def _called(part: str, call: int) -> str:
    return part if call == 1 else f"{part} ({call})"


def path_of(node: Node) -> list[str]:
    """The names of the modules that contain a node, from PyTorch's exporter or from its own name."""
    noted = next((e.value for e in getattr(node.origin, "metadata_props", ()) if e.key == _SCOPES), "")
    # each includes the enclosing ones, the last is the node itself
    scopes = re.findall(r"'([^']*)'", noted[:_LONGEST_SCOPES])
    if len(scopes) > 1:
        return [part for part in scopes[-2].split(".") if part][:_DEEPEST]
    name = node.name
    for separator in ("/", "."):
        if separator in name:
            return [part for part in name.split(separator)[:-1] if part][:_DEEPEST]
    return []


def _tidy(group: _Group) -> None:
    for part, inner in list(group.groups.items()):
        while not inner.nodes and len(inner.groups) == 1:  # a group of one group
            (deeper,) = inner.groups.values()
            deeper.title = f"{inner.title}/{deeper.title}"
            inner = group.groups[part] = deeper
        _tidy(inner)
        if len(inner.nodes) == 1 and not inner.groups:
            group.nodes += inner.nodes
            del group.groups[part]
    group.count = len(group.nodes) + sum(inner.count for inner in group.groups.values())


def _all(group: _Group) -> Iterator[int]:
    yield from group.nodes
    for inner in group.groups.values():
        yield from _all(inner)


def _first(group: _Group) -> int:
    return min(_all(group))


# ----- facts about a node ---------------------------------------------------------------------------------------------


def subgraphs(node: Node) -> Iterator[tuple[str, Graph]]:
    """The subgraphs of a node, by attribute name."""
    for name, attribute in node.attributes.items():
        several = attribute if isinstance(attribute, list) else [attribute]
        for place, inner in enumerate(several):
            if isinstance(inner, Graph):
                yield (name if len(several) == 1 else f"{name}.{place}"), inner


def facts(node: Node) -> list[str]:
    """Short facts about a node: sizes of weights, small constants, and attributes that differ from the default."""
    found = []
    for value in node.inputs:
        if value is not None and value.is_constant and isinstance(value.type, TensorType):
            name = short(value.name.rpartition(".")[2].rpartition("/")[2], 16)
            contents = _contents(value)
            found.append(f"{name} = {contents}" if contents else f"{name} ⟨{sizes(value.type)}⟩")
    defaults = node.op.signature.attributes if isinstance(node.op, Op) else {}
    for name, attribute in node.attributes.items():
        text = _attribute(attribute)
        if text and text != _attribute(defaults.get(name)):
            found.append(f"{name} = {text}")
    shown = [short(fact) for fact in found[:MOST_FACTS]]
    return [*shown[: MOST_FACTS - 1], f"and {len(found) - MOST_FACTS + 1} more"] if len(found) > MOST_FACTS else shown


def _contents(value: Value) -> str:
    """The elements of a small constant; empty for a larger one."""
    shape = value.type.shape if isinstance(value.type, TensorType) else None
    if value.data is None or shape is None or len(shape) > 1 or not 0 < math.prod(map(_number, shape)) <= _FEW:
        return ""
    contents = value.data.array()
    texts = [
        short(str(each), 16) if isinstance(each, str | bytes) else f"{each:.4g}"
        for each in contents.reshape(-1).tolist()
    ]
    return ", ".join(texts) if shape == () else f"[{', '.join(texts)}]" if len(texts) != 1 else texts[0]


def _number(dim: Any) -> int:
    return dim if isinstance(dim, int) else 0


def _attribute(attribute: Any) -> str:
    if isinstance(attribute, Graph):
        return ""
    if isinstance(attribute, list | tuple) and all(isinstance(each, int | float) for each in attribute):
        return ", ".join(f"{each:.4g}" if isinstance(each, float) else str(each) for each in attribute[:8])
    if isinstance(attribute, float):
        return f"{attribute:.4g}"
    if isinstance(attribute, Constant):
        return str(attribute.array().item()) if attribute.type.shape == () else str(attribute.type)
    return str(attribute) if isinstance(attribute, int | str) else ""


def sizes(kind: Any) -> str:
    """The dims of a tensor, as label of an edge: ``n×3×224×224``; empty if unknown."""
    shape = getattr(kind, "shape", None)
    if shape is None:
        return ""
    return "×".join("?" if dim is None else str(dim) for dim in shape) or "scalar"
