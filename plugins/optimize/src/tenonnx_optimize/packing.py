"""Packing of several calls into fewer that share inputs.

Families say so by variants of the rule ``rewrite``: ``if_fewer`` says one call by others, of which calls beside it may
need the same; ``together`` says several at once that differ in constants alone. Whoever packs counts nodes, and keeps
what is less.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Hashable, Sequence

from tenonnx.extend import Graph, Node, Op, TenonnxError, Value, find_rule
from tenonnx.extend.transforms import Call, Decision, Rewriter, attributes_key, foreseeing


def pack(graph: Graph, settle: Callable[[Graph], Graph]) -> Graph:
    """``graph`` packed and settled in the way that leaves fewest nodes."""

    @functools.cache  # where one kind does nothing, both orders ask the other for the same
    def by(kind: Callable[[Graph], Decision | None], source: Graph) -> Graph:
        deciding, decided = kind(source), False
        if deciding is None:
            return source

        def decide(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
            nonlocal decided
            found = deciding(rewriter, call)
            decided = decided or found is not None
            return found

        walked = Rewriter(source, decide).run()
        return min(source, settle(walked), key=size) if decided else source

    return min(by(_joining, by(_packing, graph)), by(_packing, by(_joining, graph)), key=size)


def size(graph: Graph) -> int:
    """The number of nodes, those of subgraphs included."""
    return sum(1 for _ in graph.walk())


def _packing(graph: Graph) -> Decision | None:
    """Decides by the rules ``rewrite.if_fewer``; None where no op of the graph has one."""
    ops = {node.op for node in graph.walk() if isinstance(node.op, Op)}
    if not any(find_rule(op, "rewrite.if_fewer") for op in ops):
        return None

    def decide(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
        if call.node is not None:
            with contextlib.suppress(TenonnxError), rewriter.attempt():  # what must be known is not
                return rewriter.ask("rewrite.if_fewer", call)
        return None

    return decide


def _joining(graph: Graph) -> Decision | None:
    """Decides by ``rewrite.together``, about calls that have their first input in common, and constants beside it."""
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
    made: dict[Node, Value] = {}

    def decide(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
        if call.node is None or call.node not in group_of:
            return None
        group, rule = group_of[call.node], find_rule(call.op, "rewrite.together")
        if call.node is group[0] and rule is not None:
            calls = [[None if v is None else rewriter.copy(v) for v in node.inputs] for node in group]
            with contextlib.suppress(TenonnxError), rewriter.attempt(), foreseeing(call.op.title, call.inputs, {}):
                made.update(zip(group, rule(calls) or (), strict=False))
        return None if call.node not in made else (made[call.node],)

    return decide if group_of else None
