"""Dims of graph inputs: fixed sizes, dynamic dims, and the batch."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tenonnx.errors import InvalidCall, InvalidModel, TenonnxError
from tenonnx.graph.definitions import in_registry_of_graph
from tenonnx.graph.graph import Graph, Node, Value
from tenonnx.graph.symbolic import floor_div, multiply, symbols_of
from tenonnx.graph.types import TensorType
from tenonnx.op.graph_inference import infer, infer_node
from tenonnx.transforms.dims import fix_shapes
from tenonnx_convert.dynamic_dims import check_types, with_symbols
from tenonnx_convert.options import BATCH, ConvertConfig

FreeDims = Mapping[str, Mapping[int, str]]

#: Maximum length of a constant shape.
_LONGEST = 16

#: Wildcards in shape inputs: -1 is inferred from the other sizes, 0 copies the input's size, 1 broadcasts.
_WILDCARDS = (-1, 0, 1)


def batch_of(graph: Graph) -> dict[str, dict[int, str]]:
    """The first dim of every required input that is a number, as the symbol ``batch``.

    Raises ``InvalidCall`` if inputs begin with different numbers, since the first dim is then no batch.
    """
    shapes = {value.name: value.type.shape for value in graph.inputs if isinstance(value.type, TensorType)}
    firsts = {name: shape[0] for name, shape in shapes.items() if shape and isinstance(shape[0], int)}
    if len(set(firsts.values())) > 1:
        given = ", ".join(f"{name}: {size}" for name, size in firsts.items())
        raise InvalidCall(
            "the first dims of the inputs differ, so that they do not form a batch",
            given=given,
            do="make the dims dynamic that are (--free-dims, free_dims=)",
        )
    return {name: {0: BATCH} for name in firsts}


def set_dims(graph: Graph, options: ConvertConfig) -> Graph:
    """A copy with ``fix_shapes`` and ``free_dims``; to replace a number by another, the dim is freed first."""
    changed = _changed_numbers(graph, options.fix_shapes)
    if changed:
        graph = free_sizes(graph, changed)
    if options.fix_shapes:
        graph = fix_shapes(graph, options.fix_shapes)
    if options.free_dims:
        graph = free_sizes(graph, options.free_dims)
    return graph


def changes_sizes(graph: Graph, options: ConvertConfig) -> bool:
    """Whether an input gets another fixed size."""
    return bool(_changed_numbers(graph, options.fix_shapes))


def _changed_numbers(graph: Graph, shapes: Mapping[str, Sequence[int | str | None]]) -> dict[str, dict[int, str]]:
    """The fixed dims that get another size, as symbols; equal sizes on the same axis share one."""
    changed: dict[str, dict[int, str]] = {}
    for value in graph.all_inputs:
        wanted = shapes.get(value.name, ())
        known = (value.type.shape if isinstance(value.type, TensorType) else None) or ()
        for axis, (old, new) in enumerate(zip(known, wanted, strict=False)):
            if isinstance(old, int) and isinstance(new, int) and old != new:
                changed.setdefault(value.name, {})[axis] = f"size_{axis}_{old}_{new}"
    return changed


@in_registry_of_graph
def free_sizes(graph: Graph, dims: FreeDims) -> Graph:
    """``free_dims`` that also replaces freed sizes in constant shapes, such as those of a Reshape.

    Raises ``InvalidCall`` if a node requires the fixed size.
    """
    inputs = {value.name: value for value in graph.all_inputs}
    old_sizes = {
        symbol: size
        for name, axes in dims.items()
        if name in inputs
        for axis, symbol in axes.items()
        if -len(inputs[name].shape) <= axis < len(inputs[name].shape)
        and isinstance(size := inputs[name].shape[axis], int)
    }
    freed = with_symbols(graph, dims)
    replaced: set[Value] = set()
    with freed.editing():
        for node in list(freed.nodes):
            _infer(freed, node)
            for axis, symbol in _constant_sizes(node, old_sizes):
                _free(freed, node, axis, symbol, replaced)
    infer(freed, strict=False)
    read = freed.uses()
    freed.remove([v for v in freed.variables if v in replaced and v not in read and v not in freed.outputs])
    check_types(freed, dims)
    return freed


def nodes_with_sizes(graph: Graph, old_sizes: Mapping[str, int]) -> Iterator[tuple[Node, str]]:
    """The nodes of a typed graph that produce a constant size although their input has a freed one, with its symbol.

    For example a Resize to constant sizes, which keeps a batch only if that is one.
    """
    return ((node, symbol) for node in graph.walk() for _, symbol in _constant_sizes(node, old_sizes))


def _constant_sizes(node: Node, old_sizes: Mapping[str, int]) -> list[tuple[int, str]]:
    """The output axes of a node with a constant size where its input has a freed one, with the symbols."""
    return [
        (axis, symbol)
        for axis, (size, dim) in enumerate(zip(_shape(node.outputs), _shape(node.inputs), strict=False))
        for symbol in _symbols(dim)
        if size == old_sizes.get(symbol) and _place(node, axis) is not None
    ]


def _free(graph: Graph, node: Node, axis: int, symbol: str, replaced: set[Value]) -> None:
    """Make a node compute its shape from the input's dim, if possible; replaced inputs are added to ``replaced``."""
    place = _place(node, axis)
    if place is None:
        return
    shape = node.inputs[place]
    assert shape is not None
    assert shape.data is not None
    old = list(node.inputs)
    for contents in (*_with_wildcards(shape.data.array(), axis), None):
        try:
            with graph.building(shape.name):
                if contents is None:
                    new = _computed(graph, node, shape, axis)
                else:
                    new = graph.variable(f"{shape.name} of {node.label}", contents)
                node.inputs = [*old[:place], new, *old[place + 1 :]]
                infer_node(graph, node)
                _check_size(_shape(node.outputs)[axis], _shape(old)[axis], symbol)
        except TenonnxError:
            node.inputs = old
        else:
            replaced |= {shape, new}
            return
    _infer(graph, node)


