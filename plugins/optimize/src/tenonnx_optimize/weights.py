"""Constant folding of weights, keeping names of variables and recording transpositions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tenonnx.extend import ArrayConstant, DType, Graph, TensorType, Value, find_trait, is_trainable, moves_data
from tenonnx.extend.formats import Role
from tenonnx.extend.transforms import (
    LARGEST_RESULT,
    Call,
    Decision,
    Evaluator,
    Rewriter,
    constant_share,
    constant_value,
    folding,
)


def folding_weights(largest: int = LARGEST_RESULT) -> Decision:
    """A decision like ``folding``, which keeps names of transposed variables, and variables with other consumers.

    Quantized values are not folded to floats, since runtimes would requantize the result to other values.
    """
    fold = folding(largest)

    def decide(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
        if call.node is None or call.node.subgraphs or not call.op.pure:
            return fold(rewriter, call)
        if _is_shared(rewriter, call) or find_trait(call.op, "unpacks"):
            return None
        kept = _transposed(rewriter, call)
        return fold(rewriter, call) if kept is None else [kept]

    return decide


#: Transposed weights of at least this many bytes are not copied.
LARGE = 1 << 20


class TransposedContents(ArrayConstant):
    """A view of a large weight with permuted axes, which is written by rows and never copied as a whole."""

    __slots__ = ()

    def rows(self, start: int, stop: int) -> Any:
        import numpy as np

        return np.ascontiguousarray(self._array[start:stop])


def _variable(call: Call) -> Value | None:
    """The float variable whose elements the call only moves, else None."""
    source = call.inputs[0] if len(call.inputs) == len(call.known) == 1 else None
    if source is None or not source.is_constant or not isinstance(source.type, TensorType) or not source.tensor.shape:
        return None
    return source if source.dtype.is_float and moves_data(call.op, call.attributes) else None


def _is_shared(rewriter: Rewriter, call: Call) -> bool:
    """Whether a call moves a parameter with other consumers: copies would diverge in training."""
    source = _variable(call)
    if not is_trainable(source) or call.node is None:
        return False
    readers = [node for node in rewriter.source.nodes if call.node.inputs[0] in node.uses]
    return len(readers) > 1


def _transposed(rewriter: Rewriter, call: Call) -> Value | None:
    """The transposed constant of a variable, with its name and permutation in its role."""
    import numpy as np

    source, largest = _variable(call), max(LARGEST_RESULT, constant_share(rewriter, call))
    if source is None or source.data is None or source.data.nbytes > largest or source.data.type.dtype.bits < 8:
        return None
    if source not in rewriter.graph.variables and (source.role is None or not source.role.name):
        return None
    sizes = [dim for dim in source.tensor.shape or () if isinstance(dim, int)]
    places = np.empty(sizes, np.int8)  # only the layout matters
    evaluator = Evaluator()
    placeholder = constant_value(places, DType.int8, None, source.name)
    (result,) = evaluator.call(call.op, [placeholder], call.attributes, call.outputs)
    moved = np.asarray(evaluator.contents(result)) if result is not None else places
    orders = itertools.permutations(range(len(sizes))) if len(sizes) < 6 and math.prod(sizes) > 1 else iter(())
    order = next((axes for axes in orders if _has_same_layout(places.transpose(axes), moved)), None)
    if order is None or not np.may_share_memory(places, moved):
        return None
    name = rewriter.name(f"{source.name}/transposed")
    contents = source.data.array().transpose(order)
    if contents.nbytes < LARGE:
        transposed = constant_value(np.ascontiguousarray(contents), source.dtype, rewriter.graph, name)
    else:
        data = TransposedContents(contents, source.dtype)
        transposed = Value(name, data.type, data=data, graph=rewriter.graph)
    transposed.role = role_of_transposed(source, order)
    return transposed


def role_of_transposed(source: Value, order: Sequence[int]) -> Role:
    """Role of a weight that replaces ``source``, with axes in ``order``."""
    role = source.role or Role("")
    before = role.permutation or tuple(range(len(order)))
    permutation = tuple(before[axis] for axis in order)
    plain = permutation == tuple(range(len(order)))
    return replace(role, name=role.name or source.name, permutation=None if plain else permutation)


def role_of_reshaped(source: Value) -> Role:
    """Role of a weight that replaces ``source``, with added or removed axes of one element."""
    role = source.role or Role("")
    name = role.name or source.name
    return replace(role, name=name, permutation=None, made_of=role.made_of or (name,))


def _has_same_layout(one: Any, other: Any) -> bool:
    """Whether two arrays have the same shape and strides, ignoring the strides of axes of one element."""
    lies = [[(n, step) for n, step in zip(a.shape, a.strides, strict=True) if n > 1] for a in (one, other)]
    return bool(one.shape == other.shape and lies[0] == lies[1])


def keep_names(graph: Graph) -> None:
    """Rename folded constants to the variables that they replace, if these are unused.

    Several constants made from one variable, such as parts of a weight, get numbers as suffixes.
    """
    used = list(dict.fromkeys(v for inner in graph.nested() for node in inner.nodes for v in node.uses))
    taken = {value.name for inner in graph.nested() for value in inner.values()}
    heirs: dict[str, list[Value]] = {}
    for value in used:
        if value.role is not None and value.role.name and value.producer is None and value.graph is graph:
            heirs.setdefault(value.role.name, []).append(value)
            role = replace(value.role, name="")
            value.role = role if role != Role("") else None
    for name, values in heirs.items():
        for place, value in enumerate(values if name not in taken else ()):
            value._replace_fields(name=name if len(values) == 1 else graph.unique_name(f"{name}/{place}"))
            graph.variables.append(value)
