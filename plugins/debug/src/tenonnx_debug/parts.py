"""Parts of a model as models: some of its nodes, inlined functions, and branches in place of If."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, numpy_helper
from onnx.inliner import inline_local_functions

from tenonnx import Graph, TenonnxError, infer, load
from tenonnx.extend.checks import with_outputs
from tenonnx.tools import compile_graph
from tenonnx_cli.tools import complete
from tenonnx_debug.files import bodies

#: Elements of a value that becomes a constant where the node that computed it is left out.
_FEW = 64


class Parts:
    """Models of some nodes of a model each."""

    def __init__(self, model: ModelProto) -> None:
        self._model = model
        self.count = len(model.graph.node)
        self._types, self._contents = _known_values(model)
        self._reads = [_names_read(node) for node in model.graph.node]

    def model(self, nodes: Sequence[int]) -> ModelProto | None:
        """These nodes as a model; None where a value that it lacks has no known type.

        A value whose node is left out becomes an input, or a constant where it is of a few integers: sizes, indices.
        """
        source = self._model.graph
        kept = [source.node[number] for number in nodes]
        made = {name for node in kept for name in node.output if name}
        read = dict.fromkeys(name for number in nodes for name in self._reads[number] if name and name not in made)
        initializers = {each.name: each for each in source.initializer}
        sparse = [each for each in source.sparse_initializer if each.values.name in read]
        inputs = {each.name: each for each in source.input}
        graph = GraphProto(name=source.name or "part")
        for name in read:
            if name in initializers:
                graph.initializer.append(initializers[name])
            if name in inputs:
                graph.input.append(inputs[name])
            elif name in self._contents:
                graph.initializer.append(self._contents[name])
            elif name not in initializers and name not in {each.values.name for each in sparse}:
                if name not in self._types:
                    return None
                graph.input.append(ValueInfoProto(name=name, type=self._types[name]))
        graph.sparse_initializer.extend(sparse)
        graph.node.extend(kept)
        inside = {name for number in nodes for name in self._reads[number]}
        outputs = {each.name: each for each in source.output}
        for node in kept:
            for name in node.output:
                if name and (name in outputs or name not in inside):
                    graph.output.append(outputs.get(name) or ValueInfoProto(name=name, type=self._types.get(name)))
        return _with_graph(self._model, graph)


def _with_graph(model: ModelProto, graph: GraphProto) -> ModelProto:
    """The model with another graph and the functions that this calls, without documentation and metadata."""
    made = ModelProto(ir_version=model.ir_version)
    made.opset_import.extend(model.opset_import)
    made.graph.CopyFrom(graph)
    functions = {(each.domain, each.name): each for each in model.functions}
    waiting, called = [*graph.node], set()
    while waiting:
        node = waiting.pop()
        waiting += [each for inner in bodies(node) for each in inner.node]
        key = node.domain, node.op_type
        if key in functions and key not in called:
            called.add(key)
            waiting += functions[key].node
    made.functions.extend(each for key, each in functions.items() if key in called)
    return made


def _known_values(model: ModelProto) -> tuple[dict[str, TypeProto], dict[str, TensorProto]]:
    """The types of values, and the contents of those of a few integers, as a run on random inputs gives them."""
    types = {each.name: each.type for each in (*model.graph.input, *model.graph.value_info, *model.graph.output)}
    try:
        graph = load(model)
        infer(graph, strict=False)
    except TenonnxError:
        return types, {}
    for value in graph.values():
        if value.type is not None and value.producer is not None:
            types[value.name] = _type_of(graph, value.name)
    few = [value.name for node in graph.nodes for value in node.outputs if value is not None and _is_of_few(value.type)]
    try:
        wanted = with_outputs(graph, few)
        found = complete(wanted, compile_graph(wanted, "numpy"), {}, 0, {})[1] if few else {}
    except (TenonnxError, ArithmeticError):
        return types, {}
    arrays = {name: np.asarray(each) for name, each in found.items() if np.asarray(each).size <= _FEW}
    return types, {name: numpy_helper.from_array(each, name) for name, each in arrays.items() if name in few}


def _type_of(graph: Graph, name: str) -> TypeProto:
    """The type of a value as a message holds it."""
    alone = Graph("type", opsets=graph.opsets)
    value = graph[name]
    assert value.type is not None
    alone.outputs = [alone.input(name, value.type)]
    made: TypeProto = alone.to_proto().graph.input[0].type
    return made


def _is_of_few(kind: Any) -> bool:
    dtype = getattr(kind, "dtype", None)
    shape = getattr(kind, "shape", None)
    return dtype is not None and shape is not None and len(shape) <= 1 and (dtype.is_integer or str(dtype) == "bool")


def _names_read(node: NodeProto) -> set[str]:
    """The names that a node reads, those that its bodies take from outside included."""
    found = {name for name in node.input if name}
    for inner in bodies(node):
        own = {each.name for each in (*inner.input, *inner.initializer)}
        own |= {name for each in inner.node for name in each.output}
        found |= {name for each in inner.node for name in _names_read(each)} - own
        found |= {each.name for each in inner.output} - own
    return found


def inlined(model: ModelProto) -> Iterator[ModelProto]:
    """The model with the bodies of its functions in place of their calls."""
    if model.functions:
        try:
            yield inline_local_functions(model)
        except (RuntimeError, ValueError):
            return


def with_branches(model: ModelProto) -> Iterator[ModelProto]:
    """For each If, the model with one of its branches in place of it."""
    for number, node in enumerate(model.graph.node):
        if node.op_type == "If" and node.domain in ("", "ai.onnx"):
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    yield _with_branch(model, number, attribute.g)


def _with_branch(model: ModelProto, number: int, branch: GraphProto) -> ModelProto:
    made = ModelProto()
    made.CopyFrom(model)
    node = made.graph.node[number]
    renamed = {inner.name: outer for inner, outer in zip(branch.output, node.output, strict=False) if outer}
    lifted = []
    for each in branch.node:
        copy = NodeProto()
        copy.CopyFrom(each)
        copy.input[:] = [renamed.get(name, name) for name in copy.input]
        copy.output[:] = [renamed.get(name, name) for name in copy.output]
        lifted.append(copy)
    own = {name for each in branch.node for name in each.output}
    for inner, outer in renamed.items():
        if inner not in own:  # it comes from outside of the branch
            lifted.append(NodeProto(op_type="Identity", input=[inner], output=[outer]))
    for tensor in branch.initializer:
        copied = made.graph.initializer.add()
        copied.CopyFrom(tensor)
        copied.name = renamed.get(tensor.name, tensor.name)
    nodes = [*made.graph.node[:number], *lifted, *made.graph.node[number + 1 :]]
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    return made
