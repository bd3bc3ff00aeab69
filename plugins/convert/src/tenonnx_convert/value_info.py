"""The value_info entries of a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tenonnx.errors import InvalidCall
from tenonnx.formats.onnx.types import write_type
from tenonnx.graph.graph import Graph, Node
from tenonnx.op.graph_inference import infer
from tenonnx.op.op import Op
from tenonnx.op.rules import find_trait
from tenonnx.transforms.rewrite import copy_graph

if TYPE_CHECKING:
    import onnx


def declare_types(model: onnx.ModelProto, graph: Graph, which: str) -> None:
    """Declare the types of ``all`` values of ``graph``, or only of the ``interface``, in its message.

    Raises ``InvalidCall`` for other values of ``which``.
    """
    if which not in ("all", "interface"):
        raise InvalidCall("shapes is neither all nor interface", given=repr(which)[:80])
    if which == "all":
        graph = copy_graph(graph)
        infer(graph, strict=False)
        _declare_all(graph, model.graph)
        return
    _forget(model.graph)
    for function in model.functions:
        del function.value_info[:]
        for node in function.node:
            _forget_inside(node)


def declare_what_runtimes_miss(model: onnx.ModelProto, graph: Graph) -> None:
    """Declare the output types of ops with the trait ``declared`` in a message of ``graph``."""
    if any(map(_is_missed, graph.walk())):
        graph = copy_graph(graph)
        infer(graph, strict=False)
        _declare_all(graph, model.graph, _is_missed)


def _is_missed(node: Node) -> bool:
    return isinstance(node.op, Op) and bool(find_trait(node.op, "declared"))


def _declare_all(graph: Graph, proto: onnx.GraphProto, of: Callable[[Node], bool] = lambda node: True) -> None:
    declared = {info.name for info in (*proto.value_info, *proto.input, *proto.output)}
    for node, message in zip(graph.nodes, proto.node, strict=True):
        for value in node.outputs if of(node) else ():
            if value is not None and value.type is not None and value.name not in declared:
                write_type(value.type, proto.value_info.add(name=value.name).type)
        for attribute in message.attribute:
            inner = node.attributes.get(attribute.name)
            graphs = inner if isinstance(inner, list) else [inner]
            for each, part in zip(graphs, attribute.graphs or [attribute.g], strict=False):
                if isinstance(each, Graph):
                    _declare_all(each, part, of)


def _forget(proto: onnx.GraphProto) -> None:
    del proto.value_info[:]
    for node in proto.node:
        _forget_inside(node)


def _forget_inside(node: onnx.NodeProto) -> None:
    for attribute in node.attribute:
        for graph in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
            _forget(graph)
