"""Outline and drawing of one model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tenonnx import Graph, InvalidCall, InvalidModel, Node, UnsupportedOp, Value, infer
from tenonnx.tools import extension
from tenonnx_cli.drawing import automatic, group_keys, kind_of, picture, subgraphs
from tenonnx_cli.tools import describe
from tenonnx_serve.tasks import Tell
from tenonnx_serve.tasks.bodies import body_of
from tenonnx_serve.tasks.broken import REFUSED, named_op, repair
from tenonnx_serve.tasks.failures import described
from tenonnx_serve.tasks.faults import closed_groups, faults_in, lines_back
from tenonnx_serve.tasks.keys import keyed
from tenonnx_serve.tasks.places import Places
from tenonnx_serve.tasks.reading import read, size

#: Maximum number of problems, and maximum length of an attribute's text.
_PROBLEMS, _TEXT = 20, 400


@dataclass(slots=True)
class Looked:
    """The model of this process. ``bodies`` are the drawn ones, by the keys of their nodes.

    ``missing`` maps weights without contents to the reason; ``faults`` has the faults of nodes and groups by key.
    """

    graph: Graph
    missing: Mapping[str, str] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)
    bodies: dict[str, Sequence[tuple[str, Graph]]] = field(default_factory=dict)
    index: Places = field(default_factory=Places)

    def body(self, key: str, node: Node) -> Sequence[tuple[str, Graph]]:
        if key not in self.bodies:
            self.bodies[key] = body_of(node, self.graph)
            for name, graph in self.bodies[key]:
                self.index.add(graph, f"{key}/{name}/")
        return self.bodies[key]

    def function(self, number: int) -> tuple[str, Graph]:
        """The key prefix and the body of a model-local function. Raises ``InvalidCall``."""
        functions = list(self.graph.functions.values())
        if not 0 <= number < len(functions):
            raise InvalidCall("the model has no such function", given=str(number), available=str(len(functions)))
        prefix = f"f{number}/body/"
        graph: Graph = functions[number].body  # type: ignore[attr-defined]
        if prefix not in self.bodies:
            self.bodies[prefix] = (("body", graph),)
            infer(graph, strict=False)
            self.index.add(graph, prefix)
        return prefix, graph

    def scope(self, key: str) -> tuple[Graph, str]:
        """The graph of a key, and the last part of the key. Raises ``InvalidCall``."""
        graph, way = self.graph, ""
        *outer, last = key.split("/")
        try:
            for place in range(0, len(outer), 2):
                way += outer[place]
                if way.startswith("f") and way == outer[0]:
                    _, graph = self.function(int(way[1:]))
                else:
                    node = graph.nodes[int(outer[place][1:])]
                    inside = dict(subgraphs(node)) or dict(self.bodies.get(way, ()))
                    graph = inside[outer[place + 1]]
                way = f"{way}/{outer[place + 1]}/"
        except (ValueError, IndexError, KeyError):
            raise _no_such(key) from None
        return graph, last

    def find(self, key: str) -> Node:
        """The node with this key. Raises ``InvalidCall``."""
        graph, last = self.scope(key)
        try:
            return graph.nodes[int(last[1:])]
        except (ValueError, IndexError):
            raise _no_such(key) from None

    def value(self, key: str) -> Value:
        """The value with this key. Raises ``InvalidCall``."""
        self.scope(key)
        if key not in self.index.by_key:
            raise _no_such(key)
        return self.index.by_key[key]


def _no_such(key: str) -> InvalidCall:
    return InvalidCall("the drawing has no node or value with this key", given=key[:80])


_looked: list[Looked] = []


def model() -> Looked:
    """The model of this process. Raises ``InvalidCall``."""
    if not _looked:
        raise InvalidCall("the model is not open")
    return _looked[0]


def open_model(tell: Tell, source: str, reading: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Open a model; returns its outline and search terms of its nodes. An invalid model is repaired for drawing."""
    faults: Mapping[str, str] = {}
    missing: Mapping[str, str] = {}
    broken: dict[str, Any] | None = None
    try:
        graph = read(source, reading).graph
    except (InvalidModel, UnsupportedOp) as error:
        found = repair(source, error)
        graph, faults, missing, broken = found.graph, found.faults, found.missing, described(error)
        if missing:  # the faults list the weights and the expected paths
            broken |= {"given": "", "do": "put the data file beside the model, or send it"}
    problems = infer(graph, strict=False)
    faults_of_model = faults_in(graph, faults, problems)
    looked = Looked(graph, missing)
    looked.index.add(graph)
    for fault in faults_of_model:
        looked.faults.setdefault(fault["key"], fault["what"])
    for key, count in closed_groups(graph, faults_of_model).items():
        looked.faults.setdefault(key, "a fault inside" if count == 1 else f"{count} faults inside")
    _looked[:] = [looked]
    about = describe(graph)
    weights = about.pop("variables")
    bodies = list(graph.functions.values())
    about["opsets"] = {domain: version for domain, version in about["opsets"].items() if domain != REFUSED}
    return {
        **about,
        "ops": [{**row, "op": row["op"].removeprefix(f"{REFUSED}::")} for row in about["ops"]],
        "functions": [
            {**each, "doc": body.proto.doc_string}  # type: ignore[attr-defined]
            for each, body in zip(about["functions"], bodies, strict=True)
        ],
        "inputs": [{**each, "image": image_axes(each["shape"])} for each in about["inputs"]],
        "bytes": size(source, graph),
        "weights": {"count": len(weights), "bytes": sum(each["bytes"] for each in weights)},
        "problems": [str(problem) for problem in problems[:_PROBLEMS]],
        "broken": broken,
        "missing": bool(missing),
        "faults": faults_of_model,
        "back": lines_back(graph),
        "index": [_search_entry(key, label, node) for key, label, node in keyed(graph)],
        "interface": _interface(graph),
        "made": size(source, graph) is None,
    }


