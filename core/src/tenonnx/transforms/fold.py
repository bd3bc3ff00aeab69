"""Folding: what depends on static contents alone is computed now."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tenonnx import limits
from tenonnx.errors import LimitExceeded
from tenonnx.graph.definitions import in_registry_of_graph
from tenonnx.graph.dtypes import DType
from tenonnx.graph.graph import Graph
from tenonnx.graph.training import Role
from tenonnx.graph.types import TensorType
from tenonnx.graph.values import Value
from tenonnx.op.call import constant_value
from tenonnx.op.evaluate import Evaluator
from tenonnx.op.rules import moves_data
from tenonnx.transforms.decompose import Keep, refuse_opaque, refuse_primitive
from tenonnx.transforms.overridable import leaving_defaults
from tenonnx.transforms.prune import drop_dead_nodes
from tenonnx.transforms.rewrite import Call, Decision, Rewriter

#: Results larger than this are left to be computed, so that folding never makes a file much larger.
LARGEST_RESULT = 1 << 20

#: Text that would have more bytes than this is left to be computed, too.
LARGEST_TEXT = 1 << 26

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


def folding(
    evaluator: EvaluateCall = evaluate_call, largest: int = LARGEST_RESULT, *, within_bodies: bool = False
) -> Decision:
    """Decides that a node on static inputs becomes its result, unless that has more than ``largest`` bytes.

    So do the calls of bodies that are expanded on the same walk, if ``within_bodies``.
    """
    import numpy as np

    def decide(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
        if (call.node is None and not within_bodies) or _has_subgraphs(call) or not call.op.pure:
            return None
        if _is_shared(rewriter, call):
            return None
        if (kept := _transposed(rewriter, call, largest)) is not None:
            return [kept]
        if (known := rewriter.static_results(call.known)) is not None:
            return _told(call, known)
        if any(v is not None and not v.is_constant for v in call.inputs):
            return None
        if call.node is None:
            outputs = [None if k is None else Value("", k.type) for k in call.known]
        else:
            outputs = [None if v is None else rewriter.copy(v) for v in call.node.outputs]
        if any(v is not None and (not isinstance(v.type, TensorType) or _is_larger(v, largest)) for v in outputs):
            return None  # an optional value is no constant, though it is held as one
        with limits.override(memory=min(limits.current().memory, largest, LARGEST_TEXT)):
            try:
                results = evaluator(call)
            except LimitExceeded:  # the run tells, where it comes to that
                return None
        if any(not isinstance(r, np.ndarray) or r.nbytes > largest for r in results):
            return None
        limits.made(sum(r.nbytes for r in results))
        made = [None if v is None else rewriter.intern(r, v.dtype) for r, v in zip(results, outputs, strict=False)]
        return _told(call, made)

    return decide


def _has_subgraphs(call: Call) -> bool:
    return bool(call.node.subgraphs) if call.node is not None else any(map(_is_graph, call.attributes.values()))


def _is_graph(attribute: Any) -> bool:
    return isinstance(attribute, Graph) or (isinstance(attribute, list) and any(map(_is_graph, attribute)))


def _variable(call: Call) -> Value | None:
    """The tensor of floats with axes that a call does nothing with but move its elements."""
    source = call.inputs[0] if len(call.inputs) == 1 else None
    if source is None or not source.is_constant or not isinstance(source.type, TensorType) or not source.tensor.shape:
        return None
    return source if source.dtype.is_float and moves_data(call.op, call.attributes) else None


def _is_shared(rewriter: Rewriter, call: Call) -> bool:
    """Whether a call moves a parameter that others read, too: two copies of it would part when it is trained."""
    source = _variable(call)
    if source is None or source.role is None or source.role.kind not in ("parameter", "frozen") or call.node is None:
        return False
    readers = [node for node in rewriter.source.nodes if call.node.inputs[0] in node.uses]
    return len(readers) > 1


def _transposed(rewriter: Rewriter, call: Call, largest: int) -> Value | None:
    """The constant that a call makes of a variable by ordering its axes; it knows which variable, and how it lies."""
    import numpy as np

    source = _variable(call)
    if source is None or source.data is None or source.data.nbytes > largest or source.data.type.dtype.bits < 8:
        return None
    if source not in rewriter.graph.variables and (source.role is None or not source.role.name):
        return None
    sizes = [dim for dim in source.tensor.shape or () if isinstance(dim, int)]
    places = np.arange(math.prod(sizes)).reshape(sizes)
    evaluator = Evaluator()
    held = constant_value(places, DType.int64, None, source.name)
    (result,) = evaluator.call(call.op, [held], call.attributes, call.outputs)
    moved = np.asarray(evaluator.contents(result)) if result is not None else places
    orders = itertools.permutations(range(len(sizes))) if len(sizes) < 6 and math.prod(sizes) > 1 else iter(())
    fitting = (axes for axes in orders if np.array_equal(places.transpose(axes), moved))
    order = next(fitting, None) if moved.ndim == len(sizes) else None
    if order is None:
        return None
    role = source.role or Role("")
    before = role.permutation or tuple(range(len(sizes)))
    permutation = tuple(before[axis] for axis in order)
    contents = np.ascontiguousarray(source.data.array().transpose(order))
    name = rewriter.name(f"{source.name}/transposed")
    made = constant_value(contents, source.dtype, rewriter.graph, name)
    plain = permutation == tuple(range(len(sizes)))
    made.role = replace(role, name=role.name or source.name, permutation=None if plain else permutation)
    return made


def keep_names(graph: Graph) -> None:
    """Let what was folded of variables that nothing reads any more be these, under their names."""
    used = list(dict.fromkeys(v for inner in graph.nested() for node in inner.nodes for v in node.uses))
    taken = {value.name for inner in graph.nested() for value in inner.values()}
    for value in used:
        if value.role is None or not value.role.name or value.producer is not None or value.graph is not graph:
            continue
        role = replace(value.role, name="")
        if value.role.name not in taken:
            taken.add(value.role.name)
            value.become(name=value.role.name)
            graph.variables.append(value)
        value.role = role if role != Role("") else None


def _told(call: Call, made: Sequence[Value | None]) -> Sequence[Value | None]:
    """What is computed from nothing but buffers, as far as anyone knows, is one: no gradient is to change it."""
    if {v.role.kind for v in call.inputs if v is not None and v.role is not None} == {"buffer"}:
        for value in made:
            if value is not None and value.role is None:
                value.role = Role("buffer")
    return made


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


@leaving_defaults
@in_registry_of_graph
def fold(graph: Graph, *, evaluator: EvaluateCall = evaluate_call, largest: int = LARGEST_RESULT) -> Graph:
    """``graph`` with every call on static inputs replaced by its result, unless that has more than ``largest`` bytes.

    Ops that draw random numbers are never folded.
    """
    folded = Rewriter(graph, folding(evaluator, largest)).run()
    drop_dead_nodes(folded)
    return folded
