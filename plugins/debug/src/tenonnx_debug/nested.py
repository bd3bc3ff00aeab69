"""Candidate models with smaller subgraphs of Loop, Scan and If, and at older opsets."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, defs, numpy_helper

from tenonnx import TenonnxError, load, retarget
from tenonnx_debug.files import bodies

#: Versions of ai.onnx to try, starting with the oldest that runtimes support.
_VERSIONS = (7, 9, 11, 13, 15, 17, 18, 19, 20, 21, 22, 23, 24)


def with_smaller_bodies(model: ModelProto) -> Iterator[ModelProto]:
    """For each node of a subgraph, the model without it: readers of its output read one of its inputs instead.

    Nodes without readers are removed, too. The last nodes of a subgraph come first.
    """
    for place, body in enumerate(_nested(model.graph)):
        results = {output.name for output in body.output}
        for number in reversed(range(len(body.node))):
            node = body.node[number]
            if node.op_type == "Identity" and results.intersection(node.output):
                continue  # _bypass would insert it again
            for name in dict.fromkeys(each for each in node.input if each):
                result = ModelProto()
                result.CopyFrom(model)
                _bypass(_nested(result.graph)[place], number, name)
                yield result


def _nested(graph: GraphProto) -> list[GraphProto]:
    """All subgraphs of a graph, including nested ones."""
    graphs = []
    for node in graph.node:
        for body in bodies(node):
            graphs += [body, *_nested(body)]
    return graphs


def _bypass(body: GraphProto, number: int, name: str) -> None:
    """Remove a node from a subgraph; readers of its first output read ``name`` instead."""
    gone = body.node[number].output[0]
    del body.node[number]
    _rename_reads(body, gone, name)
    for output in body.output:  # a subgraph must compute its outputs itself
        if output.name == gone:
            body.node.append(NodeProto(op_type="Identity", input=[name], output=[gone]))
            break
    while True:
        read = {each for node in body.node for each in _read(node)} | {output.name for output in body.output}
        used = [node for node in body.node if read.intersection(node.output)]
        if len(used) == len(body.node):
            return
        used = [_copy(node) for node in used]
        del body.node[:]
        body.node.extend(used)


def _copy(node: NodeProto) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    return copy


def _read(node: NodeProto) -> set[str]:
    """The names that a node and its subgraphs read."""
    names = set(node.input)
    for body in bodies(node):
        names |= {each for inner in body.node for each in _read(inner)} | {output.name for output in body.output}
    return names


def _rename_reads(graph: GraphProto, old: str, new: str) -> None:
    for node in graph.node:
        node.input[:] = [new if name == old else name for name in node.input]
        for body in bodies(node):
            _rename_reads(body, old, new)


def with_one_iteration(model: ModelProto) -> Iterator[ModelProto]:
    """For each Loop without scan outputs, the model with the Loop replaced by its first iteration."""
    for number, node in enumerate(model.graph.node):
        if node.op_type == "Loop" and node.domain in ("", "ai.onnx"):
            body = next(bodies(node))
            if len(body.input) == len(node.input) and len(body.output) == len(node.output) + 1:
                yield _with_iteration(model, number, body)


def _with_iteration(model: ModelProto, number: int, body: GraphProto) -> ModelProto:
    result = ModelProto()
    result.CopyFrom(model)
    node = result.graph.node[number]
    prefix = f"{node.output[0]}/"
    own = {name for inner in body.node for name in inner.output} | {each.name for each in body.initializer}
    renamed = {name: prefix + name for name in own if name}
    first, goes_on = (prefix + each.name for each in body.input[:2])
    result.graph.initializer.append(numpy_helper.from_array(np.array(0, np.int64), first))
    result.graph.initializer.append(numpy_helper.from_array(np.array(True), goes_on))
    operands = [first, goes_on, *node.input[2:]]
    renamed |= {each.name: name for each, name in zip(body.input, operands, strict=True)}
    for tensor in body.initializer:
        copied = result.graph.initializer.add()
        copied.CopyFrom(tensor)
        copied.name = renamed[tensor.name]
    lifted = []
    for inner in body.node:
        copy = _copy(inner)
        copy.output[:] = [renamed.get(name, name) for name in copy.output]
        holder = GraphProto(node=[copy])
        for old, new in renamed.items():
            _rename_reads(holder, old, new)
        lifted.append(holder.node[0])
    for inside, outside in zip(body.output[1:], node.output, strict=True):
        if outside:
            source = renamed.get(inside.name, inside.name)
            lifted.append(NodeProto(op_type="Identity", input=[source], output=[outside]))
    nodes = [*map(_copy, result.graph.node[:number]), *lifted, *map(_copy, result.graph.node[number + 1 :])]
    del result.graph.node[:]
    result.graph.node.extend(nodes)
    return result


def at_older_opsets(model: ModelProto) -> Iterator[ModelProto]:
    """The model at older versions of ai.onnx, the oldest first, unless the conversion adds nodes."""
    version = next((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), 0)
    for older in _VERSIONS:
        if older >= min(version, defs.onnx_opset_version()):
            return
        try:
            result = retarget(load(model), opset_version=older).to_proto()
        except TenonnxError:
            continue
        if len(result.graph.node) <= len(model.graph.node):
            yield result
