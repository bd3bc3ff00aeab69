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

#: Results larger than this are left to be computed, so that folding never makes a file much larger; but for those that
#: constants make room for that nothing else reads.
LARGEST_RESULT = 1 << 20

#: Text that would have more bytes than this is left to be computed, too.
LARGEST_TEXT = 1 << 26


#: What folding a graph may cost, in multiplications and bytes read; beyond that, nodes are left to be computed.
BUDGET = 1 << 30

#: What each call that is evaluated costs beside, such as one in the body of a Loop.
_CALL = 1 << 14


def _spending(graph: Graph) -> Callable[..., None]:
    """A function that counts what calls cost. It raises ``LimitExceeded`` beyond the budget of a graph."""
    held = sum(value.data.nbytes for value in graph.variables if value.data is not None)
    left = BUDGET + 8 * held + _CALL * len(graph.nodes)

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
    """The results of a call on static contents, by numpy rules and bodies."""
    evaluator = Evaluator(before_call=spend)
    results = evaluator.call(call.op, call.inputs, call.attributes, call.outputs)
    return [None if r is None else evaluator.contents(r) for r in results]


def _is_larger(value: Value, largest: int) -> bool:
    """Whether contents of the inferred type would have more than ``largest`` bytes, or more elements than allowed."""
    if not isinstance(value.type, TensorType) or value.type.shape is None:
        return False
    elements = math.prod(dim for dim in value.type.shape if isinstance(dim, int))
    return elements > limits.current().elements or elements * value.type.dtype.bits > 8 * largest


def folding(largest: int = LARGEST_RESULT, *, within_bodies: bool = False) -> Decision:
    """Decides that a node on static inputs becomes its result, unless that has more than ``largest`` bytes.

    So do the calls of bodies that are expanded on the same walk, if ``within_bodies``. All share one budget of work, so
    that folding never costs much more than reading the file.
    """
    import numpy as np

    spending = functools.cache(_spending)

    def decide(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
        if (call.node is None and not within_bodies) or _has_subgraphs(call) or not call.op.pure:
            return None
        share = constant_share(rewriter, call)
        most = max(largest, share)
        if (known := rewriter.static_results(call.known, call.inputs)) is not None:
            return _told(call, known)
        if any(v is not None and not v.is_constant for v in call.inputs):
            return None
        if call.node is None:
            outputs = [None if k is None else Value("", k.type) for k in call.known]
        else:
            outputs = [None if v is None else rewriter.copy(v) for v in call.node.outputs]
        if any(v is not None and (not isinstance(v.type, TensorType) or _is_larger(v, most)) for v in outputs):
            return None  # an optional value is no constant, though it is held as one
        with limits.override(memory=min(limits.current().memory, max(share, min(largest, LARGEST_TEXT)))):
            try:
                results = _evaluated(call, spending(rewriter.source.root))
            except LimitExceeded:  # the run tells, where it comes to that
                return None
        if any(not isinstance(r, np.ndarray) or r.nbytes > most for r in results):
            return None
        limits.made(sum(r.nbytes for r in results))
        made = [
            None if v is None else rewriter.result(r, v.dtype, call.inputs)
            for r, v in zip(results, outputs, strict=False)
        ]
        return _told(call, made)

    return decide


def _has_subgraphs(call: Call) -> bool:
    return bool(call.node.subgraphs) if call.node is not None else any(map(_is_graph, call.attributes.values()))


def _is_graph(attribute: Any) -> bool:
    return isinstance(attribute, Graph) or (isinstance(attribute, list) and any(map(_is_graph, attribute)))


def constant_share(rewriter: Rewriter, call: Call) -> int:
    """The share of a call in the bytes of its constants: each is divided among the nodes that read it.

    So many bytes are saved by folding it, once all these nodes are folded. A node counts once, however often it reads
    a constant.
    """
    total = 0
    for value in dict.fromkeys(call.node.uses) if call.node is not None else ():
        held = rewriter.mapping.get(value)
        if held is not None and held.data is not None and value not in rewriter.source.outputs:
            total += held.data.nbytes // max(1, len(rewriter.readers.get(value, ())))
    return total


def _told(call: Call, made: Sequence[Value | None]) -> Sequence[Value | None]:
    """Mark a result of nothing but buffers as a buffer: no gradient is to change it."""
    if {v.role.kind for v in call.inputs if v is not None and v.role is not None} == {"buffer"}:
        for value in made:
            if value is not None and value.role is None:
                value.role = Role("buffer")
    return made


@leaving_defaults
@in_registry_of_graph
def fold(graph: Graph) -> Graph:
    """``graph`` with every call on static inputs replaced by its result, unless that would make a file much larger.

    Ops that draw random numbers are never folded.
    """
    folded = Rewriter(graph, folding()).run()
    drop_dead_nodes(folded)
    return folded


def decompose_and_fold(graph: Graph, keep: Keep) -> Graph:
    """``decompose`` and ``fold`` on one walk, for one who feeds no input that has a default and keeps no file."""
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
