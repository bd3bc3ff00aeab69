"""One model that is looked at: what it is, its drawing, and what is known of a node."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tenonnx import Graph, InvalidCall, Node, UnsupportedOp, Value, infer
from tenonnx.tools import Op, installing, late_if_installed
from tenonnx_cli.drawing import automatic, kind_of, path_of, picture, subgraphs
from tenonnx_cli.tools import describe, op_name, op_row
from tenonnx_serve.tasks import Tell
from tenonnx_serve.tasks.bodies import body_of
from tenonnx_serve.tasks.keys import keyed
from tenonnx_serve.tasks.reading import read, size

#: What is told of problems, and of text in attributes.
_PROBLEMS, _TEXT = 20, 400

#: Bars of a histogram, and elements that are looked at.
_BARS, _LOOKED_AT = 40, 4_000_000


@dataclass(slots=True)
class Looked:
    """The model of this process. ``bodies`` are those that were drawn, by the keys of their nodes."""

    graph: Graph
    bodies: dict[str, Sequence[tuple[str, Graph]]] = field(default_factory=dict)

    def body(self, key: str, node: Node) -> Sequence[tuple[str, Graph]]:
        if key not in self.bodies:
            self.bodies[key] = body_of(node, self.graph)
        return self.bodies[key]

    def find(self, key: str) -> Node:
        """The node of a key. Raises ``InvalidCall``."""
        graph, way = self.graph, ""
        *outer, last = key.split("/")
        try:
            for place in range(0, len(outer), 2):
                way += outer[place]
                node = graph.nodes[int(outer[place][1:])]
                inside = dict(subgraphs(node)) or dict(self.bodies.get(way, ()))
                graph, way = inside[outer[place + 1]], f"{way}/{outer[place + 1]}/"
            return graph.nodes[int(last[1:])]
        except (ValueError, IndexError, KeyError):
            raise InvalidCall("a node is asked for by a key of the drawing", given=key[:80]) from None


_looked: list[Looked] = []


def _model() -> Looked:
    if not _looked:
        raise InvalidCall("a model must be open to be looked at")
    return _looked[0]


def open_model(tell: Tell, source: str, reading: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What a model is, and the names of its nodes for the search."""
    graph = read(source, reading).graph
    problems = infer(graph, strict=False)
    _looked[:] = [Looked(graph)]
    about = describe(graph)
    weights = about.pop("variables")
    return {
        **about,
        "inputs": [{**each, "image": image_axes(each["shape"])} for each in about["inputs"]],
        "bytes": size(source, graph),
        "weights": {"count": len(weights), "bytes": sum(each["bytes"] for each in weights)},
        "problems": [str(problem) for problem in problems[:_PROBLEMS]],
        "index": [[key, op_name(node), label] for key, label, node in keyed(graph)],
        "made": size(source, graph) is None,
    }


def image_axes(shape: Sequence[Any] | None) -> dict[str, int] | None:
    """The axes of height and width, where an input has the dims of images: few channels, before them or after."""
    if shape is None or len(shape) != 4:
        return None
    if shape[1] in (1, 3, 4):
        return {"batch": 0, "height": 2, "width": 3}
    return {"batch": 0, "height": 1, "width": 2} if shape[3] in (1, 3, 4) else None


def draw(tell: Tell, opened: Sequence[str] | None = None, reveal: str | None = None) -> dict[str, Any]:
    """The drawing, with the elements of these keys open, or as many as have room; and which are.

    What is around the node ``reveal`` is open, too.
    """
    looked = _model()
    keys = set(opened) if opened is not None else automatic(looked.graph)
    if reveal is not None:
        keys |= _around(looked, reveal)
    made = picture(looked.graph, keys, looked.body)
    number = {id(box): place for place, box in enumerate(made.boxes)}
    return {
        "opened": sorted(keys),
        "width": round(made.width),
        "height": round(made.height),
        "boxes": [
            [
                box.key, kind_of(box), round(box.x, 1), round(box.y, 1), round(box.width, 1), round(box.height, 1),
                box.title, box.facts, (2 if box.inside else 1) if box.can_open else 0,
            ]
            for box in made.boxes
        ],
        "lines": [
            [
                [round(n, 1) for point in line.points for n in point], line.text, int(line.arrow),
                number.get(id(line.source), -1), number.get(id(line.target), -1),
            ]
            for line in made.lines
        ],
        "titles": [[round(x, 1), round(y, 1), text] for x, y, text in made.titles],
    }  # fmt: skip