def _interface(graph: Graph) -> list[list[Any]]:
    """Search entries for the inputs and outputs of a graph."""
    inputs = [[f"i{place}", "input", value.name, [], {}] for place, value in enumerate(graph.all_inputs)]
    return inputs + [[f"o{place}", "output", value.name, [], {}] for place, value in enumerate(graph.outputs)]


def _search_entry(key: str, label: str, node: Node) -> list[Any]:
    """Search entry of a node: key, op and name, names of its weights and outputs, and scalar and text attributes."""
    weights = [value.name for value in node.inputs if value is not None and value.is_constant]
    names = [name for name in (*weights, *(v.name for v in node.outputs if v is not None)) if name != label]
    attributes = {name: short for name, value in node.attributes.items() if (short := _short(value)) is not None}
    return [key, named_op(node), label, names, attributes]


def _short(value: Any) -> int | float | str | None:
    """A scalar or text attribute as JSON; None for others."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return value[:_TEXT]
    return value if isinstance(value, int) else None


def image_axes(shape: Sequence[Any] | None) -> dict[str, int] | None:
    """The axes of height and width of an input with image dims: few channels, first or last."""
    if shape is None or len(shape) != 4:
        return None
    if shape[1] in (1, 3, 4):
        return {"batch": 0, "height": 2, "width": 3}
    return {"batch": 0, "height": 1, "width": 2} if shape[3] in (1, 3, 4) else None


def draw(
    tell: Tell,
    opened: Sequence[str] | None = None,
    reveal: str | None = None,
    function: int | None = None,
    everything: bool = False,
) -> dict[str, Any]:
    """The drawing with the elements of the keys ``opened`` expanded, or as many as fit, or all; also returns which.

    The surroundings of the node ``reveal`` are expanded, too. ``function`` draws the body of a model-local function.
    """
    looked = model()
    if reveal is not None and reveal.startswith("f"):
        function = int(reveal.partition("/")[0][1:])
    prefix, graph = ("", looked.graph) if function is None else looked.function(function)
    if everything:
        keys = {f"{prefix}{key}" for key in _all_keys(graph)}
    else:
        keys = set(opened) if opened is not None else {f"{prefix}{key}" for key in automatic(graph)}
    if reveal is not None:
        keys |= _around(looked, reveal)
    drawn = picture(graph, keys, looked.body, prefix, looked.faults)
    number = {id(box): place for place, box in enumerate(drawn.boxes)}
    return {
        "opened": sorted(keys),
        "width": round(drawn.width),
        "height": round(drawn.height),
        "boxes": [
            [
                box.key,
                kind_of(box),
                round(box.x, 1),
                round(box.y, 1),
                round(box.width, 1),
                round(box.height, 1),
                box.title,
                box.facts,
                (2 if box.inside else 1) if box.can_open else 0,
            ]
            for box in drawn.boxes
        ],
        "lines": [
            [
                [round(n, 1) for point in line.points for n in point],
                line.text,
                int(line.arrow),
                number.get(id(line.source), -1),
                number.get(id(line.target), -1),
                looked.index.key(line.value) or "",
            ]
            for line in drawn.lines
        ],
        "titles": [[round(x, 1), round(y, 1), text] for x, y, text in drawn.titles],
        "faults": {box.key: looked.faults[box.key] for box in drawn.boxes if box.key in looked.faults},
    }


def _all_keys(graph: Graph) -> Iterator[str]:
    """The keys of all groups and of all nodes with subgraphs."""
    for keys in group_keys(graph).values():
        yield from keys
    for key, _, node in keyed(graph):
        if node.subgraphs:
            yield key
        for name, inner in subgraphs(node):
            yield from (f"{key}/{name}/{group}" for keys in group_keys(inner).values() for group in keys)


def _around(looked: Looked, key: str) -> set[str]:
    """The keys of the groups and nodes that contain a node."""
    parts = key.split("/")
    result = set()
    for length in range(1, len(parts) + 1, 2):
        way, prefix = "/".join(parts[:length]), "".join(f"{part}/" for part in parts[: length - 1])
        if not parts[length - 1].startswith("n"):  # an input, an output, or the function itself
            continue
        if length < len(parts):
            result.add(way)
        node = looked.find(way)
        assert node.graph is not None
        result |= {f"{prefix}{group}" for group in group_keys(node.graph)[node]}
    return result


def costs(tell: Tell) -> dict[str, Any]:
    """Multiplications and bytes of each node and group, by key. Raises ``PluginError`` without tenonnx-optimize."""
    graph = model().graph
    found = extension("costs")(graph)
    groups = group_keys(graph)
    rows: dict[str, list[int]] = {}
    for place, (each, node) in enumerate(zip(found.nodes, graph.nodes, strict=True)):
        for key in (f"n{place}", *groups[node]):
            row = rows.setdefault(key, [0, 0])
            row[0] += each.multiplications or 0
            row[1] += each.weights + (each.written or 0)
    total = {"multiplications": found.multiplications, "weights": found.weights, "peak": found.peak}
    return {"sizes": found.sizes, "total": total, "nodes": rows}
