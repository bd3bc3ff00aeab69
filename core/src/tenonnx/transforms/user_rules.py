"""Rules of a user for one graph: they beat the packages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tenonnx.errors import InvalidCall
from tenonnx.graph.graph import Graph
from tenonnx.graph.values import Node, Value
from tenonnx.op.graph_inference import infer
from tenonnx.op.op import Op
from tenonnx.transforms.rewrite import Call, Rewriter


def apply_rules(graph: Graph, rules: Mapping[str, Any]) -> Graph:
    """``graph`` with nodes replaced by what the rule for their name or op type returns; None leaves a node.

    Keys are node names, ``"Op"`` or ``"domain::Op"``. A rule is called as ``rule(node, *inputs)`` while the graph is
    built, and returns one value or a tuple of them.
    """
    infer(graph, strict=False)
    return _RuleRewriter(graph, rules).run()


class _RuleRewriter(Rewriter):
    def __init__(self, source: Graph, rules: Mapping[str, Any], *, parent: Rewriter | None = None) -> None:
        super().__init__(source, _keep_all, parent=parent)
        self.rules = rules

    def visit(self, node: Node) -> None:
        self.prefix = node.name or next((v.name for v in node.outputs if v is not None), node.op_type)
        for key in (node.name, f"{node.domain}::{node.op_type}", node.op_type):
            rule = self.rules.get(key) if key else None
            if rule is None:
                continue
            start = len(self.graph.nodes)
            found = self.inside(rule, node, *(None if v is None else self.copy(v) for v in node.inputs))
            if found is not None:
                results = found if isinstance(found, tuple) else (found,)
                if len(results) < len([v for v in node.outputs if v is not None]):
                    raise InvalidCall(f"the rule for {node.title} must return {len(node.outputs)} values")
                self._replace(node, results, start)
                return
        self.node = node
        if isinstance(node.op, Op):
            super().visit(node)
        else:
            self.keep(node)

    def _attribute(self, attribute: Any, captures: Sequence[Value]) -> Any:
        if isinstance(attribute, Graph):
            return _RuleRewriter(attribute, self.rules, parent=self).run()
        return super()._attribute(attribute, captures)


def _keep_all(rewriter: Rewriter, call: Call) -> None:
    return None
