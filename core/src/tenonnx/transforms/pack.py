"""Packing: other calls in the place of some, which are fewer where several share what they make.

Families say so by rules. ``pack`` says one call by others, of which calls beside it may need the same; ``join`` says
several at once that differ in constants alone. Whoever packs counts nodes, and keeps what is less.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Hashable, Sequence

from tenonnx.errors import TenonnxError
from tenonnx.graph.graph import Graph
from tenonnx.graph.values import Node, Value
from tenonnx.op.binding import foreseeing
from tenonnx.op.memo import attributes_key
from tenonnx.op.op import Op
from tenonnx.op.rules import find_rule
from tenonnx.transforms.rewrite import Call, Rewriter


def pack(graph: Graph, settle: Callable[[Graph], Graph]) -> Graph:
    """``graph`` packed and settled in the way that leaves fewest nodes."""

    @functools.cache  # where one kind does nothing, both orders ask the other for the same
    def by(kind: type[_Packing | _Joining], source: Graph) -> Graph:
        deciding = kind(source)
        if not deciding.possible:
            return source
        walked = Rewriter(source, deciding).run()
        return min(source, settle(walked), key=_size) if deciding.decided else source

    return min(by(_Joining, by(_Packing, graph)), by(_Packing, by(_Joining, graph)), key=_size)


def _size(graph: Graph) -> int:
    return sum(1 for _ in graph.walk())


class _Packing:
    """Decides by the rules ``pack``; ``decided`` tells whether it did."""

    def __init__(self, graph: Graph) -> None:
        ops = {node.op for node in graph.walk() if isinstance(node.op, Op)}
        self.possible = any(find_rule(op, "pack") is not None for op in ops)
        self.decided = False

    def __call__(self, rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
        rule = find_rule(call.op, "pack")
        if call.node is None or rule is None:
            return None
        try:
            with rewriter.attempt(), foreseeing(call.op.title, call.inputs, call.attributes):
                found = rewriter.inside(rule, *call.inputs, **call.attributes)
        except TenonnxError:  # what must be known is not
            return None
        self.decided = self.decided or found is not None
        return found if found is None or isinstance(found, tuple) else (found,)


class _Joining:
    """Decides by the rules ``join``, about calls that have their first input in common, and constants beside it."""

    def __init__(self, graph: Graph) -> None:
        groups: dict[Hashable, list[Node]] = {}
        for node in graph.nodes:
            first, *others = node.inputs or (None,)
            constant = others and all(v is not None and v.is_constant and v not in graph.all_inputs for v in others)
            if constant and isinstance(node.op, Op) and find_rule(node.op, "join") is not None:
                groups.setdefault((node.op, first, attributes_key(node.attributes)), []).append(node)
        self.group_of = {node: group for group in groups.values() if len(group) > 1 for node in group}
        self.made: dict[Node, Value] = {}

    @property
    def possible(self) -> bool:
        return bool(self.group_of)

    @property
    def decided(self) -> bool:
        return bool(self.made)

    def __call__(self, rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
        if call.node is None or call.node not in self.group_of:
            return None
        group, rule = self.group_of[call.node], find_rule(call.op, "join")
        if call.node is group[0] and rule is not None:
            calls = [[None if v is None else rewriter.copy(v) for v in node.inputs] for node in group]
            with contextlib.suppress(TenonnxError), rewriter.attempt(), foreseeing(call.op.title, call.inputs, {}):
                self.made.update(zip(group, rewriter.inside(rule, calls) or (), strict=False))
        found = self.made.get(call.node)
        return None if found is None else (found,)
