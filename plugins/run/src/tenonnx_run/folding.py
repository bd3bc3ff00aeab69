"""Constant folding."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tenonnx import limits
from tenonnx.errors import LimitExceeded
from tenonnx.graph.definitions import in_registry_of_graph
from tenonnx.graph.graph import Graph, Value
from tenonnx.graph.training import Role
from tenonnx.graph.types import TensorType
from tenonnx.op.call import interpreting
from tenonnx.op.evaluate import Evaluator
from tenonnx.op.infer import Abstract
from tenonnx.op.op import Op
from tenonnx.op.rules import find_rule
from tenonnx.transforms.decompose import Keep, refuse_opaque, refuse_primitive
from tenonnx.transforms.default_inputs import leaving_defaults
from tenonnx.transforms.prune import drop_dead_nodes
from tenonnx.transforms.rewrite import Call, Decision, Rewriter

#: Larger results are not folded, so that the file does not grow much, except where they replace constants that nothing
#: else reads.
LARGEST_RESULT = 1 << 20

#: Strings of more bytes than this are not folded.
LARGEST_TEXT = 1 << 26


#: Budget for folding one graph, in multiplications and bytes read; beyond it nodes are kept.
BUDGET = 1 << 30

#: Additional cost of each evaluated call, such as one in the body of a Loop.
_CALL = 1 << 14


def _spending(graph: Graph) -> Callable[..., None]:
    """A function that adds up the cost of calls and raises ``LimitExceeded`` beyond the budget of a graph."""
    nbytes = sum(value.data.nbytes for value in graph.variables if value.data is not None)
    left = BUDGET + 8 * nbytes + _CALL * len(graph.nodes)

    def spend(op: Op, inputs: Sequence[Value | None], attributes: Mapping[str, Any]) -> None:
        nonlocal left
        cost = find_rule(op, "cost")
        with interpreting(Abstract()):
            left -= _CALL + (0 if cost is None else int(cost(*inputs, **attributes)))
        left -= sum(v.data.nbytes for v in inputs if v is not None and v.data is not None)
        if left < 0:
            raise LimitExceeded("constant folding exceeds its budget", given=op.title)

    return spend


def _evaluated(call: Call, spend: Callable[..., None]) -> Sequence[Any]:
    """The results of a call on static inputs, by numpy kernels and function bodies."""
    evaluator = Evaluator(before_call=spend)
    results = evaluator.call(call.op, call.inputs, call.attributes, call.outputs)
    return [None if r is None else evaluator.contents(r) for r in results]


def _is_larger(value: Value, largest: int) -> bool:
    """Whether a value of the inferred type would exceed ``largest`` bytes or the limit of elements."""
    if not isinstance(value.type, TensorType) or value.type.shape is None:
        return False
    elements = math.prod(dim for dim in value.type.shape if isinstance(dim, int))
    return elements > limits.current().elements or elements * value.type.dtype.bits > 8 * largest


def folding(largest: int = LARGEST_RESULT, *, within_bodies: bool = False) -> Decision:
    """A decision that replaces a node on static inputs by its result, unless that exceeds ``largest`` bytes.

    With ``within_bodies`` this includes calls in bodies that are expanded on the same walk. All share one budget, so
    that folding costs little more than reading the file.
    """
    import numpy as np

    spending = functools.cache(_spending)

    def decide(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
        if (call.node is None and not within_bodies) or _has_subgraphs(call) or not call.op.pure:
            return None
        share = constant_share(rewriter, call)
        most = max(largest, share)
        if (known := rewriter.static_results(call.known, call.inputs)) is not None:
            return _with_buffer_roles(call, known)
        if any(v is not None and not v.is_constant for v in call.inputs):
            return None
        if call.node is None:
            outputs = [None if k is None else Value("", k.type) for k in call.known]
        else:
            outputs = [None if v is None else rewriter.copy(v) for v in call.node.outputs]
        if any(v is not None and (not isinstance(v.type, TensorType) or _is_larger(v, most)) for v in outputs):
            return None  # an optional value is no constant, even if its contents are known
        with limits.override(memory=min(limits.current().memory, max(share, min(largest, LARGEST_TEXT)))):
            try:
                results = _evaluated(call, spending(rewriter.source.root))
            except LimitExceeded:  # the run reports it, if it gets there
                return None
        if any(not isinstance(r, np.ndarray) or r.nbytes > most for r in results):
            return None
        limits.count_allocated(sum(r.nbytes for r in results))
        constants = [
            None if v is None else rewriter.result(r, v.dtype, call.inputs)
            for r, v in zip(results, outputs, strict=False)
        ]
        return _with_buffer_roles(call, constants)

    return decide


def _has_subgraphs(call: Call) -> bool:
    return bool(call.node.subgraphs) if call.node is not None else any(map(_is_graph, call.attributes.values()))


def _is_graph(attribute: Any) -> bool:
    return isinstance(attribute, Graph) or (isinstance(attribute, list) and any(map(_is_graph, attribute)))


def constant_share(rewriter: Rewriter, call: Call) -> int:
    """The call's share of its constants' bytes: each constant is divided among the nodes that read it.

    Folding the call saves this many bytes once all these nodes are folded. A node counts once per constant.
    """
    total = 0
    for value in dict.fromkeys(call.node.uses) if call.node is not None else ():
        mapped = rewriter.mapping.get(value)
        if mapped is not None and mapped.data is not None and value not in rewriter.source.outputs:
            total += mapped.data.nbytes // max(1, len(rewriter.readers.get(value, ())))
    return total


def _with_buffer_roles(call: Call, results: Sequence[Value | None]) -> Sequence[Value | None]:
    """Mark results that derive from buffers only as buffers, so that training leaves them unchanged."""
    if {v.role.kind for v in call.inputs if v is not None and v.role is not None} == {"buffer"}:
        for value in results:
            if value is not None and value.role is None:
                value.role = Role("buffer")
    return results


@leaving_defaults
@in_registry_of_graph
def fold(graph: Graph) -> Graph:
    """Fold calls on static inputs into constants, unless that would make a file much larger.

    Ops that draw random numbers are never folded.
    """
    folded = Rewriter(graph, folding()).run()
    drop_dead_nodes(folded)
    return folded


def decompose_and_fold(graph: Graph, keep: Keep) -> Graph:
    """``decompose`` and ``fold`` on one walk, for graphs that run at once with all input defaults."""
    refuse_opaque(graph, "decomposed")
    folded = folding(largest=sys.maxsize, within_bodies=True)

    def decide(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
        if keep(call):
            return folded(rewriter, call)
        refuse_primitive(call)
        return rewriter.expand(call)

    result = Rewriter(graph, decide, strict=True).run()
    drop_dead_nodes(result)
    return result
