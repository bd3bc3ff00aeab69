"""Two models side by side: which nodes are equal, changed, added or removed, and what they compute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tenonnx import Graph, Node, TenonnxError, Value, infer, verify
from tenonnx.extend.checks import corresponding
from tenonnx.extend.transforms import attributes_key
from tenonnx_cli.tools import common_sizes, read_feeds, structural_differences
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
    """The fate of each node of both, by key; then numbers, and the first node that diverges."""
    tell(step="Reading both models")
    one, two = read(source, reading).graph, read(other).graph
    for graph in (one, two):
        infer(graph, strict=False)
    tell(step="Comparing nodes")
    fates = node_fates(one, two)
    result: dict[str, Any] = {"fates": fates, "structure": structural_differences(one, two)}
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
        "passed": found.equal if found.outputs else None,
        "verification": found.to_json(),
        "diverging": None if diverging is None else {**diverging.to_json(), "key": places.get(diverging.value, "")},
    }


def node_fates(one: Graph, two: Graph) -> list[dict[str, str]]:
    """For both graphs, by key: equal, changed, removed (of the first) or added (of the second)."""
    same = corresponding(one, two)  # names of the second to those of the first
    makers = {v.name: (k, node) for k, node in enumerate(one.nodes) for v in node.outputs if v is not None}
    ours = {f"n{k}": "removed" for k in range(len(one.nodes))}
    theirs: dict[str, str] = {}
    for k, node in enumerate(two.nodes):
        partner = next((makers.get(same.get(v.name, "")) for v in node.outputs if v is not None), None)
        if partner is None:
            theirs[f"n{k}"] = "added"
            continue
        place, counterpart = partner
        fate = "equal" if _equal(counterpart, node, same) else "changed"
        theirs[f"n{k}"] = ours[f"n{place}"] = fate
    return [ours, theirs]


def _equal(one: Node, two: Node, same: Mapping[str, str]) -> bool:
    """Whether two nodes are one op with the same attributes and weights, on values that correspond."""
    if (one.domain, one.op_type, len(one.inputs)) != (two.domain, two.op_type, len(two.inputs)):
        return False
    if attributes_key(one.attributes) != attributes_key(two.attributes):
        return False
    return all(_same(a, b, same) for a, b in zip(one.inputs, two.inputs, strict=True))


def _same(one: Value | None, two: Value | None, same: Mapping[str, str]) -> bool:
    if one is None or two is None:
        return one is two
    if one.is_constant and two.is_constant:
        assert one.data is not None
        assert two.data is not None
        a, b = one.data, two.data
        alike = a.type == b.type and a.nbytes == b.nbytes
        return alike and np.array_equal(a.array(), b.array(), equal_nan=a.array().dtype.kind in "fc")
    return same.get(two.name, two.name) == one.name
