"""Application of import rules while a model is read: the user's rules first, then those of packages."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import Any, NamedTuple

from tenonnx.errors import (
    InvalidCall,
    PluginError,
    TenonnxError,
    TypeMismatch,
    UnsupportedOp,
    counted,
    did_you_mean,
    listing,
)
from tenonnx.graph.containers import Operator
from tenonnx.graph.graph import Graph, Node, Value
from tenonnx.graph.types import unify_types
from tenonnx.op.graph_inference import infer
from tenonnx.registry.discovery import Plugin, loaded
from tenonnx.transforms.default_inputs import leaving_defaults
from tenonnx.transforms.rewrite import Call, Decision, Rewriter, body_nodes
from tenonnx_convert.import_rules import GROUP, ImportRule, rules_of


class Offered(NamedTuple):
    """A rule with the plugin that provides it; None for a user's rule."""

    rule: ImportRule
    plugin: Plugin | None
    key: str

    def title(self, node: Node) -> str:
        source = f" of {self.plugin.source}" if self.plugin is not None else ""
        return f'the rule "{self.key}"{source} for {node.title}'


def apply_rules(graph: Graph, rules: Any, *, strict: bool = False, frontend: str = "onnx") -> Graph:
    """``graph`` with nodes replaced by the results of the rules for their name or op type; None keeps a node.

    ``rules`` are import rules, or a mapping whose keys are node names, ``"Op"`` or ``"domain::Op"``. A rule is called
    as ``rule(node, *inputs)`` while the graph is built, and returns one value for each output of the node. Raises
    ``InvalidCall`` for a wrong number of results, and for a rule that is not a function of a node and its inputs. A
    note names the rule in errors that it raises. ``strict`` infers the types of ``graph``, and also raises
    ``InvalidCall`` for a key that matches no node and ``TypeMismatch`` for a result of another type than the output.
    """
    found = rules_of(rules)
    if strict and isinstance(rules, Mapping):
        _check_keys(graph, rules)
    keys = [key for key in rules for _ in range(2)] if isinstance(rules, Mapping) else [rule.title for rule in found]
    offered = [Offered(rule, None, key) for rule, key in zip(found, keys, strict=True)]
    return _apply(graph, offered, strict, frontend)


def apply_installed_rules(graph: Graph, frontend: str) -> Graph:
    """``graph`` with nodes replaced by the results of installed packages' rules."""
    return _apply(graph, installed_rules(), True, frontend)


def installed_rules() -> list[Offered]:
    """The rules of installed packages, in order of precedence."""
    offered = [Offered(rule, plugin, rule.title) for plugin, value in loaded(GROUP) for rule in rules_of(value)]
    return sorted(offered, key=lambda each: (each.rule.order, each.plugin is not None and each.plugin.rank))


def _check_keys(graph: Graph, rules: Mapping[str, Any]) -> None:
    known = dict.fromkeys(key for node in _everywhere(graph) for key in _keys(node))
    for key in rules:
        if key not in known:
            what = "the key of a rule names neither a node nor an op of the graph"
            raise InvalidCall(what, given=repr(key), available=listing(known), do=did_you_mean(key, known))


def _everywhere(graph: Graph) -> Iterator[Node]:
    """The nodes of a graph and of its model-local functions."""
    yield from graph.walk()
    for function in graph.functions.values():
        yield from body_nodes(function)


def _keys(node: Node) -> list[str]:
    """The mapping keys that match a node."""
    return [key for key in (node.name, f"{node.domain}::{node.op_type}", node.op_type) if key]


def _apply(graph: Graph, offered: Sequence[Offered], strict: bool, frontend: str) -> Graph:
    fitting = [each for each in offered if each.rule.frontend in (None, frontend)]
    fitting.sort(key=lambda each: each.rule.order)  # stable, which preserves the order of packages
    if not fitting or not any(each.rule.is_for(node) for node in _everywhere(graph) for each in fitting):
        return graph
    if strict:
        infer(graph, strict=False)
    return _ruled(graph, fitting, strict)


