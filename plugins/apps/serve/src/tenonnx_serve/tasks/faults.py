"""Faults of a model, with the keys of their places in the drawing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenonnx import Graph, Node, TenonnxError
from tenonnx.tools import Op, absence
from tenonnx_cli.drawing import group_keys
from tenonnx_cli.tools import op_name
from tenonnx_serve.tasks.broken import cut_values, faults_of, is_refused
from tenonnx_serve.tasks.keys import keyed

#: Maximum number of faults, and of type inference errors among them.
_MOST, _PROBLEMS = 500, 50


def faults_in(graph: Graph, of_ends: Mapping[str, str], problems: Sequence[TenonnxError]) -> list[dict[str, str]]:
    """The faults of nodes, of inputs and outputs (``of_ends``, by name), and of type inference."""
    found = [
        {"key": f"{kind}{place}", "label": value.name, "what": of_ends[value.name]}
        for kind, values in (("i", graph.all_inputs), ("o", graph.outputs))
        for place, value in enumerate(values)
        if value.name in of_ends
    ]
    titles = {}
    for key, label, node in keyed(graph):
        titles[node.title] = key, label
        fault_texts = dict.fromkeys(faults_of(node))
        if not isinstance(node.op, Op) and not is_refused(node) and not _is_function(node, graph):
            lacking = absence(graph.registry, node.domain, node.op_type, node.version)
            fault_texts[f"unknown op {op_name(node)}: {lacking.reason}"] = None
        found += [{"key": key, "label": label, "what": what} for what in fault_texts]
    for problem in problems[:_PROBLEMS]:
        for title, (key, label) in titles.items():
            if problem.what.startswith(title):
                found.append({"key": key, "label": label, "what": problem.what.removeprefix(title).lstrip(": ")})
                break
    return found[:_MOST]


def _is_function(node: Node, graph: Graph) -> bool:
    return any(name[:2] == (node.domain, node.op_type) for name in graph.functions)


def closed_groups(graph: Graph, faults: Sequence[Mapping[str, str]]) -> dict[str, int]:
    """Number of faulty nodes in each group, and in each node with subgraphs."""
    groups = group_keys(graph)
    counts: dict[str, int] = {}
    for key in {fault["key"] for fault in faults}:
        outermost, _, deeper = key.partition("/")
        if not outermost.startswith("n"):
            continue
        around = [*groups[graph.nodes[int(outermost[1:])]], *([outermost] if deeper else [])]
        for each in around:
            counts[each] = counts.get(each, 0) + 1
    return counts


def lines_back(graph: Graph) -> list[list[str]]:
    """The edges that close cycles, as pairs of node keys."""
    keys: dict[str, str] = {}
    cut: list[tuple[str, str]] = []
    for key, _, node in keyed(graph):
        keys |= {value.name: key for value in node.outputs if value is not None}
        cut += [(name, key) for name in cut_values(node)]
    return [[keys[name], key] for name, key in cut if name in keys]
