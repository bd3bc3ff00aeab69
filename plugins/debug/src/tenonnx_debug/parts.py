"""Candidate models: a subset of the nodes, inlined functions, and branches in place of If."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TypeProto, ValueInfoProto, numpy_helper
from onnx.inliner import inline_local_functions

from tenonnx import Graph, TenonnxError, TensorType, infer, load
from tenonnx.tools import compile_graph
from tenonnx_cli.tools import complete
from tenonnx_debug.files import bodies

Array = np.ndarray[Any, Any]

#: Maximum number of elements of an integer value that becomes a constant if its producer is removed.
_FEW = 64

#: Maximum number of elements of a recorded value, and of all recorded values together.
_MOST, _ALL = 1 << 22, 1 << 27


class Parts:
    """Builds models of subsets of a model's nodes.

    Intermediate values are recorded in a run of the whole model on random inputs from ``seed``.
    """

    def __init__(self, model: ModelProto, seed: int = 0) -> None:
        self._model = model
        self.count = len(model.graph.node)
        self._types, self._computed = _known_values(model, seed)
        self._few = {name for name, each in self._computed.items() if _is_of_sizes(each)}
        self._reads = [_names_read(node) for node in model.graph.node]

    def model(self, nodes: Sequence[int], *, recorded: bool = False) -> ModelProto | None:
        """A model of these nodes; None if the type of a missing value is unknown.

        A value whose producer is missing becomes an input, or a constant if it has few integers, such as sizes and
        indices. With ``recorded``, every value that was recorded and is finite becomes a constant.
        """
        known = self._computed if recorded else self._few
        source = self._model.graph
        chosen = [source.node[number] for number in nodes]
        computed = {name for node in chosen for name in node.output if name}
        read = dict.fromkeys(name for number in nodes for name in self._reads[number] if name and name not in computed)
        initializers = {each.name: each for each in source.initializer}
        sparse = [each for each in source.sparse_initializer if each.values.name in read]
        inputs = {each.name: each for each in source.input}
        graph = GraphProto(name=source.name or "part")
        for name in read:
            if name in initializers:
                graph.initializer.append(initializers[name])
            if name in inputs:
                graph.input.append(inputs[name])
            elif name in known:
                graph.initializer.append(numpy_helper.from_array(self._computed[name], name))
            elif name not in initializers and name not in {each.values.name for each in sparse}:
                if name not in self._types:
                    return None
                graph.input.append(ValueInfoProto(name=name, type=self._types[name]))
        graph.sparse_initializer.extend(sparse)
        graph.node.extend(chosen)
        inside = {name for number in nodes for name in self._reads[number]}
        outputs = {each.name: each for each in source.output}
        declared = {each.name: each for each in source.value_info} | outputs
        for name in (name for node in chosen for name in node.output if name):
            if name in outputs or name not in inside:
                graph.output.append(declared.get(name) or ValueInfoProto(name=name, type=self._types.get(name)))
            elif name in declared:  # a wrong declaration may be the failure
                graph.value_info.append(declared[name])
        return _with_graph(self._model, graph)


def _with_graph(model: ModelProto, graph: GraphProto) -> ModelProto:
    """A model of ``graph`` with the functions that it calls, without documentation and metadata."""
    result = ModelProto(ir_version=model.ir_version)
    result.opset_import.extend(model.opset_import)
    result.graph.CopyFrom(graph)
    functions = {(each.domain, each.name): each for each in model.functions}
    waiting, called = [*graph.node], set()
    while waiting:
        node = waiting.pop()
        waiting += [each for inner in bodies(node) for each in inner.node]
        key = node.domain, node.op_type
        if key in functions and key not in called:
            called.add(key)
            waiting += functions[key].node
    result.functions.extend(each for key, each in functions.items() if key in called)
    return result


def _known_values(model: ModelProto, seed: int) -> tuple[dict[str, TypeProto], dict[str, Array]]:
    """The types of values, and the contents that a run on random inputs computes, where finite."""
    types = {each.name: each.type for each in (*model.graph.input, *model.graph.value_info, *model.graph.output)}
    try:
        graph = load(model)
        infer(graph, strict=False)
    except TenonnxError:
        return types, {}
    for value in graph.values():
        if value.type is not None and value.producer is not None:
            types[value.name] = _type_of(graph, value.name)
    values = _computed(graph, _recordable(graph), seed)
    return types, {name: each for name, each in values.items() if each.dtype.kind in "fiub" and np.isfinite(each).all()}


def _recordable(graph: Graph) -> list[str]:
    """Names of the nodes' outputs that are small enough to record, in order."""
    names, total = [], 0
    for value in (value for node in graph.nodes for value in node.outputs if value is not None):
        shape = getattr(value.type, "shape", None)
        size = math.prod(dim if isinstance(dim, int) else 1 for dim in shape) if shape is not None else 1
        if isinstance(value.type, TensorType) and size <= _MOST and total + size <= _ALL:
            names.append(value.name)
            total += size
    return names


