"""Differences of attributes and weights between the nodes of two graphs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tenonnx_cli.attributes import attribute_text

if TYPE_CHECKING:
    from tenonnx import Graph, Node, Value


def paired_nodes(one: Graph, other: Graph) -> tuple[list[tuple[Node, Node]], int]:
    """Pairs of equal nodes, by the values that they compute, and the number of paired values of the second graph."""
    from tenonnx.extend.checks import corresponding

    same = corresponding(one, other)
    makers = {value.name: node for node in one.nodes for value in node.outputs if value is not None}
    pairs: dict[int, tuple[Node, Node]] = {}
    for node in other.nodes:
        for value in node.outputs:
            first = makers.get(same.get(value.name, "")) if value is not None else None
            if first is not None and (first.domain, first.op_type) == (node.domain, node.op_type):
                pairs.setdefault(id(node), (first, node))
    return list(pairs.values()), len(same)


def attribute_differences(pairs: list[tuple[Node, Node]]) -> list[dict[str, str]]:
    """Attributes that differ between paired nodes; unwritten ones count with their defaults."""
    from tenonnx.extend.transforms import same_attribute

    result = []
    for first, second in pairs:
        ours, theirs = _attributes(first), _attributes(second)
        result += [
            {"name": f"{_title(first)}: {name}", "first": _shown(ours, name), "second": _shown(theirs, name)}
            for name in dict.fromkeys([*ours, *theirs])
            if name not in ours or name not in theirs or not same_attribute(ours[name], theirs[name])
        ]
    return result


def weight_differences(pairs: list[tuple[Node, Node]]) -> list[dict[str, Any]]:
    """Weights of the same type with different contents: the position of the largest difference, with both numbers."""
    found: dict[str, dict[str, Any]] = {}
    for ours, theirs in _weights(pairs):
        if ours.name not in found and (row := _difference(ours, theirs)) is not None:
            found[ours.name] = row
    return list(found.values())


def _weights(pairs: list[tuple[Node, Node]]) -> Iterator[tuple[Value, Value]]:
    for first, second in pairs:
        for ours, theirs in zip(first.inputs, second.inputs, strict=False):
            if ours is not None and theirs is not None and ours.data is not None and theirs.data is not None:
                yield ours, theirs


def _difference(ours: Value, theirs: Value) -> dict[str, Any] | None:
    import numpy as np

    if ours.type != theirs.type or ours.data is None or theirs.data is None:
        return None
    one, two = np.asarray(ours.data.array()), np.asarray(theirs.data.array())
    same = (one == two) | ((one != one) & (two != two))
    if one.shape != two.shape or same.all():
        return None
    if one.dtype.kind in "fiu" or one.dtype.kind == "V":
        difference = np.where(same, -1.0, np.abs(one.astype(np.float64) - two.astype(np.float64)))
        place = np.unravel_index(int(np.nanargmax(difference)), difference.shape)
    else:
        place = np.unravel_index(int(np.argmin(same)), same.shape)
    where = f"[{', '.join(map(str, place))}]" if place else ""
    count = int(np.size(same) - np.count_nonzero(same))
    name = f"{ours.name}{where}, the largest of {count:,} in {same.size:,}"
    return {
        "name": name,
        "first": _number(one[place]),
        "second": _number(two[place]),
    }


def _number(element: Any) -> Any:
    """An element of an array as JSON: a number if finite, else text."""
    import numpy as np

    if np.asarray(element).dtype.kind in "iu":
        return int(element)
    if np.asarray(element).dtype.kind in "fV" and np.isfinite(number := float(element)):
        return float(f"{number:.6g}")
    return str(element)


def _title(node: Node) -> str:
    name = node.op_type if node.domain == "ai.onnx" else f"{node.domain}::{node.op_type}"
    return f"{node.label}, {name}"


def _attributes(node: Node) -> Mapping[str, Any]:
    """The complete attributes, with defaults, without subgraphs."""
    from tenonnx import Graph
    from tenonnx.extend import REQUIRED
    from tenonnx.extend.testing import signature_at
    from tenonnx.tools import Op

    written = {name: value for name, value in node.attributes.items() if not isinstance(value, Graph)}
    if not isinstance(node.op, Op):
        return written
    signature = signature_at(node.op, node.version)
    defaults = {old: signature.defaults[name] for old, name in signature.attributes.items()}
    return {name: value for name, value in defaults.items() if value is not None and value is not REQUIRED} | written


def _shown(attributes: Mapping[str, Any], name: str) -> str:
    if name not in attributes:
        return "-"
    return attribute_text(attributes[name])
