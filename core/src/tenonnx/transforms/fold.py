"""Folding: what depends on static contents alone is computed now."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tenonnx import limits
from tenonnx.graph.definitions import in_registry_of_graph
from tenonnx.graph.graph import Graph
from tenonnx.graph.types import TensorType
from tenonnx.graph.values import Value
from tenonnx.op.evaluate import Evaluator
from tenonnx.transforms.overridable import leaving_defaults
from tenonnx.transforms.prune import drop_dead_nodes
from tenonnx.transforms.rewrite import Call, Decision, Rewriter

#: Results larger than this are left to be computed, so that folding never makes a file much larger.
LARGEST_RESULT = 1 << 20

#: Computes one call on static contents; the results in order.
EvaluateCall = Callable[[Call], Sequence[Any]]


def evaluate_call(call: Call) -> Sequence[Any]:
    """One call by numpy rules and bodies."""
    evaluator = Evaluator()
    results = evaluator.call(call.op, call.inputs, call.attributes, call.outputs)
    return [None if r is None else evaluator.contents(r) for r in results]


def _is_larger(value: Value, largest: int) -> bool:
    """Whether contents of the inferred type would have more than ``largest`` bytes, or more elements than allowed."""
    if not isinstance(value.type, TensorType) or value.type.shape is None:
        return False
    elements = math.prod(dim for dim in value.type.shape if isinstance(dim, int))
    return elements > limits.current().elements or elements * value.type.dtype.bits > 8 * largest


def folding(evaluator: EvaluateCall = evaluate_call, largest: int = LARGEST_RESULT) -> Decision:
    """Decides that a node on static inputs becomes its result, unless that has more than ``largest`` bytes."""
    import numpy as np

    def decide(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
        if call.node is None or call.node.subgraphs or not call.op.pure:
            return None
        if (known := rewriter.static_results(call.known)) is not None:
            return known
        if any(v is not None and not v.is_constant for v in call.inputs):
            return None
        outputs = [None if v is None else rewriter.copy(v) for v in call.node.outputs]
        if any(v is not None and _is_larger(v, largest) for v in outputs):
            return None
        results = evaluator(call)
        if any(not isinstance(r, np.ndarray) or r.nbytes > largest for r in results):
            return None
        return [None if v is None else rewriter.intern(r, v.dtype) for r, v in zip(results, outputs, strict=False)]

    return decide


@leaving_defaults
@in_registry_of_graph
def fold(graph: Graph, *, evaluator: EvaluateCall = evaluate_call, largest: int = LARGEST_RESULT) -> Graph:
    """``graph`` with every call on static inputs replaced by its result, unless that has more than ``largest`` bytes.

    Ops that draw random numbers are never folded.
    """
    folded = Rewriter(graph, folding(evaluator, largest)).run()
    drop_dead_nodes(folded)
    return folded
