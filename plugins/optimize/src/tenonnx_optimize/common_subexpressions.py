"""Common subexpression elimination."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from tenonnx.extend import Graph, TensorType, Value, is_trainable, static
from tenonnx.extend.transforms import (
    Call,
    Decision,
    Rewriter,
    attributes_key,
    drop_dead_nodes,
    in_registry_of_graph,
    leaving_defaults,
)

#: Larger constants are compared by identity instead of contents.
LARGEST_SHARED = 1 << 16


@leaving_defaults
@in_registry_of_graph
def merge_common_subexpressions(graph: Graph) -> Graph:
    """``graph`` with one node for all that apply an op to the same inputs, or have results known to be equal.

    Known are integers that are equal as expressions of the symbols in shapes, so that the length of an axis is computed
    once for all tensors with it. Subgraphs, and ops that draw random numbers, are unchanged.
    """
    shared = Rewriter(graph, merging()).run()
    drop_dead_nodes(shared)
    return shared


def merging() -> Decision:
    """A decision that replaces a node by an equal earlier one; for one graph."""
    seen: dict[Hashable, tuple[Value | None, ...]] = {}

    def decide(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
        if rewriter.outer is not None or call.node is None or call.node.subgraphs or not call.op.pure:
            return None
        outputs = tuple(None if v is None else rewriter.copy(v) for v in call.node.outputs)
        attributes = attributes_key(call.node.attributes)
        inputs = tuple(map(_as_key, call.inputs))
        keys = [] if attributes is None else [(call.op, inputs, attributes, tuple(v is None for v in outputs))]
        if len(outputs) == 1 and (contents := _contents(outputs[0])) is not None:
            keys.append(contents)
        for key in keys:
            if key in seen:
                return seen[key]
        seen.update((key, outputs) for key in keys)
        return None

    return decide


def _as_key(value: Value | None) -> Hashable:
    """Key of an input: contents of a small constant, unless training may change them, else the value itself."""
    contents = static(value) if value is not None and value.is_constant and not is_trainable(value) else None
    if value is None or contents is None or contents.nbytes > LARGEST_SHARED or contents.dtype == object:
        return value
    return value.dtype, contents.shape, contents.tobytes()


def _contents(value: Value | None) -> Any:
    """Key of the contents of an integer tensor if they are known, perhaps as expressions; else None."""
    if value is None or value.symbolic_contents is None or not isinstance(value.type, TensorType):
        return None
    contents = tuple(value.symbolic_contents.reshape(-1))
    return None if None in contents else (value.type.dtype, value.symbolic_contents.shape, contents)