def _check_size(computed: Any, dim: Any, symbol: str) -> None:
    """Raise ``InvalidModel`` unless a freed size is a multiple of the input's dim, independent of other dims.

    Otherwise, a Reshape to -1 and a constant height would convert a taller image to more samples.
    """
    if symbol not in _symbols(computed):
        raise InvalidModel("the size is still a number")
    if set(_symbols(computed)) - set(_symbols(dim)) and multiply(floor_div(computed, dim), dim) != computed:
        raise InvalidModel("the size depends on other dims")


def _infer(graph: Graph, node: Node) -> None:
    """Infer a node; on contradictory types it keeps those it has."""
    with contextlib.suppress(InvalidModel):
        infer_node(graph, node)


def _with_wildcards(sizes: np.ndarray[Any, Any], axis: int) -> Iterator[np.ndarray[Any, Any]]:
    for wildcard in _WILDCARDS:
        if wildcard != -1 or -1 not in sizes:
            changed = sizes.copy()
            changed[axis] = wildcard
            yield changed


def _computed(graph: Graph, node: Node, shape: Value, axis: int) -> Value:
    """A constant shape with the entry at ``axis`` replaced by the size of the node's first input."""
    assert shape.data is not None
    sizes = shape.data.array()
    size_of, part, join = (graph.registry.meanings("ai.onnx", name)[0] for name in ("Shape", "Slice", "Concat"))
    size = part(size_of(node.inputs[0]), np.array([axis]), np.array([axis + 1]))
    parts = [sizes[:axis], size, sizes[axis + 1 :]]
    joined: Value = join(*(each for each in parts if not isinstance(each, np.ndarray) or each.size), axis=0)
    return joined


def _symbols(dim: Any) -> Collection[str]:
    return () if dim is None or isinstance(dim, int) else symbols_of(dim)


def _shape(values: Sequence[Value | None]) -> tuple[Any, ...]:
    """The shape of the first value."""
    kind = values[0].type if values and values[0] is not None else None
    return kind.shape or () if isinstance(kind, TensorType) else ()


def _place(node: Node, axis: int) -> int | None:
    """Position of an input with constant sizes of all output axes, which has the output's size at ``axis``."""
    computed = _shape(node.outputs)
    for place, value in enumerate(node.inputs[1:], 1):
        kind = None if value is None or value.data is None else value.type
        if not isinstance(kind, TensorType) or not kind.dtype.is_integer or kind.shape != (len(computed),):
            continue
        assert value is not None
        assert value.data is not None
        if len(computed) <= _LONGEST and value.data.array()[axis] == computed[axis]:
            return place
    return None
