"""Restoring weights that PyTorch's exporter changed: zero biases that it removed, and transposed copies."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Graph, Node, Value
from tenonnx.extend.formats import Role
from tenonnx_training.exporter_notes import RULE, note, parameters_of, traced_name
from tenonnx_training.weight_readers import readers, source_of

#: Prefix of the rewrites that remove a bias of zeros; calls without a bias are not rewritten.
_REMOVED = "RemoveOptionalBias"

#: Prefix of the rewrites that fold a BatchNormalization.
_FOLDED = "FuseBatchNorm"

#: Ops with an optional bias: its input slot, and the axis of the weight with its length.
_BIASED = {"Gemm": (2, 1), "Conv": (2, 0)}


def restore_biases(graph: Graph) -> list[str]:
    """Restore the biases that the exporter removed because they were zero, in place; returns their names."""
    found = [each for node in graph.nodes for each in _removed_bias(node)]
    if not found:
        return []
    biases: dict[str, Value] = {}
    taken = {value.name for value in graph.values()}
    with graph.editing():
        for node, name, length, dtype in found:
            if name not in biases and name not in taken:
                biases[name] = graph.variable(name, np.zeros(length, dtype))
            if name in biases:
                node.inputs = [*node.inputs[:2], biases[name]]
    return list(biases)


def folded_note(graph: Graph) -> list[str]:
    """A note on normalizations that the exporter folded into preceding layers, if its metadata say so."""
    folded = sum(note(node, RULE).startswith(_FOLDED) for node in graph.walk())
    if not folded:
        return []
    return [
        f"the exporter folded {folded} normalizations into the layers before them, which are trained without: export "
        "the module with torch.onnx.export(..., optimize=False), or load the module itself"
    ]


def _removed_bias(node: Node) -> Iterator[tuple[Node, str, int, np.dtype]]:
    """The bias that a rewrite removed from a node: its name, its length and its dtype."""
    if not note(node, RULE).startswith(_REMOVED) or node.op_type not in _BIASED or len(node.inputs) > 2:
        return
    weight, parameters = node.inputs[1], parameters_of(node)
    if weight is None or weight.tensor.shape is None or len(parameters) != 2:
        return
    _, axis = _BIASED[node.op_type]
    axis = 1 - axis if node.op_type == "Gemm" and node.attributes.get("transB", 0) else axis
    length, prefix = weight.tensor.shape[axis], source_of(weight).name.rpartition(".")[0]
    name = parameters[1][2:]
    if prefix and traced_name(f"{prefix}.bias") == name:
        name = f"{prefix}.bias"
    if isinstance(length, int):
        yield node, name, length, weight.dtype.numpy


def retie_copies(graph: Graph) -> dict[str, str]:
    """Replace transposed copies of a weight by the weight itself, in place.

    Returns the weight of each copy, by name. Such copies arise from embeddings tied with a language model head.
    """
    known: dict[str, list[Value]] = {}
    for name, each in readers(graph).items():
        parameters = {reader.parameter for reader in each}
        if len(parameters) == 1 and "" not in parameters and graph[name].role is None:
            known.setdefault(parameters.pop(), []).append(graph[name])
    pairs = [(first, copy) for values in known.values() for first, copy in _copies(values)]
    if pairs:
        with graph.editing():
            for first, copy in pairs:
                graph.replace(
                    copy, first if first.shape == copy.shape and _equal(first, copy) else ops.transpose(first)
                )
                graph.variables = [value for value in graph.variables if value is not copy]
    return {copy.name: first.name for first, copy in pairs}


def mark_parameters(graph: Graph) -> None:
    """Set the roles of variables from the traced program's argument names, where the file has none."""
    roles: dict[str, str] = {}
    for node in graph.walk():
        roles |= {name[2:]: "parameter" if name[0] == "p" else "buffer" for name in parameters_of(node)}
    for value in graph.variables if roles else ():
        if value.role is None and (kind := roles.get(traced_name(value.name))) is not None:
            value.role = Role(kind)


def _copies(values: list[Value]) -> Iterator[tuple[Value, Value]]:
    """Pairs of a weight and another variable with equal or transposed contents."""
    first = next((value for value in values if "." in value.name), values[0])
    for value in values:
        if value is first or value.dtype is not first.dtype:
            continue
        if _equal(first, value) or (value.rank == 2 and _equal(first, value, transposed=True)):
            yield first, value


def _equal(first: Value, second: Value, *, transposed: bool = False) -> bool:
    shape = first.shape[::-1] if transposed else first.shape
    if shape != second.shape or first.data is None or second.data is None:
        return False
    array = first.data.array()
    return np.array_equal(array.T if transposed else array, second.data.array())
