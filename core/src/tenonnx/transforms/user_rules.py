"""Rules of a user for one graph: they beat the packages."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from tenonnx.errors import InvalidCall, TypeMismatch
from tenonnx.graph.graph import Graph
from tenonnx.graph.types import unify_types
from tenonnx.graph.values import Node, Value
from tenonnx.op.graph_inference import infer
from tenonnx.transforms.overridable import leaving_defaults
from tenonnx.transforms.rewrite import Call, Rewriter


def apply_rules(graph: Graph, rules: Mapping[str, Any], *, strict: bool = False) -> Graph:
    """``graph`` with nodes replaced by what the rule for their name or op type returns; None leaves a node.

    Keys are node names, ``"Op"`` or ``"domain::Op"``. A rule is called as ``rule(node, *inputs)`` while the graph is
    built, and returns one value for each output of the node. Raises ``InvalidCall`` for another number of them, and for
    what is no function of a node and its inputs; what a rule raises is noted to come from it. With ``strict``, which
    gives the values of ``graph`` their types, it raises ``InvalidCall`` for a key that no node has, too, and
    ``TypeMismatch`` for a value of another type than the output.
    """
    if not isinstance(rules, Mapping) or not all(map(callable, rules.values())):
        given = repr(rules)[:200]
        raise InvalidCall("rules must be a mapping from names of nodes and ops to functions", given=given)
    known = dict.fromkeys(key for node in graph.walk() for key in _keys(node))
    for key in rules if strict else ():
        if key not in known:
            raise InvalidCall(
                "the key of a rule must be the name of a node, or an op, of this graph",
                given=repr(key),
                available=", ".join(difflib.get_close_matches(str(key), known, 5, 0.4) or list(known)[:10]),
            )
    if strict:
        infer(graph, strict=False)
    return _ruled(graph, rules, strict)


@leaving_defaults
def _ruled(graph: Graph, rules: Mapping[str, Any], strict: bool) -> Graph:
    return _RuleRewriter(graph, rules, strict).run()


def _keys(node: Node) -> list[str]:
    """What a rule for a node may be called, the first that has a rule being asked first."""
    return [key for key in (node.name, f"{node.domain}::{node.op_type}", node.op_type) if key]


class _RuleRewriter(Rewriter):
    def __init__(self, source: Graph, rules: Mapping[str, Any], strict: bool, *, outer: Rewriter | None = None) -> None:
        super().__init__(source, lambda rewriter, call: None, strict=strict, outer=outer)
        self.rules = rules

    def inner(self, subgraph: Graph, attribute: str) -> Rewriter:
        return _RuleRewriter(subgraph, self.rules, self.strict, outer=self)

    def replacement(self, node: Node, call: Call | None) -> Sequence[Value | None] | None:
        for key in _keys(node):
            found = None if key not in self.rules else self._ask(key, node)
            if found is not None:
                results = found if isinstance(found, tuple) else (found,)
                _check(key, node, results, self.strict)
                return results
        return None

    def _ask(self, key: str, node: Node) -> Any:
        rule, title = self.rules[key], _title(key, node)
        _check_parameters(rule, title, node)
        try:
            return rule(node, *node.inputs)
        except Exception as error:
            error.add_note(f"raised by {title}")
            raise


def _title(key: str, node: Node) -> str:
    return f'the rule "{key}" for {node.title}'


def _check_parameters(rule: Any, title: str, node: Node) -> None:
    try:
        signature = inspect.signature(rule)
    except ValueError:  # nobody knows that of what is written in C
        return
    try:
        signature.bind(node, *node.inputs)
    except TypeError as error:
        what = f"{title} must take the node and its {len(node.inputs)} inputs"
        raise InvalidCall(what, given=f"a function of {signature}", do="(node, *inputs) takes any number") from error


def _check(key: str, node: Node, results: tuple[Any, ...], strict: bool) -> None:
    """Raise unless the results of a rule can stand for the outputs of a node."""
    title = _title(key, node)
    if not all(isinstance(result, Value) for result in results):
        given = ", ".join(type(result).__name__ for result in results)
        raise InvalidCall(f"{title} must return values, or None to go on", given=given, do="constant(array) is a value")
    if len(results) != len(node.outputs):
        raise InvalidCall(
            f"{title} must return {len(node.outputs)} values, one for each output", given=f"{len(results)} values"
        )
    for output, result in zip(node.outputs, results, strict=True) if strict else ():
        try:
            unify_types(None if output is None else output.type, result.type)
        except ValueError as error:
            assert output is not None
            raise TypeMismatch(
                f'{title} must return for output "{output.name}" a value of its type',
                given=str(result.type),
                available=str(output.type),
                do="cast or reshape what the rule returns",
            ) from error
