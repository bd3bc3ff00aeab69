"""Layouts: what is computed element by element moves before a transposition, so that two of these meet and go."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from tenonnx.extend import ArrayConstant, Graph, TensorType, Value, static
from tenonnx_jax.rules.shapes import transposed

#: Primitives that compute each element from those at the same place.
ELEMENTWISE = frozenset({
    "abs", "add", "and", "ceil", "clamp", "convert_element_type", "copy", "cos", "div", "eq", "erf", "exp", "expm1",
    "floor", "ge", "gt", "integer_pow", "is_finite", "le", "log", "log1p", "logistic", "lt", "max", "min", "mul",
    "ne", "neg", "not", "or", "pow", "round", "rsqrt", "select_n", "sign", "sin", "sqrt", "square", "stop_gradient",
    "sub", "tanh",
})  # fmt: skip


def before_transposition(name: str, avals: Sequence[Any], values: Sequence[Any]) -> tuple[list[Any], list[int]] | None:
    """The operands of a call of an elementwise primitive as they lie before a transposition, and its permutation."""
    if name not in ELEMENTWISE or not all(isinstance(value, Value) for value in values):
        return None
    perms = [_permutation(value) for value in values]
    found = next((perm for perm in perms if perm is not None), None)
    if found is None:
        return None
    back = [int(axis) for axis in np.argsort(found)]
    moved = []
    for value, perm, aval in zip(values, perms, avals, strict=True):
        if perm == found:
            moved.append(value.producer.inputs[0])
        elif value.ndim == 0:
            moved.append(value)
        elif value.ndim == len(found) and sum(not isinstance(d, int) or d != 1 for d in aval.shape) <= 1:
            moved.append(transposed(value, back))
        else:
            return None
    return moved, found


def without_leading_axes(name: str, rank: int, values: Sequence[Any]) -> list[Any]:
    """The operands of a call of an elementwise primitive, those axes left out that broadcasting adds again."""
    if name not in ELEMENTWISE or name == "select_n" or not all(isinstance(value, Value) for value in values):
        return list(values)
    found = [_plain(value) for value in values]
    whole = [value.ndim == rank and plain is value for value, plain in zip(values, found, strict=True)]
    return found if any(whole) else list(values)


def _plain(value: Value) -> Value:
    node = value.producer
    axes = static(node.inputs[1]) if node is not None and node.op_type == "Unsqueeze" else None
    if axes is None or node is None or sorted(axes.tolist()) != list(range(axes.size)) or node.inputs[0] is None:
        return value
    return node.inputs[0]


def _permutation(value: Value) -> list[int] | None:
    node = value.producer
    return list(node.attributes["perm"]) if node is not None and node.op_type == "Transpose" else None


def lay_out(graph: Graph, held: Collection[str]) -> None:
    """Let parameters that one transposition alone reads lie as it gives them: kernels of convolutions."""
    uses = graph.uses()
    for value in list(graph.variables):
        readers = uses.get(value, [])
        if value.name not in held or len(readers) != 1 or readers[0].op_type != "Transpose" or value in graph.outputs:
            continue
        node, contents = readers[0], static(value)
        result = node.outputs[0]
        if contents is None or result is None or result in graph.outputs or node not in graph.nodes:
            continue
        array = np.ascontiguousarray(np.transpose(contents, node.attributes["perm"]))
        value.become(data=ArrayConstant(array), type=TensorType(value.dtype, array.shape))
        graph.replace(result, value)
        graph.remove(node)
