"""Fusion: expansion read backwards. Where the body of an op stands in a graph, the op is put.

A body is traced for the types at hand and looked for in the graph, both in normal form. What is found proposes a call:
values for the inputs, numbers for the attributes. The proof is the expansion: the body of the proposed call, in normal
form, is the part of the graph that it replaces.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenonnx.errors import InvalidCall, TenonnxError
from tenonnx.graph.graph import Graph
from tenonnx.graph.operators import operators
from tenonnx.graph.symbolic import symbol
from tenonnx.graph.types import TensorType, Type
from tenonnx.graph.values import Node, Value
from tenonnx.op.binding import foreseeing, invoke
from tenonnx.op.build import Builder
from tenonnx.op.call import interpreting
from tenonnx.op.op import REQUIRED, Op
from tenonnx.registry.registry import Registry, default_registry
from tenonnx.transforms.matching import Match, Matcher
from tenonnx.transforms.normal_form import Normalizer
from tenonnx.transforms.prune import drop_dead_nodes, needed_nodes
from tenonnx.transforms.rewrite import Call, Rewriter, copy_graph

#: Passes over a graph: one op may be part of the body of another.
PASSES = 4

#: Assignments of attributes that are tried for one place.
MOST_ATTRIBUTES = 64

#: Optional inputs beyond so many are not left out one by one.
MOST_OPTIONAL = 3


def fuse(graph: Graph, ops: Iterable[str | Op] | None = None) -> Graph:
    """``graph`` with one node wherever the body of an op stands, as long as that leaves fewer nodes.

    ``ops`` are the ops to look for, by name (``com.microsoft::FastGelu``, or ``Gelu`` for ``ai.onnx``) or themselves;
    by default all that exist at the graph's opsets and have a body. What other nodes read inside a match is kept for
    them. Raises ``InvalidCall`` for a name that no installed package gives.
    """
    registry = graph.root.registry or default_registry()
    wanted = list(_candidates(graph, registry)) if ops is None else [_found(op, graph, registry) for op in ops]
    templates = Templates(graph, wanted)
    graph = _without_unread_outputs(copy_graph(graph))
    for _ in range(PASSES):
        fused = _Pass(graph, templates).run()
        if fused is None:
            break
        graph = fused
    return graph


def _candidates(graph: Graph, registry: Registry) -> Iterator[Op]:
    for domain, version in graph.opsets.items():
        for op in registry.ops(domain):
            if op.holds_at(version) and op.specified and _can_be_found(op):
                yield op


def _without_unread_outputs(graph: Graph) -> Graph:
    """``graph``, its nodes without the last outputs that nobody reads."""
    read = {v for node in graph.nodes for v in node.uses} | set(graph.outputs)
    for node in graph.nodes:
        if isinstance(node.op, Op) and not node.op.signature.counts_outputs:
            while len(node.outputs) > 1 and node.outputs[-1] not in read:
                node.outputs = node.outputs[:-1]
    return graph


def _can_be_found(op: Op) -> bool:
    """Whether the op has a body, which can be traced without knowing how it is called."""
    signature = op.signature
    known = not signature.variadic and REQUIRED not in signature.attributes.values() and not signature.reads_graph
    return known and not op.primitive and op.pure


def _found(wanted: str | Op, graph: Graph, registry: Registry) -> Op:
    if isinstance(wanted, Op):
        return wanted
    domain, _, name = wanted.rpartition("::")
    domain = domain or "ai.onnx"
    op = registry.lookup(domain, name, graph.opsets.get(domain, 10**6))
    if op is None or op.primitive:
        known = sorted({op.name for op in registry.ops(domain) if not op.primitive})
        raise InvalidCall(f"{domain}::{name} must be an op with a body", available=", ".join(known))
    return op


@dataclass(frozen=True, slots=True)
class Template:
    """The body of an op in normal form, for some attributes and types: ``inputs`` are None where an input is absent."""

    op: Op
    attributes: Mapping[str, Any]
    inputs: tuple[Value | None, ...]
    output: Value
    graph: Graph


@dataclass(frozen=True, slots=True)
class Fused:
    """A call that stands for a value of the source."""

    op: Op
    attributes: Mapping[str, Any]
    inputs: tuple[Value | None, ...]


class Templates:
    """The bodies of ops in normal form, for the types at which they are looked for."""

    def __init__(self, graph: Graph, ops: Sequence[Op]) -> None:
        self.ops = ops
        self.opsets, self.registry = graph.opsets, graph.registry
        self._vocabularies: dict[Any, frozenset[Op] | None] = {}
        self._found: dict[Any, list[Template]] = {}

    def of(self, root: Value, present: frozenset[Op]) -> Iterator[Template]:
        """Those that end as ``root`` does, of ops that need no others than are ``present`` in the graph."""
        kind = root.type
        assert isinstance(kind, TensorType)
        if kind.shape is None or not kind.dtype.is_float:
            return
        for op in self.ops:
            for place, attributes in enumerate(_choices(op)):
                vocabulary = self._vocabulary(op, kind, place, attributes)
                if vocabulary is not None and vocabulary <= present:
                    for template in self._traced_for(op, kind, place, attributes):
                        if _ends_alike(template.output, root):
                            yield template

    def _vocabulary(self, op: Op, kind: TensorType, place: int, attributes: Mapping[str, Any]) -> frozenset[Op] | None:
        """The ops that the least that one can ask of ``op`` is made of; None where it has no such inputs."""
        assert kind.shape is not None
        key = (op, place, kind.dtype, len(kind.shape))
        if key not in self._vocabularies:
            general = kind.with_shape(tuple(symbol(f"size{axis}") for axis in range(len(kind.shape))))
            required = [not p.optional for p in op.signature.inputs]
            least = self.traced(op, attributes, _given(op, attributes, general, required))
            least = least or self.traced(op, attributes, _given(op, attributes, general, [True] * len(required)))
            nodes = [] if least is None else needed_nodes(least.graph, [least.output])
            vocabulary = frozenset(node.op for node in nodes if isinstance(node.op, Op))
            self._vocabularies[key] = vocabulary if nodes else None
        return self._vocabularies[key]

    def _traced_for(self, op: Op, kind: TensorType, place: int, attributes: Mapping[str, Any]) -> Sequence[Template]:
        key = (op, place, kind)
        if key not in self._found:
            made = (self.traced(op, attributes, _given(op, attributes, kind, there)) for there in _presences(op))
            self._found[key] = [template for template in made if template is not None]
        return self._found[key]

    def traced(self, op: Op, attributes: Mapping[str, Any], kinds: Sequence[Type | None]) -> Template | None:
        """The body for inputs of these types, in normal form; None where they do not fit."""
        source = Graph("template", opsets=self.opsets)
        source.registry = self.registry
        inputs = [None if kind is None else source.input(f"input{k}", kind) for k, kind in enumerate(kinds)]
        try:
            op.requirements.check(inputs, attributes)
            with foreseeing(op.title, inputs, attributes), interpreting(Builder(source, fold=True)):
                results = invoke(op, op.function, inputs, attributes, 1 if op.signature.counts_outputs else None)
            if results[0] is None or results[0].producer is None:
                return None
            source.outputs = [results[0]]
            drop_dead_nodes(source)
            normal = Normalizer(source)
            output = normal.run().outputs[0]
        except TenonnxError:
            return None
        mapped = tuple(None if v is None else normal.copy(v) for v in inputs)
        return None if output.producer is None else Template(op, attributes, mapped, output, normal.graph)


def _ends_alike(a: Value, b: Value) -> bool:
    return a.producer is not None and b.producer is not None and a.producer.op is b.producer.op


def _given(op: Op, attributes: Mapping[str, Any], kind: TensorType, there: Sequence[bool]) -> list[Type | None]:
    """Types for the inputs that are given: that of the result, or the shape that must hold where the first has it."""
    open_kinds = [kind, *[kind.with_shape(None)] * (len(there) - 1)]
    values = [Value("", open_kinds[k]) if given else None for k, given in enumerate(there)]
    try:
        narrowed = op.requirements.narrowed(values, op.requirements.check(values, attributes))
    except TenonnxError:
        return [kind if given else None for given in there]
    found = (None if v is None else v.tensor for v in narrowed)
    return [None if each is None else kind if each.shape is None else each for each in found]


def _presences(op: Op) -> Iterator[list[bool]]:
    """Which inputs are given: all ways for a few optional ones, the first so many of more."""
    inputs = op.signature.inputs
    optional = [p.name for p in inputs if p.optional]
    chosen: Iterable[Sequence[str]] = (optional[:count] for count in range(len(optional), -1, -1))
    if len(optional) <= MOST_OPTIONAL:
        chosen = itertools.chain.from_iterable(
            itertools.combinations(optional, count) for count in range(len(optional), -1, -1)
        )
    for names in chosen:
        yield [not p.optional or p.name in names for p in inputs]


def _choices(op: Op) -> Iterator[dict[str, Any]]:
    """The defaults, and each of them with another of the words or, for a factor, with the number that drops it."""
    defaults = op.signature.attributes
    yield dict(defaults)
    for name, value in defaults.items():
        if isinstance(value, float) and value not in (0.0, 1.0):
            yield {**defaults, name: 1.0}
    for requirement in op.requirements.declared:
        for name, words in requirement.choices.items():
            yield from ({**defaults, name: word} for word in words if word != defaults.get(name))


class _Pass:
    """One search over a graph."""

    def __init__(self, graph: Graph, templates: Templates) -> None:
        self.graph, self.templates = graph, templates
        self.normal = Normalizer(graph)
        self.normal.run()
        self.sources: dict[Value, Value] = {}
        for value in graph.values():
            self.sources.setdefault(self.normal.mapping.get(value, value), value)
        known = operators()
        units = (known.add, 0.0), (known.multiply, 1.0)
        self.associative = {op: unit for op, unit in units if isinstance(op, Op)}
        self.present = frozenset(node.op for node in self.normal.graph.nodes if isinstance(node.op, Op))

    def run(self) -> Graph | None:
        """The graph with what was found, None where nothing was."""
        found: dict[Value, Fused] = {}
        taken: set[Node] = set()
        for node in reversed(self.graph.nodes):
            value = node.outputs[0] if node.outputs else None
            if value is None or node in taken or len([v for v in node.outputs if v is not None]) > 1:
                continue
            proposal, region = self._best(value, taken)
            if proposal is not None:
                found[value] = proposal
                taken.update(region)
        if not found:
            return None

        def decide(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
            proposal = found.get(call.node.outputs[0]) if call.node is not None and call.node.outputs else None  # type: ignore[arg-type]
            if proposal is None:
                return None
            inputs = [None if v is None else rewriter.copy(v) for v in proposal.inputs]
            outputs = 1 if proposal.op.signature.counts_outputs else None
            results = Builder.call(rewriter, proposal.op, inputs, proposal.attributes, outputs)
            return results[:1]

        fused = Rewriter(self.graph, decide).run()
        drop_dead_nodes(fused)
        return _without_unread_outputs(fused)

    def _best(self, value: Value, taken: set[Node]) -> tuple[Fused | None, list[Node]]:
        """The call that replaces most of what leads to a value."""
        root = self.normal.mapping.get(value)
        best: tuple[Fused | None, list[Node]] = (None, [])
        if root is None or root.producer is None or not isinstance(root.type, TensorType):
            return best
        for template in self.templates.of(root, self.present):
            for proposal in self._proposals(template, root):
                region = self._region(value, proposal)
                if len(region) > max(1, len(best[1])) and not taken & set(region) and self._is_proven(proposal, root):
                    best = (proposal, region)
                    break
        return best

    def _region(self, value: Value, proposal: Fused) -> list[Node]:
        """The nodes that nobody needs once ``proposal`` gives the value."""
        given = {v for v in proposal.inputs if v is not None}
        inside = needed_nodes(self.graph, [value], given)
        outside = [v for node in self.graph.nodes if node not in set(inside) for v in node.uses]
        kept = set(needed_nodes(self.graph, [*outside, *self.graph.outputs], [*given, value]))
        return [node for node in inside if node not in kept]

    # ----- proposals and proof ----------------------------------------------------------------------------------------

    def _proposals(self, template: Template, root: Value) -> Iterator[Fused]:
        free = frozenset(v for v in template.inputs if v is not None)
        matcher = Matcher(self.associative, loose=True)
        for match in itertools.islice(matcher.match(template.output, root, Match(), free), 4):
            inputs: list[Value | None] = []
            for value in template.inputs:
                held = None if value is None else match.values.get(value)
                source = held if held is None else self.sources.get(held, held if held.is_constant else None)
                if value is not None and source is None:
                    break
                inputs.append(source)
            else:
                for attributes in _assignments(template, match.numbers, root):
                    yield Fused(template.op, attributes, tuple(inputs))

    def _is_proven(self, proposal: Fused, root: Value) -> bool:
        """Whether the body of the proposed call is what the graph computes."""
        normal = [None if v is None else self.normal.mapping.get(v, v) for v in proposal.inputs]
        proof = self.templates.traced(proposal.op, proposal.attributes, [None if v is None else v.type for v in normal])
        if proof is None or proof.output.type != root.type:
            return False
        pairs = {p: v for p, v in zip(proof.inputs, normal, strict=True) if p is not None and v is not None}
        strict = Matcher(self.associative)
        return any(strict.match(proof.output, root, Match(pairs), frozenset(pairs)))


def _assignments(template: Template, numbers: Sequence[Any], root: Value) -> Iterator[dict[str, Any]]:
    """Attributes for which the template may be what was found: what it was traced with, then the numbers there."""
    found = [np.asarray(n) for n in numbers if n is not None]
    floats = list(dict.fromkeys(float(n.reshape(-1)[0]) for n in found if n.dtype.kind == "f" and n.size == 1))
    ints = list(dict.fromkeys(int(i) for n in found if n.dtype.kind in "iu" for i in n.reshape(-1)[:8]))
    kinds = template.op.signature.kinds
    options: dict[str, list[Any]] = {}
    for name, value in template.attributes.items():
        others: list[Any] = ints if kinds.get(name) == "int" else []
        if kinds.get(name) == "float":
            others = [*floats, *(value * ratio for ratio in floats)]
        options[name] = [value, *(other for other in others if other != value)]
    combinations = itertools.product(*options.values())
    for values in itertools.islice(combinations, MOST_ATTRIBUTES):
        yield dict(zip(options, values, strict=True))
