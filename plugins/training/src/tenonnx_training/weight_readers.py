"""Readers of variables: nodes at any depth of bodies, through Identity, Transpose and Reshape, and their modules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tenonnx.extend import Graph, Node, Op, Value, find_trait
from tenonnx.extend.formats import Function
from tenonnx_training.exporter_notes import module_of, parameter_at

#: Ops whose output counts as the same weight.
VIEWS = ("Identity", "Transpose", "Reshape")

#: First running statistic among the inputs of BatchNormalization.
_FIRST_STATISTIC = 3

#: A node with subgraphs, and the subgraph that contains the reader.
Level = tuple[Node, Graph]


def source_of(value: Value) -> Value:
    """The value behind Identity nodes that produce ``value``."""
    while value.producer is not None and is_op(value.producer, "Identity"):
        (value,) = value.producer.uses
    return value


def name_of(value: Value | None) -> str:
    """Name of the variable behind ``value``, empty for None."""
    return "" if value is None else source_of(value).name


def aliases(graph: Graph) -> dict[str, list[Value]]:
    """For each variable with other names, the values with these names, except graph outputs."""
    variables, shown = set(graph.variables), set(graph.outputs)
    result: dict[str, list[Value]] = {}
    for node in graph.nodes:
        for value in node.outputs if is_op(node, "Identity") else ():
            if value is not None and value not in shown and source_of(value) in variables:
                result.setdefault(name_of(value), []).append(value)
    return result


def users(graph: Graph) -> dict[str, list[Node]]:
    """The nodes that use each variable, under any of its names."""
    result: dict[str, list[Node]] = {}
    for node in graph.nodes:
        for value in () if is_op(node, "Identity") else node.uses:
            result.setdefault(name_of(value), []).append(node)
    return result


@dataclass(frozen=True, slots=True)
class Reader:
    """A node that reads a variable at input ``slot``, through ``views`` of it, and its module.

    ``module`` is the path of the module, or the name of the weight in the file there; empty if unknown. ``parameter``
    is the tracer's name of the weight, empty if unknown. ``within`` are the enclosing nodes with subgraphs, outermost
    first. ``inner`` are the op types and slots that finally read it: those of the node, or of the body of a model-local
    function that it calls.
    """

    node: Node
    slot: int
    views: tuple[Node, ...]
    module: str
    name: str = ""
    within: tuple[Level, ...] = ()
    inner: tuple[tuple[str, str, int], ...] = ()
    parameter: str = ""

    @property
    def statistic(self) -> bool:
        """Whether it reads a running mean or variance."""
        return any(
            (domain, kind) == ("ai.onnx", "BatchNormalization") and slot >= _FIRST_STATISTIC
            for domain, kind, slot in self.inner
        )

    @property
    def path(self) -> str:
        """The path of the module, empty if only names in the file are known."""
        return module_of(self.node)

    @property
    def unknown(self) -> bool:
        """Whether the node is in a subgraph and its module is unknown."""
        return bool(self.within) and not self.path and not self.name

    @property
    def own_slot(self) -> int:
        """The slot, where each slot of the node takes a separate weight; else -1."""
        if isinstance(self.node.op, Function):
            return self.slot
        trait = find_trait(self.node.op, "weights") if isinstance(self.node.op, Op) else None
        several = isinstance(trait, str) and len(trait.split()) > 1
        return self.slot if several and self.node.op_type.endswith("Normalization") else -1


def readers(graph: Graph) -> dict[str, list[Reader]]:
    """The readers of each variable by its name, including those in subgraphs and functions."""
    result: dict[str, list[Reader]] = {}
    consumers = {each: each.uses() for each in graph.nested()}
    for variable in graph.variables:
        waiting: list[tuple[Graph, Value, tuple[Node, ...], tuple[Level, ...]]] = [(graph, variable, (), ())]
        reached: list[Reader] = []
        while waiting:
            where, value, views, within = waiting.pop(0)
            for node in dict.fromkeys(consumers[where].get(value, ())):
                if any(is_op(node, view) for view in VIEWS) and node.inputs[0] is value and node.outputs[0] is not None:
                    waiting.append((where, node.outputs[0], (*views, node), within))
                    continue
                for slot in [slot for slot, each in enumerate(node.inputs) if each is value]:
                    reached.append(_reader(node, slot, views, within, variable))
                for place in [place for place, each in enumerate(node.captures) if each is value]:
                    levels = [(each, each.captures[place]) for each in node.subgraphs]
                    waiting += [(each, inner, views, (*within, (node, each))) for each, inner in levels]
        result[variable.name] = reached
    return result


def _reader(node: Node, slot: int, views: tuple[Node, ...], within: tuple[Level, ...], variable: Value) -> Reader:
    inner = tuple(dict.fromkeys(_inner(node, slot)))
    parameter = parameter_at(node, slot, variable.name)
    if path := module_of(node):
        return Reader(node, slot, views, path, "", within, inner, parameter)
    renamed = [view.outputs[0].name for view in views if is_op(view, "Identity") and view.outputs[0] is not None]
    module = renamed[-1] if renamed else variable.name
    return Reader(node, slot, views, module, renamed[-1] if renamed else "", within, inner, parameter)


def _inner(node: Node, slot: int) -> Iterator[tuple[str, str, int]]:
    """The op types and slots that finally read input ``slot`` of a node."""
    if not isinstance(node.op, Function) or slot >= len(node.op.body.all_inputs):
        yield node.domain, node.op_type, slot
        return
    body = node.op.body
    consumers, waiting = body.uses(), [body.all_inputs[slot]]
    while waiting:
        value = waiting.pop()
        for inner in consumers.get(value, ()):
            if any(is_op(inner, view) for view in VIEWS) and inner.inputs[0] is value and inner.outputs[0] is not None:
                waiting.append(inner.outputs[0])
                continue
            for place in [place for place, each in enumerate(inner.inputs) if each is value]:
                yield from _inner(inner, place)


def paths_of(node: Node) -> list[str]:
    """The paths that patterns match: a node's name, for ``/head/Gemm`` also ``head.Gemm``, and that of its module.

    A node of PyTorch's dynamo exporter, whose names are flat, has ``head.node_linear``.
    """
    found = [node.name]
    if "/" in node.name:
        found.append(node.name.strip("/").replace("/", "."))
    if module := module_of(node):
        found.append(f"{module}.{node.label}")
    return [path for path in found if path]


def is_op(node: Node, op_type: str) -> bool:
    return (node.domain, node.op_type) == ("ai.onnx", op_type)