def _around(looked: Looked, key: str) -> set[str]:
    """The keys of the groups and nodes that a node is in."""
    parts = key.split("/")
    found = set()
    for length in range(1, len(parts) + 1, 2):
        way, prefix = "/".join(parts[:length]), "".join(f"{part}/" for part in parts[: length - 1])
        if length < len(parts):
            found.add(way)
        names = path_of(looked.find(way))
        found |= {f"{prefix}g:/{'/'.join(names[: k + 1])}" for k in range(len(names))}
    return found


def node(tell: Tell, key: str) -> dict[str, Any]:
    """What is known of a node, or of an input or output of the graph."""
    looked = _model()
    if "/" not in key and key[:1] in ("i", "o") and key[1:].isdigit():
        values = looked.graph.all_inputs if key[0] == "i" else looked.graph.outputs
        if int(key[1:]) < len(values):
            return {"key": key, "title": values[int(key[1:])].name, "value": _value("", values[int(key[1:])])}
    found = looked.find(key)
    row = op_row(found.op, looked.graph.registry) if isinstance(found.op, Op) else None
    names = [name.strip("*?") for name in row["inputs"]] if row else []
    return {
        "key": key,
        "title": found.op_type,
        "name": found.name,
        "op": op_name(found),
        "version": found.version,
        "inputs": [
            {**_value(names[place] if place < len(names) else "", value), "place": place}
            for place, value in enumerate(found.inputs)
            if value is not None
        ],
        "outputs": [_value("", value) for value in found.outputs if value is not None],
        "attributes": {name: _attribute(value) for name, value in found.attributes.items()},
        "defaults": row["attributes"] if row else {},
        "documentation": row["doc"] if row else "",
        "package": row["package"] if row else "",
        "subgraphs": [name for name, _ in subgraphs(found)],
    }


def _value(called: str, value: Value) -> dict[str, Any]:
    return {
        "name": value.name,
        "called": called,
        "type": str(value.type or "?"),
        "constant": value.is_constant,
        "bytes": value.data.nbytes if value.data is not None else 0,
        "contents": _contents(value),
    }


def _contents(value: Value) -> str:
    """A small constant, written out."""
    if value.data is None or value.data.nbytes > 512:
        return ""
    return np.array2string(np.asarray(value.data.array()), threshold=32)[:_TEXT]


def _attribute(value: Any) -> str:
    if isinstance(value, Graph):
        return f"a graph of {len(value.nodes):,} nodes"
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text if len(text) <= _TEXT else f"{text[:_TEXT]}…"


def histogram(tell: Tell, key: str, place: int) -> dict[str, Any]:
    """How often which numbers are in a weight of a node."""
    inputs = _model().find(key).inputs
    value = inputs[place] if 0 <= place < len(inputs) else None
    if value is None or value.data is None:
        raise InvalidCall("a histogram is made of a weight", given=f"input {place} of {key[:80]}")
    contents = np.asarray(value.data.array()).reshape(-1)
    if contents.dtype.kind in "OSUc" or not contents.size:
        raise InvalidCall("a histogram is made of real numbers", given=str(value.type))
    looked_at = contents[:: max(1, contents.size // _LOOKED_AT)].astype(np.float64)
    finite = looked_at[np.isfinite(looked_at)]
    counts, edges = np.histogram(finite, _BARS) if finite.size else (np.zeros(1, int), np.zeros(2))
    return {
        "counts": counts.tolist(),
        "edges": [float(edges[0]), float(edges[-1])],
        "mean": _number(finite.mean()) if finite.size else None,
        "deviation": _number(finite.std()) if finite.size else None,
        "zeros": int((looked_at == 0).sum()),
        "looked_at": int(looked_at.size),
        "size": int(contents.size),
        "not_finite": int(looked_at.size - finite.size),
    }


def _number(number: Any) -> float | None:
    return float(number) if math.isfinite(number) else None


def costs(tell: Tell) -> dict[str, Any]:
    """Multiplications and bytes of each node and group, by key. Raises ``UnsupportedOp`` without the optimiser."""
    counted = late_if_installed("costs")
    if counted is None:
        raise UnsupportedOp("costs are counted by tenonnx-optimize", do=installing("tenonnx-optimize"))
    graph = _model().graph
    found = counted(graph)
    rows: dict[str, list[int]] = {}
    for place, (each, node) in enumerate(zip(found.nodes, graph.nodes, strict=True)):
        names = path_of(node)
        for key in (f"n{place}", *(f"g:/{'/'.join(names[: k + 1])}" for k in range(len(names)))):
            row = rows.setdefault(key, [0, 0])
            row[0] += each.multiplications or 0
            row[1] += each.weights + (each.written or 0)
    total = {"multiplications": found.multiplications, "weights": found.weights, "peak": found.peak}
    return {"sizes": found.sizes, "total": total, "nodes": rows}