def _computed(graph: Graph, names: Sequence[str], seed: int) -> dict[str, Array]:
    """The contents of values; if a node fails, of those that do not depend on it, found by bisection."""
    contents: dict[str, Any] = {}
    low, high = 0, len(names)
    while low < high:
        middle = high if not contents and high == len(names) else (low + high + 1) // 2
        try:
            wanted = graph.extract([value.name for value in graph.inputs], names[:middle])
            contents = complete(wanted, compile_graph(wanted, "numpy"), {}, seed, {})[1]
        except (TenonnxError, ArithmeticError):
            high = middle - 1
        else:
            low = middle
    return {name: np.asarray(each) for name, each in contents.items()}


def _is_of_sizes(contents: Array) -> bool:
    """Whether a value has few integers, which often are sizes, axes or indices."""
    return contents.ndim <= 1 and contents.dtype.kind in "iub" and contents.size <= _FEW


def _type_of(graph: Graph, name: str) -> TypeProto:
    """The ``TypeProto`` of a value."""
    single = Graph("type", opsets=graph.opsets)
    value = graph[name]
    assert value.type is not None
    single.outputs = [single.input(name, value.type)]
    result: TypeProto = single.to_proto().graph.input[0].type
    return result


def _names_read(node: NodeProto) -> set[str]:
    """The names that a node reads, including outer values that its subgraphs capture."""
    names = {name for name in node.input if name}
    for inner in bodies(node):
        own = {each.name for each in (*inner.input, *inner.initializer)}
        own |= {name for each in inner.node for name in each.output}
        names |= {name for each in inner.node for name in _names_read(each)} - own
        names |= {each.name for each in inner.output} - own
    return names


def inlined(model: ModelProto) -> Iterator[ModelProto]:
    """The model with all its functions inlined."""
    if model.functions:
        try:
            yield inline_local_functions(model)
        except (RuntimeError, ValueError):
            return


def with_branches(model: ModelProto) -> Iterator[ModelProto]:
    """For each branch of each If, the model with the If replaced by the branch."""
    for number, node in enumerate(model.graph.node):
        if node.op_type == "If" and node.domain in ("", "ai.onnx"):
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    yield _with_branch(model, number, attribute.g)


def _with_branch(model: ModelProto, number: int, branch: GraphProto) -> ModelProto:
    result = ModelProto()
    result.CopyFrom(model)
    node = result.graph.node[number]
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
        if inner not in own:  # the branch returns a captured value
            lifted.append(NodeProto(op_type="Identity", input=[inner], output=[outer]))
    for tensor in branch.initializer:
        copied = result.graph.initializer.add()
        copied.CopyFrom(tensor)
        copied.name = renamed.get(tensor.name, tensor.name)
    nodes = [*result.graph.node[:number], *lifted, *result.graph.node[number + 1 :]]
    del result.graph.node[:]
    result.graph.node.extend(nodes)
    return result
