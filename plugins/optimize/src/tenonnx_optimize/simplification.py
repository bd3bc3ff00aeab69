"""Simplification: fewer nodes with the same results."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Sequence
from typing import Any

from tenonnx.extend import Dim, Graph, TenonnxError, TensorType, Type, Value, inline, operators
from tenonnx.extend.transforms import (
    LARGEST_RESULT,
    Call,
    Decision,
    Rewriter,
    fix_shapes,
    folding,
    in_registry_of_graph,
    leaving_defaults,
    prune,
    retarget,
    unify_types,
)
from tenonnx_optimize.common_subexpressions import merging
from tenonnx_optimize.packing import pack, size
from tenonnx_optimize.weights import folding_weights, keep_names

#: Maximum number of rounds.
ROUNDS = 8


@leaving_defaults
@in_registry_of_graph
def simplify(
    graph: Graph,
    *,
    join: bool = True,
    keep: Collection[str] = (),
    largest: int | None = None,
    observe: Callable[[Graph], object] | None = None,
) -> Graph:
    """Fold constants, merge equal nodes, and remove nodes that have no effect or whose outputs are unused.

    The rule ``rewrite`` of an op removes calls without effect, merges two calls, inlines a subgraph, absorbs a producer
    without other consumers (BatchNormalization into a convolution), or replaces calls by fewer ones. The interface is
    unchanged. The sign of zeros may change. Absorbed weights are recomputed and rounded, so models to be trained
    further are better left as they are; the new weights keep the name of the first parameter, and ``Value.role`` lists
    all. ``join`` also merges weights that are used side by side. Nodes of the op types in ``keep`` are unchanged, such
    as ``BatchNormalization`` if its statistics are needed later. A result of more than ``largest`` bytes is not folded,
    unless it is no larger than its constants, or constant propagation computes it anyway. ``observe`` is called with
    the graph after each round.
    """
    most = LARGEST_RESULT if largest is None else largest
    simplify_again = functools.partial(_simplified, keep=keep, largest=most, observe=observe)
    simplified = simplify_again(graph)
    result = pack(simplified, simplify_again) if join else simplified
    # rules return ops of the newest version
    return retarget(result) if _is_newer(result) and not _is_newer(graph) else result


def _is_newer(graph: Graph) -> bool:
    """Whether a graph has nodes newer than its opsets, as after differentiation."""
    return any(node.version > graph.opsets.get(node.domain, node.version) for node in graph.walk())


def _simplified(
    graph: Graph,
    keep: Collection[str] = (),
    largest: int = LARGEST_RESULT,
    observe: Callable[[Graph], object] | None = None,
) -> Graph:
    """``graph`` simplified until its size no longer decreases; nodes of the op types ``keep`` are unchanged."""
    for _ in range(ROUNDS):
        before = size(graph)
        steps = folding_weights(largest), _simpler, _absorbing(graph), merging()
        graph = prune(Rewriter(graph, functools.partial(_first_of, steps, keep)).run())
        keep_names(graph)
        _drop_copies(graph)
        if observe is not None:
            observe(graph)
        if size(graph) == before:
            break
    return graph


def _drop_copies(graph: Graph) -> None:
    """Replace outputs that are copies of computed values by these, under the output names."""
    for node in graph.nodes:
        for subgraph in node.subgraphs:
            _drop_copies(subgraph)
    dropped: dict[Value, Value] = {}
    for place, output in enumerate(graph.outputs):
        if output in dropped:
            graph.outputs[place] = dropped[output]
            continue
        producer, identity = output.producer, operators().identity
        source = producer.inputs[0] if producer is not None and producer.op is identity else None  # type: ignore[comparison-overlap]
        if source is None or source.producer is None or source in graph.outputs or source.type != output.type:
            continue
        source._replace_fields(name=output.name)
        dropped[output] = source
        graph.outputs[place] = source
    for node in graph.nodes if dropped else ():
        node._replace_fields(
            inputs=tuple(v if v is None else dropped.get(v, v) for v in node.inputs),
            captures=tuple(dropped.get(v, v) for v in node.captures),
        )
    graph.nodes = [node for node in graph.nodes if not any(v in dropped for v in node.outputs)]


@in_registry_of_graph
def constant_where_fixed(graph: Graph) -> list[str]:
    """Labels of nodes that would be constant if all dims of inputs were fixed, and are not yet.

    Empty if no sizes are found that the graph accepts.
    """
    open_dims = dict.fromkeys(d for v in graph.inputs for d in _dims(v) if not isinstance(d, int))
    if not open_dims:
        return []
    for sizes in (itertools.count(11), itertools.repeat(8), itertools.repeat(64)):
        numbers = dict(zip(open_dims, sizes, strict=False))
        shapes = {v.name: [d if isinstance(d, int) else numbers[d] for d in _dims(v)] for v in graph.inputs if _dims(v)}
        try:
            return sorted(_constants(fix_shapes(graph, shapes)) - _constants(graph))
        except TenonnxError:  # the graph rejects these sizes
            continue
    return []


def _dims(value: Value) -> tuple[Dim | None, ...]:
    return (value.type.shape or ()) if isinstance(value.type, TensorType) else ()


def _constants(graph: Graph) -> set[str]:
    """The labels of nodes that depend only on static contents."""
    result: set[str] = set()
    fold = folding()

    def decide(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
        results = fold(rewriter, call)
        if results is not None and call.node is not None:
            result.add(call.node.label)
        return results

    Rewriter(graph, decide).run()
    return result


def _first_of(
    steps: Sequence[Decision], keep: Collection[str], rewriter: Rewriter, call: Call
) -> Sequence[Value | None] | None:
    if call.op.name in keep:
        return None
    return next((found for step in steps if (found := step(rewriter, call)) is not None), None)


def _simpler(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
    return _rule_result(rewriter, call, lambda: rewriter.ask("rewrite", call) or _lengths(rewriter, call))


def _absorbing(graph: Graph) -> Decision:
    """A decision by the rules ``rewrite(alone=True)`` for calls that are the only consumers of their inputs."""
    shared: set[Value] = set()
    for inner in graph.nested():
        uses = inner.uses()
        shared.update(v for node in inner.nodes for v in node.outputs if v is not None and len(uses.get(v, ())) > 1)
        shared.update(inner.outputs)

    def decide(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
        result = _rule_result(rewriter, call, lambda: rewriter.ask("rewrite.alone", call))
        read_elsewhere = result is not None and any(rewriter.mapping.get(v) in call.inputs for v in shared)
        return None if read_elsewhere else result

    return decide


def _rule_result(
    rewriter: Rewriter, call: Call, ask: Callable[[], Sequence[Any] | None]
) -> Sequence[Value | None] | None:
    """Result of a rule for a node's outputs, if it has at least as precise types."""
    if call.node is None:
        return None
    try:
        with rewriter.attempt():
            results = ask()
            if results and isinstance(results[0], Graph):  # a subgraph of the call, to be inlined
                results = inline(results[0], [], captures=[rewriter.copy(v) for v in call.node.captures])
    except TenonnxError:  # required types or shapes are unknown
        return None
    if results is None:
        return None
    kinds = [None if k is None else k.type for k in call.known]
    same = all(r is None or _is_as_precise(r.type, k) for r, k in zip(results, kinds, strict=False))
    return results if same and len(results) >= len(call.node.outputs) else None


def _lengths(rewriter: Rewriter, call: Call) -> Sequence[Value] | None:
    """A vector of lengths with known symbols, computed from graph inputs instead."""
    contents = None if len(call.known) != 1 or call.known[0] is None else call.known[0].symbolic_contents
    if contents is None or contents.ndim != 1 or rewriter.outer is not None:
        return None
    dims = contents.tolist()
    computed = all(v is not None and v.symbolic_contents is not None for v in call.inputs)
    if None in dims or not computed or all(isinstance(dim, int) for dim in dims):
        return None
    found = operators().lengths(dims, rewriter.graph.all_inputs)
    return None if found is None else (found,)


def _is_as_precise(found: Type | None, known: Type | None) -> bool:
    """Whether a type is at least as precise as another."""
    try:
        return unify_types(known, found) == found
    except ValueError:
        return False
