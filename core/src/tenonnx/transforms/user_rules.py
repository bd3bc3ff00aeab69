"""Rules of a user for one graph: they beat the packages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tenonnx.errors import InvalidCall
from tenonnx.graph.graph import Graph
from tenonnx.graph.values import Node, Value
from tenonnx.transforms.rewrite import Call, Rewriter


def apply_rules(graph: Graph, rules: Mapping[str, Any]) -> Graph:
    """``graph`` with nodes replaced by what the rule for their name or op type returns; None leaves a node.

    Keys are node names, ``"Op"`` or ``"domain::Op"``. A rule is called as ``rule(node, *inputs)`` while the graph is
    built, and returns one value or a tuple of them.
    """
    return _RuleRewriter(graph, rules).run()


class _RuleRewriter(Rewriter):
    def __init__(self, source: Graph, rules: Mapping[str, Any], *, outer: Rewriter | None = None) -> None:
        super().__init__(source, lambda rewriter, call: None, outer=outer)
        self.rules = rules

    def inner(self, subgraph: Graph, attribute: str) -> Rewriter:
        return _RuleRewriter(subgraph, self.rules, outer=self)

    def replacement(self, node: Node, call: Call | None) -> Sequence[Value | None] | None:
        for key in (node.name, f"{node.domain}::{node.op_type}", node.op_type):
            rule = self.rules.get(key) if key else None
            found = None if rule is None else self.inside(rule, node, *node.inputs)
            if found is not None:
                results = found if isinstance(found, tuple) else (found,)
                if len(results) < len([v for v in node.outputs if v is not None]):
                    raise InvalidCall(f"the rule for {node.title} must return {len(node.outputs)} values")
                return results
        return None
