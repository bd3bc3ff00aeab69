"""Comparison of two models: nodes that are equal, changed, added or removed, and outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tenonnx import Graph, Node, TenonnxError, Value, infer, verify
from tenonnx.extend.checks import corresponding
from tenonnx.extend.transforms import attributes_key
from tenonnx_cli.drawing import subgraphs
from tenonnx_cli.tools import common_sizes, has_passed, read_feeds, structural_differences
from tenonnx_serve.tasks import Tell
from tenonnx_serve.tasks.failures import described
from tenonnx_serve.tasks.reading import read


def compare(
    tell: Tell,
    source: str,
    other: str,
    name: str,
    folder: str,
    options: Mapping[str, Any],
    reading: Mapping[str, Any] | None = None,
    feeds: str | None = None,
) -> dict[str, Any]:
    """Compare two models: the status of all nodes by key, differences of outputs, and the first node that diverges."""
    tell(step="Reading both models")
    one, two = read(source, reading).graph, read(other).graph
    for graph in (one, two):
        infer(graph, strict=False)
    tell(step="Comparing nodes")
    *fates, pairs = node_fates(one, two)
    result: dict[str, Any] = {"fates": fates, "pairs": pairs, "structure": structural_differences(one, two)}
    tell(step="Comparing numbers")
    try:
        given = read_feeds(one, (), feeds) or None
        found = verify(one, two, feeds=given, input_shapes=common_sizes(one, two), structure=False)
    except TenonnxError as error:
        return {**result, "error": described(error)}
    diverging = found.first_divergence
    places = {v.name: f"n{k}" for k, node in enumerate(two.nodes) for v in node.outputs if v is not None}
    return {
        **result,
        # None if nothing was compared, because of different inputs or outputs
        "passed": has_passed(found) if found.outputs else None,
        "verification": found.to_dict(),
        "diverging": None if diverging is None else {**diverging.to_dict(), "key": places.get(diverging.value, "")},
    }


def node_fates(one: Graph, two: Graph) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """The status of all nodes by key, including subgraphs, and for nodes of the first graph those of the second.

    A status is equal, attributes or weights (only these changed), changed, removed (from the first), or added.
    """
    result: tuple[dict[str, str], dict[str, str], dict[str, str]] = ({}, {}, {})
    _compare(one, two, {}, ("", ""), result)
    return result


def _compare(
    one: Graph,
    two: Graph,
    outer: Mapping[str, str],
    ways: tuple[str, str],
    fates: tuple[dict[str, str], dict[str, str], dict[str, str]],
) -> None:
    """Compare nodes of two graphs with key prefixes ``ways``; ``outer`` maps names of equal outer values."""
    same = {**outer, **corresponding(one, two)}  # names of the second graph to those of the first
    same |= {b.name: a.name for a, b in zip(one.inputs, two.inputs, strict=False)} if ways[0] else {}
    makers = {v.name: (k, node) for k, node in enumerate(one.nodes) for v in node.outputs if v is not None}
    for k, node in enumerate(one.nodes):
        _all_of(node, f"{ways[0]}n{k}", "removed", fates[0])
    for k, node in enumerate(two.nodes):
        key = f"{ways[1]}n{k}"
        partner = next((makers.get(same.get(v.name, "")) for v in node.outputs if v is not None), None)
        if partner is None:
            _all_of(node, key, "added", fates[1])
            continue
        place, counterpart = partner
        inside = dict(subgraphs(counterpart))
        for name, inner in subgraphs(node):
            if name in inside:
                _compare(inside[name], inner, same, (f"{ways[0]}n{place}/{name}/", f"{key}/{name}/"), fates)
            else:
                _all_in(inner, f"{key}/{name}/", "added", fates[1])
        alike = all(fate == "equal" for way, fate in fates[1].items() if way.startswith(f"{key}/"))
        fates[1][key] = fates[0][f"{ways[0]}n{place}"] = _change(counterpart, node, same) if alike else "changed"
        fates[2][f"{ways[0]}n{place}"] = key


def _all_of(node: Node, key: str, fate: str, fates: dict[str, str]) -> None:
    """Set the status of a node and of all nodes in its subgraphs."""
    fates[key] = fate
    for name, inner in subgraphs(node):
        _all_in(inner, f"{key}/{name}/", fate, fates)


def _all_in(graph: Graph, way: str, fate: str, fates: dict[str, str]) -> None:
    for k, node in enumerate(graph.nodes):
        _all_of(node, f"{way}n{k}", fate, fates)


def _change(one: Node, two: Node, same: Mapping[str, str]) -> str:
    """Whether two nodes are equal, or differ in attributes, weights, or more."""
    if (one.domain, one.op_type, len(one.inputs)) != (two.domain, two.op_type, len(two.inputs)):
        return "changed"
    inputs = list(zip(one.inputs, two.inputs, strict=True))
    weights = [(a, b) for a, b in inputs if a is not None and b is not None and a.is_constant and b.is_constant]
    others = [pair for pair in inputs if pair not in weights]
    if not all(_same(a, b, same) for a, b in others):
        return "changed"
    if attributes_key(one.attributes) != attributes_key(two.attributes):
        return "attributes" if all(map(_equal_weights, weights)) else "changed"
    return "equal" if all(map(_equal_weights, weights)) else "weights"


def _same(one: Value | None, two: Value | None, same: Mapping[str, str]) -> bool:
    if one is None or two is None:
        return one is two
    return same.get(two.name, two.name) == one.name


def _equal_weights(pair: tuple[Value, Value]) -> bool:
    one, two = (value.data for value in pair)
    assert one is not None
    assert two is not None
    alike = one.type == two.type and one.nbytes == two.nbytes
    return alike and np.array_equal(one.array(), two.array(), equal_nan=one.array().dtype.kind in "fc")
