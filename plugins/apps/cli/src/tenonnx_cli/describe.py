"""Description of a model as data, for ``inspect``."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from functools import singledispatch
from typing import Any

import onnx

from tenonnx import Graph, Node, Registry, TensorType, Value, default_registry
from tenonnx.extend.formats import Role
from tenonnx.tools import Op, Operator, SparseTensorType, Type, absence
from tenonnx_cli.attributes import attribute_json, statistics


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


@singledispatch
def to_dict(part: Any) -> dict[str, Any]:
    """A graph or a part of one as data for JSON."""
    raise NotImplementedError(type(part).__name__)


@to_dict.register
def _graph_to_dict(graph: Graph) -> dict[str, Any]:
    return {**describe(graph), "nodes": list_nodes(graph)}


@to_dict.register
def _node_to_dict(node: Node) -> dict[str, Any]:
    return {
        "name": node.name,
        "op": op_name(node),
        "version": node.version,
        "inputs": ["" if v is None else v.name for v in node.inputs],
        "outputs": [_value(v) for v in node.outputs if v is not None],
        "attributes": {name: attribute_json(value) for name, value in node.attributes.items()},
    }


@to_dict.register
def _value_to_dict(value: Value) -> dict[str, Any]:
    return {
        **_value(value),
        "producer": None if value.producer is None else value.producer.label,
        "bytes": None if value.data is None else value.data.nbytes,
        "role": None if value.role is None else to_dict(value.role),
    }


@to_dict.register
def _role_to_dict(role: Role) -> dict[str, Any]:
    return asdict(role)


def add_statistics(graph: Graph, variables: list[dict[str, Any]]) -> None:
    """Add minimum, maximum, mean and share of zeros to each variable that ``describe`` lists."""
    for value, row in zip(graph.variables, variables, strict=True):
        row |= statistics([] if value.data is None else value.data.array())


def _training_state(graph: Graph) -> dict[str, Any] | None:
    """Tensors and settings of the optimizer state."""
    if (state := graph.training_state) is None:
        return None
    tensors = [{"name": n, "type": str(data.type), "bytes": data.nbytes} for n, data in state.tensors.items()]
    return {"tensors": tensors, "settings": dict(state.settings)}


def list_nodes(graph: Graph) -> list[dict[str, Any]]:
    """All nodes of the main graph."""
    return [to_dict(node) for node in graph.nodes]


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
    """An op's name, with its domain unless that is the default one."""
    return name if domain == "ai.onnx" else f"{domain}::{name}"


def _ops(graph: Graph) -> list[dict[str, Any]]:
    """The ops of the graph, most frequent first, with counts and the packages that provide them or would."""
    counts: Counter[tuple[str, str, int, str, str]] = Counter()
    registry = graph.registry or default_registry()
    for node in graph.walk():
        counts[node.domain, node.op_type, node.version, *_package(registry, node)] += 1
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
    """The package that provides the op of a node or would, and advice if it is missing."""
    if isinstance(node.op, Op):
        return registry.source(node.op), ""
    lacking = absence(registry, node.domain, node.op_type, node.version)
    return registry.provider(node.domain, node.op_type) or "", lacking.do if lacking.package else lacking.reason


def _function(key: tuple[str, str, str], function: Operator) -> dict[str, Any]:
    domain, name, overload = key
    nodes = len(function.proto.node) if hasattr(function, "proto") else 0
    return {"op": full_name(domain, name), "domain": domain, "overload": overload, "nodes": nodes}
