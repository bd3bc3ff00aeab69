"""The outline of a drawing: nodes, groups by paths of names, subgraphs, open or closed."""

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

#: Elements that are drawn where nobody says what is open.
BUDGET = 160

#: Lines about a node: its weights and attributes.
MOST_FACTS = 4

#: Elements of a constant that are written out.
_FEW = 4

#: Groups inside each other.
_DEEPEST = 12

#: Where the exporter of PyTorch notes the modules that a node is of, as a list, and what is read of it.
_SCOPES, _LONGEST_SCOPES = "pkg.torch.onnx.name_scopes", 4000


@dataclass(slots=True, eq=False)
class Element:
    """A box: a node, an input or output, a group of nodes, or where a line enters or leaves an open group.

    ``key`` is the way to it: ``n3`` is the fourth node, ``n3/then_branch/n0`` the first of a subgraph of it, and ``g:``
    leads to a group. ``inside`` is what is drawn in it.
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
    """A value on its way between two elements of a scope, or to and from the rim of that."""

    source: Element
    target: Element
    value: Value
    points: list[tuple[float, float]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Scope:
    """Elements that are laid out together, with the lines between them. ``entries`` and ``exits`` are at the rims."""

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


#: What else can be drawn in a node, such as its decomposition: titles with graphs.
Bodies = Callable[[str, Node], Sequence[tuple[str, Graph]]]


@dataclass(slots=True)
class _Group:
    """Nodes whose names begin alike."""

    path: str
    title: str
    nodes: list[int] = field(default_factory=list)
    groups: dict[str, _Group] = field(default_factory=dict)
    count: int = 0


def outline(
    graph: Graph, opened: Collection[str] | None = None, bodies: Bodies | None = None, prefix: str = ""
) -> Scope:
    """Elements to draw, where those of the keys ``opened`` are open; with None as many as a picture has room for.

    Inside an open node are its subgraphs, or what ``bodies`` gives for it, which is asked of nodes that are ``opened``.
    Every key begins with ``prefix``.
    """
    keys = opened if opened is not None else {f"{prefix}{key}" for key in automatic(graph)}
    return _Outline(graph, keys, bodies, prefix).scope


def automatic(graph: Graph, budget: int = BUDGET) -> set[str]:
    """The keys of groups and nodes to open, from outside in, as long as there is room."""
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
    """The outline of one graph. ``prefix`` is the way to it from that which is drawn as a whole."""

    def __init__(self, graph: Graph, opened: Collection[str], bodies: Bodies | None, prefix: str = "") -> None:
        self.graph, self.opened, self.bodies, self.prefix = graph, opened, bodies, prefix
        self.scope = Scope(graph.name)
        #: Of what makes a value, the elements that it is in, from outside in; and so of each node.
        self.ways: dict[Node | Value, list[Element]] = {}
        self.scopes: dict[Element, Scope] = {}
        for number, value in enumerate(graph.all_inputs):
            if not value.is_constant:
                self._add_end(f"i{number}", "input", value, value)
        self._add(_grouped(graph), self.scope, [])
        ends = {value: self._end(f"o{number}", "output", value) for number, value in enumerate(graph.outputs)}
        for node in graph.nodes:
            for value in node.uses:
                self._lead(value, self.ways[node])
        for value, end in ends.items():
            self.scope.elements.append(end)
            self._lead(value, [end])

    def _add_end(self, name: str, kind: str, value: Value, of: Value) -> None:
        end = self._end(name, kind, value)
        self.scope.elements.append(end)
        self.ways[of] = [end]

    def _end(self, name: str, kind: str, value: Value) -> Element:
        return Element(self.prefix + name, kind, short(value.name), [short(str(value.type or "?"))], value)

    def _add(self, group: _Group, scope: Scope, way: list[Element]) -> None:
        """The elements of a group, in the order of the graph."""
        parts: list[tuple[int, int | _Group]] = [(number, number) for number in group.nodes]
        parts += [(_first(inner), inner) for inner in group.groups.values()]
        for _, part in sorted(parts, key=lambda each: each[0]):
            if isinstance(part, int):
                element = self._node(part)
                self.ways[self.graph.nodes[part]] = [*way, element]
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
                    self.ways[self.graph.nodes[number]] = [*way, element]

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
        """A line from what makes a value to an element, through the rims of the open groups between."""
        start = self.ways.get(value.producer or value)
        if start is None:  # a constant, or from outside
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
    """The keys of the groups that each node of a graph is in, from outside in."""
    found: dict[Node, list[str]] = {}

    def note(group: _Group, keys: list[str]) -> None:
        for number in group.nodes:
            found[graph.nodes[number]] = keys
        for inner in group.groups.values():
            note(inner, [*keys, f"g:{inner.path}"])

    note(_grouped(graph), [])
    return found


def _grouped(graph: Graph) -> _Group:
    """The nodes of a graph by the paths of their names; groups of one part alone are left out.

    A module that is called twice becomes two groups, so that no line between groups leads back up.
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
    while not root.nodes and len(root.groups) == 1:  # a group of everything tells nothing
        (root,) = root.groups.values()
    return root


