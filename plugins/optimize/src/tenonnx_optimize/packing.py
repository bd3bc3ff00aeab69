"""Packing of several calls into fewer with shared inputs.

Variants of the rule ``rewrite`` propose it: ``if_fewer`` expresses one call by others, which may be shared with other
calls; ``together`` combines several calls that differ only in constants. The result with the fewest nodes is kept.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Hashable, Sequence

from tenonnx.extend import Graph, Node, Op, TenonnxError, Value, find_rule
from tenonnx.extend.transforms import Call, Decision, Rewriter, attributes_key, foreseeing


def pack(graph: Graph, simplify: Callable[[Graph], Graph]) -> Graph:
    """``graph`` packed and simplified by ``simplify``, in the order that leaves the fewest nodes."""

    @functools.cache  # if one kind does nothing, both orders need the same result
    def applied(kind: Callable[[Graph], Decision | None], source: Graph) -> Graph:
        deciding, decided = kind(source), False
        if deciding is None:
            return source

        def decide(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
            nonlocal decided
            result = deciding(rewriter, call)
            decided = decided or result is not None
            return result

        walked = Rewriter(source, decide).run()
        return min(source, simplify(walked), key=size) if decided else source

    return min(applied(_joining, applied(_packing, graph)), applied(_packing, applied(_joining, graph)), key=size)


def size(graph: Graph) -> int:
    """The number of nodes, including those of subgraphs."""
    return sum(1 for _ in graph.walk())


def _packing(graph: Graph) -> Decision | None:
    """A decision by the rules ``rewrite.if_fewer``; None if no op of the graph has one."""
    ops = {node.op for node in graph.walk() if isinstance(node.op, Op)}
    if not any(find_rule(op, "rewrite.if_fewer") for op in ops):
        return None

    def decide(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
        if call.node is not None:
            with contextlib.suppress(TenonnxError), rewriter.attempt():  # required types or shapes are unknown
                return rewriter.ask("rewrite.if_fewer", call)
        return None

    return decide


def _joining(graph: Graph) -> Decision | None:
    """A decision by ``rewrite.together`` for calls that share their first input and otherwise have constants."""
    groups: dict[Hashable, list[Node]] = {}
    for node in graph.nodes:
        first, *others = node.inputs or (None,)
        constant = others and all(v is not None and v.is_constant and v not in graph.all_inputs for v in others)
        attributes = attributes_key(node.attributes)
        if (
            constant
            and attributes is not None
            and isinstance(node.op, Op)
            and find_rule(node.op, "rewrite.together") is not None
        ):
            groups.setdefault((node.op, first, attributes), []).append(node)
    group_of = {node: group for group in groups.values() if len(group) > 1 for node in group}
    packed: dict[Node, Value] = {}

    def decide(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
        if call.node is None or call.node not in group_of:
            return None
        group, rule = group_of[call.node], find_rule(call.op, "rewrite.together")
        if call.node is group[0] and rule is not None:
            calls = [[None if v is None else rewriter.copy(v) for v in node.inputs] for node in group]
            with contextlib.suppress(TenonnxError), rewriter.attempt(), foreseeing(call.op.title, call.inputs, {}):
                packed.update(zip(group, rule(calls) or (), strict=False))
        return None if call.node not in packed else (packed[call.node],)

    return decide if group_of else None
