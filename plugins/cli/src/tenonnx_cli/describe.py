"""A model as data for people and programs: what ``inspect`` prints."""

from __future__ import annotations

from collections import Counter
from typing import Any

import onnx

from tenonnx import Graph, Node, Registry, TensorType, Value
from tenonnx.tools import Op, Operator, SparseTensorType, Type, absence


def describe(graph: Graph) -> dict[str, Any]:
    """Interface, variables, ops with the packages that provide them, functions, subgraphs and metadata of a graph."""
    origin = graph.origin if isinstance(graph.origin, onnx.ModelProto) else onnx.ModelProto()
    return {
        "name": graph.name,
        "ir_version": graph.ir_version,
        "opsets": graph.opsets,
        "producer": " ".join(filter(None, (origin.producer_name, origin.producer_version))),
        "doc": origin.doc_string or graph.doc,
        "inputs": [_value(v) for v in graph.inputs],
        "outputs": [_value(v) for v in graph.outputs],
        "variables": [{**_value(v), "bytes": v.data.nbytes if v.data is not None else 0} for v in graph.variables],
        "ops": _ops(graph),
        "functions": [_function(key, function) for key, function in graph.functions.items()],
        "subgraphs": [
            {"node": node.name, "op": op_name(node), "name": inner.name, "nodes": len(inner.nodes)}
            for node in graph.walk()
            for inner in node.subgraphs
        ],
        "metadata": graph.metadata,
        "training_state": _training_state(graph),
    }


def _training_state(graph: Graph) -> dict[str, Any] | None:
    """The tensors and settings that an optimizer goes on from."""
    if (state := graph.training_state) is None:
        return None
    tensors = [{"name": n, "type": str(data.type), "bytes": data.nbytes} for n, data in state.tensors.items()]
    return {"tensors": tensors, "settings": dict(state.settings)}


def list_nodes(graph: Graph) -> list[dict[str, Any]]:
    """Every node of the main graph."""
    return [
        {
            "name": node.name,
            "op": op_name(node),
            "version": node.version,
            "inputs": ["" if v is None else v.name for v in node.inputs],
            "outputs": [_value(v) for v in node.outputs if v is not None],
        }
        for node in graph.nodes
    ]


def _value(value: Value) -> dict[str, Any]:
    return {"name": value.name, "type": str(value.type or "?"), **_shape(value.type)}


def _shape(kind: Type | None) -> dict[str, Any]:
    if not isinstance(kind, TensorType | SparseTensorType):
        return {"dtype": None, "shape": None}
    dims = None if kind.shape is None else [d if isinstance(d, int | None) else str(d) for d in kind.shape]
    return {"dtype": str(kind.dtype), "shape": dims}


def op_name(node: Node) -> str:
    return full_name(node.domain, node.op_type)


def full_name(domain: str, name: str) -> str:
    """An op's name, with its domain where that is not the default one."""
    return name if domain == "ai.onnx" else f"{domain}::{name}"


def _ops(graph: Graph) -> list[dict[str, Any]]:
    """Each op of the graph, most frequent first: how often, and which package provides it or would."""
    counts: Counter[tuple[str, str, int, str, str]] = Counter()
    for node in graph.walk():
        counts[node.domain, node.op_type, node.version, *_package(graph.registry, node)] += 1
    rows: list[dict[str, Any]] = [
        {
            "op": full_name(domain, name),
            "domain": domain,
            "version": version,
            "count": count,
            "known": not missing,
            "package": package or None,
            "missing": missing,
        }
        for (domain, name, version, package, missing), count in counts.items()
    ]
    return sorted(rows, key=lambda row: (-row["count"], row["op"]))


def _package(registry: Registry, node: Node) -> tuple[str, str]:
    """The package that provides the op of a node or would, and why it does not."""
    if isinstance(node.op, Op):
        return registry.source(node.op), ""
    lacking = absence(registry, node.domain, node.op_type, node.version)
    return registry.provider(node.domain, node.op_type) or "", lacking.do if lacking.package else lacking.reason


def _function(key: tuple[str, str, str], function: Operator) -> dict[str, Any]:
    domain, name, overload = key
    nodes = len(function.proto.node) if hasattr(function, "proto") else 0
    return {"op": full_name(domain, name), "domain": domain, "overload": overload, "nodes": nodes}