class _Joined:
    """The groups that nodes are in and behind, as bits of integers, while nodes are added in order."""

    def __init__(self) -> None:
        self._bits: dict[int, int] = {}
        self._calls: dict[tuple[int, str], int] = {}
        #: By node, the groups that it is in, and those that a way to it has left.
        self._inside: dict[Node, int] = {}
        self._left: dict[Node, int] = {}

    def group(self, outer: _Group, part: str, left: int) -> _Group:
        """The last group of a part of a path, or another where that one is among those ``left``."""
        call = self._calls.get((id(outer), part), 1)
        found = outer.groups.get(_called(part, call))
        if found is not None and not left & self._bits[id(found)]:
            return found
        call += found is not None
        self._calls[id(outer), part] = call
        title = _called(part, call)
        made = outer.groups[title] = _Group(f"{outer.path}/{title}", title)
        self._bits[id(made)] = 1 << len(self._bits)
        return made

    def left_by(self, node: Node) -> int:
        """The groups that a path to the node enters and leaves."""
        left = 0
        for value in node.uses:
            if value.producer in self._left:
                left |= self._left[value.producer]
        return left

    def add(self, node: Node, around: Sequence[_Group], left: int) -> None:
        """Record the groups around a node, and those that paths to it have left."""
        inside = 0
        for group in around:
            inside |= self._bits[id(group)]
        for value in node.uses:
            left |= self._inside.get(value.producer, 0) & ~inside if value.producer is not None else 0
        self._inside[node], self._left[node] = inside, left


def _called(part: str, call: int) -> str:
    return part if call == 1 else f"{part} ({call})"


def path_of(node: Node) -> list[str]:
    """The names of the modules that a node is in, as PyTorch's exporter notes them, or as its own name tells."""
    noted = next((e.value for e in getattr(node.origin, "metadata_props", ()) if e.key == _SCOPES), "")
    scopes = re.findall(r"'([^']*)'", noted[:_LONGEST_SCOPES])  # each with those around it, the last is the node itself
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


# ----- what is said of a node -----------------------------------------------------------------------------------------


def subgraphs(node: Node) -> Iterator[tuple[str, Graph]]:
    """The graphs that a node holds, by the names of its attributes."""
    for name, attribute in node.attributes.items():
        several = attribute if isinstance(attribute, list) else [attribute]
        for place, inner in enumerate(several):
            if isinstance(inner, Graph):
                yield (name if len(several) == 1 else f"{name}.{place}"), inner


def facts(node: Node) -> list[str]:
    """The sizes of a node's weights or few numbers, and attributes that are not as by default, in few lines."""
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
    """The numbers or texts of a constant of few; empty where there are more."""
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
    """The dims of a tensor, as on a line: ``n×3×224×224``; empty where they are not known."""
    shape = getattr(kind, "shape", None)
    if shape is None:
        return ""
    return "×".join("?" if dim is None else str(dim) for dim in shape) or "scalar"
