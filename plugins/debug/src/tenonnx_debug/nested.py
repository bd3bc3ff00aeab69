"""Models with less in the bodies of Loop, Scan and If, and models at older opsets."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, defs, numpy_helper

from tenonnx import TenonnxError, load, retarget
from tenonnx_debug.files import bodies

#: Opset versions of ai.onnx to try, the oldest that runtimes read first.
_VERSIONS = (7, 9, 11, 13, 15, 17, 18, 19, 20, 21, 22, 23, 24)


def with_smaller_bodies(model: ModelProto) -> Iterator[ModelProto]:
    """For each node in a body, the model without it: what reads its output reads one of its inputs instead.

    Nodes that nothing reads any longer go with it. The last nodes of a body go first.
    """
    for place, body in enumerate(_nested(model.graph)):
        results = {output.name for output in body.output}
        for number in reversed(range(len(body.node))):
            node = body.node[number]
            if node.op_type == "Identity" and results.intersection(node.output):
                continue  # it would be put back
            for name in dict.fromkeys(each for each in node.input if each):
                made = ModelProto()
                made.CopyFrom(model)
                _bypass(_nested(made.graph)[place], number, name)
                yield made


def _nested(graph: GraphProto) -> list[GraphProto]:
    """All bodies in a graph."""
    found = []
    for node in graph.node:
        for body in bodies(node):
            found += [body, *_nested(body)]
    return found


def _bypass(body: GraphProto, number: int, name: str) -> None:
    """Take a node out of a body, and let its readers read ``name`` instead of its first output."""
    gone = body.node[number].output[0]
    del body.node[number]
    _rename_reads(body, gone, name)
    for output in body.output:  # an output of a body is made in it
        if output.name == gone:
            body.node.append(NodeProto(op_type="Identity", input=[name], output=[gone]))
            break
    while True:
        read = {each for node in body.node for each in _read(node)} | {output.name for output in body.output}
        kept = [node for node in body.node if read.intersection(node.output)]
        if len(kept) == len(body.node):
            return
        kept = [_copy(node) for node in kept]
        del body.node[:]
        body.node.extend(kept)


def _copy(node: NodeProto) -> NodeProto:
    made = NodeProto()
    made.CopyFrom(node)
    return made


def _read(node: NodeProto) -> set[str]:
    """The names that a node and its bodies read."""
    found = set(node.input)
    for body in bodies(node):
        found |= {each for inner in body.node for each in _read(inner)} | {output.name for output in body.output}
    return found


def _rename_reads(graph: GraphProto, old: str, new: str) -> None:
    for node in graph.node:
        node.input[:] = [new if name == old else name for name in node.input]
        for body in bodies(node):
            _rename_reads(body, old, new)


def with_one_iteration(model: ModelProto) -> Iterator[ModelProto]:
    """For each Loop without stacked outputs, the model with its first iteration in place of it."""
    for number, node in enumerate(model.graph.node):
        if node.op_type == "Loop" and node.domain in ("", "ai.onnx"):
            body = next(bodies(node))
            if len(body.input) == len(node.input) and len(body.output) == len(node.output) + 1:
                yield _with_iteration(model, number, body)


def _with_iteration(model: ModelProto, number: int, body: GraphProto) -> ModelProto:
    made = ModelProto()
    made.CopyFrom(model)
    node = made.graph.node[number]
    prefix = f"{node.output[0]}/"
    own = {name for inner in body.node for name in inner.output} | {each.name for each in body.initializer}
    renamed = {name: prefix + name for name in own if name}
    first, goes_on = (prefix + each.name for each in body.input[:2])
    made.graph.initializer.append(numpy_helper.from_array(np.array(0, np.int64), first))
    made.graph.initializer.append(numpy_helper.from_array(np.array(True), goes_on))
    given = [first, goes_on, *node.input[2:]]
    renamed |= {each.name: name for each, name in zip(body.input, given, strict=True)}
    for tensor in body.initializer:
        copied = made.graph.initializer.add()
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
    nodes = [*map(_copy, made.graph.node[:number]), *lifted, *map(_copy, made.graph.node[number + 1 :])]
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    return made


def at_older_opsets(model: ModelProto) -> Iterator[ModelProto]:
    """The model at older versions of ai.onnx, the oldest first, where it has no more nodes there."""
    version = next((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), 0)
    for older in _VERSIONS:
        if older >= min(version, defs.onnx_opset_version()):
            return
        try:
            made = retarget(load(model), opset_version=older).to_proto()
        except TenonnxError:
            continue
        if len(made.graph.node) <= len(model.graph.node):
            yield made