@leaving_defaults
def _ruled(graph: Graph, rules: Sequence[Offered], strict: bool) -> Graph:
    functions, leading = set(graph.functions.values()), set[Operator]()
    leads = lambda node: node.op in leading or any(each.rule.is_for(node) for each in rules)  # noqa: E731
    while more := {each for each in functions - leading if any(map(leads, body_nodes(each)))}:
        leading |= more

    def decide(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
        if call.op in leading:
            with suppress(UnsupportedOp), rewriter.attempt():  # a function may contain unknown ops
                return rewriter.expand(call)
        return None

    ruled = _RuleRewriter(graph, decide, rules, strict).run()
    if not any(node.op in leading for node in ruled.walk()):
        ruled.functions = {key: each for key, each in ruled.functions.items() if each not in leading}
    if strict:
        infer(ruled, strict=False)
        for before, after in zip(graph.outputs, ruled.outputs, strict=True):
            _check_type("the rules", before, after)
    return ruled


class _RuleRewriter(Rewriter):
    def __init__(
        self, source: Graph, decide: Decision, rules: Sequence[Offered], strict: bool, *, outer: Rewriter | None = None
    ) -> None:
        super().__init__(source, decide, strict=strict, outer=outer)
        self.rules = rules

    def inner(self, subgraph: Graph, attribute: str) -> Rewriter:
        return _RuleRewriter(subgraph, self.decide, self.rules, self.strict, outer=self)

    def replacement(self, node: Node, call: Call | None) -> Sequence[Value | None] | None:
        result = self.replayed(node)
        return super().replacement(node, call) if result is None else result

    def replayed(self, node: Node) -> Sequence[Value | None] | None:
        for offered in self.rules:
            if not offered.rule.is_for(node):
                continue
            start = len(self.nodes)
            found = _ask(offered, node)
            if len(self.nodes) < start:
                raise InvalidCall(f"{offered.title(node)} changed the graph", do="return values")
            if found is not None:
                results = tuple(found) if isinstance(found, tuple | list) else (found,)
                _check(offered.title(node), node, results, self.strict)
                return results
        return None


def _ask(offered: Offered, node: Node) -> Any:
    title, plugin = offered.title(node), offered.plugin
    _check_parameters(offered.rule.function, title, node)
    before = _parts(node)
    running = nullcontext() if plugin is None else plugin.running(f"could not replace {node.title}")
    try:
        with running:
            result = offered.rule(node, *node.inputs)
    except Exception as error:
        if isinstance(error, TenonnxError):  # commands print only its message
            error.also = "\n".join(part for part in (error.also, f"raised by {title}") if part)
        else:
            error.add_note(f"raised by {title}")
        raise
    except SystemExit as error:  # it would exit the program without an error
        raise PluginError(f"{title} ended the program", given=f"{type(error).__name__}: {error}") from error
    if _parts(node) != before:
        raise InvalidCall(f"{title} changed the node", do="return values that replace its outputs")
    return result


def _parts(node: Node) -> list[Any]:
    attributes = [part for name, value in node.attributes.items() for part in (name, id(value))]
    values = [part for each in (*node.inputs, *node.outputs) for part in (id(each), getattr(each, "name", ""))]
    return [node.name, id(node.op), node.version, *values, *attributes]


def _check_parameters(rule: Any, title: str, node: Node) -> None:
    try:
        signature = inspect.signature(rule)
    except ValueError:  # functions written in C may have no signature
        return
    try:
        signature.bind(node, *node.inputs)
    except TypeError as error:
        what = f"{title} does not take the node and its {counted(len(node.inputs), 'input')}"
        raise InvalidCall(what, given=f"a function of {signature}", do="(node, *inputs) takes any number") from error


def _check(title: str, node: Node, results: tuple[Any, ...], strict: bool) -> None:
    """Raise unless the results of a rule fit the outputs of a node."""
    if not all(isinstance(result, Value) for result in results):
        given = ", ".join(type(result).__name__ for result in results)
        raise InvalidCall(
            f"{title} returned something other than values, or None to go on",
            given=given,
            do="constant(array) is a value",
        )
    if len(results) != len(node.outputs):
        raise InvalidCall(
            f"{title} did not return {counted(len(node.outputs), 'value')}, one for each output",
            given=counted(len(results), "value"),
        )
    for output, result in zip(node.outputs, results, strict=True) if strict else ():
        _check_type(title, output, result)


def _check_type(title: str, output: Value | None, result: Value) -> None:
    try:
        unify_types(None if output is None else output.type, result.type)
    except ValueError as error:
        assert output is not None
        raise TypeMismatch(
            f'{title} returned for output "{output.name}" a value of another type',
            given=str(result.type),
            available=str(output.type),
            do="cast or reshape what the rule returns",
        ) from error
