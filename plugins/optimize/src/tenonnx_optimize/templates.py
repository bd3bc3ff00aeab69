"""Bodies of ops in normal form as templates of fusion, and the calls that a match proposes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenonnx import default_registry
from tenonnx.extend import (
    REQUIRED,
    DType,
    Graph,
    Known,
    Op,
    TenonnxError,
    TensorType,
    Type,
    Value,
    find_rule,
    interpreting,
)
from tenonnx.extend.symbolic import symbol
from tenonnx.extend.transforms import (
    Builder,
    attributes_key,
    drop_dead_nodes,
    foreseeing,
    invoke,
    needed_nodes,
    refused_type,
)
from tenonnx_optimize.matching import Match, Matcher
from tenonnx_optimize.normal_form import Normalizer

#: Maximum number of attribute combinations tried for one match.
MOST_ATTRIBUTES = 64

#: Optional inputs beyond this number are not omitted individually.
MOST_OPTIONAL = 3

#: String attributes with more choices are only tried with their default.
MOST_WORDS = 4

#: Maximum number of template sets cached for further graphs.
MOST_REMEMBERED = 8

#: Maximum number of matches of one template at one position.
MOST_MATCHES = 4


@dataclass(frozen=True, slots=True)
class Proposal:
    """A candidate call for a value of a graph in normal form; ``inputs`` are values of that graph.

    With ``after``, a function, the value is computed from the first result by it. ``outputs`` is the number of outputs
    of the call, including unused ones.
    """

    op: Op
    attributes: Mapping[str, Any]
    inputs: tuple[Value | None, ...]
    after: Callable[[Value], Value] | None = None
    outputs: int = 1


@dataclass(frozen=True, slots=True)
class Template:
    """The body of an op in normal form, for certain attributes and types.

    ``inputs`` are None for absent inputs, and for those that the rule ``pattern.absent`` fills with a neutral value.
    """

    op: Op
    attributes: Mapping[str, Any]
    inputs: tuple[Value | None, ...]
    output: Value

    @property
    def last(self) -> Any:
        """The op that produces the body's output."""
        return None if self.output.producer is None else self.output.producer.op

    @property
    def vocabulary(self) -> frozenset[Op]:
        """The ops in the body."""
        graph = self.output.graph
        nodes = [] if graph is None else needed_nodes(graph, [self.output])
        return frozenset(node.op for node in nodes if isinstance(node.op, Op))

    def proposals(self, root: Value, matcher: Matcher, normal: Normalizer) -> Iterator[Proposal]:
        """Candidate calls for ``root``; inputs filled by a rule must be constants."""
        free = frozenset(v for v in self.inputs if v is not None)
        for match in itertools.islice(matcher.match(self.output, root, Match(), free), MOST_MATCHES):
            if all(value is None or value in match.values for value in self.inputs):
                inputs = tuple(None if value is None else match.values[value] for value in self.inputs)
                for attributes in _assignments(self, match.numbers):
                    with interpreting(normal):
                        filled = _filled(self.op, inputs, attributes)
                    if all(v in inputs or v is None or v.data is not None for v in filled):
                        yield Proposal(self.op, attributes, filled)


def can_be_traced(op: Op) -> bool:
    """Whether the op has a body that can be traced without knowing a call."""
    signature = op.signature
    known = not signature.variadic and REQUIRED not in signature.attributes.values() and not signature.reads_graph
    return known and not op.primitive and op.pure


class Templates:
    """Templates of ops for the types in a graph."""

    def __init__(self, graph: Graph, ops: Sequence[Op]) -> None:
        self.choices = [(op, attributes) for op in ops for attributes in _choices(op)]
        self.opsets, self.registry = graph.opsets, graph.registry
        self._traced: dict[Hashable, Template | None] = {}
        self._ending: dict[Any, dict[Any, list[Template]]] = {}
        self._exact: dict[Hashable, Template | None] = {}

    @classmethod
    def of_graph(cls, graph: Graph, ops: Sequence[Op]) -> Templates:
        """Templates of the ops that exist at a graph's opsets, cached across graphs."""
        registry = graph.root.registry or default_registry()
        key = cls, tuple(sorted(graph.opsets.items())), tuple(ops)
        if key not in registry.made and len(registry.made) >= MOST_REMEMBERED:
            registry.made.clear()
        return registry.made.setdefault(key, cls(graph, ops))  # type: ignore[no-any-return]

    def admits(self, op: Op, inputs: Sequence[Value | None], outputs: Sequence[Known | None]) -> bool:
        """Whether an op accepts the element types of a call at the opsets of the graph."""
        version = self.opsets.get(op.domain, op.version)
        table = (self.registry or default_registry()).dtypes(op.domain, op.name, version)
        types = ([None if each is None else each.type for each in values] for values in (inputs, outputs))
        return table is None or refused_type(table, *types) is None

    def prove(self, proposal: Proposal, root: Value, strict: Matcher) -> bool:
        """Whether ``root`` equals the body of a call, for any contents of its inputs.

        Symbolic lengths stand for any length. A failed proof may still succeed with the actual contents.
        """
        kinds = tuple(None if v is None else _with_lengths(v.type, k) for k, v in enumerate(proposal.inputs))
        written = attributes_key(proposal.attributes)
        if written is None:
            return False
        key = proposal.op, written, kinds
        if key not in self._exact:
            self._exact[key] = self.traced(proposal.op, proposal.attributes, kinds)
        template = self._exact[key]
        if template is None or template.output in template.inputs:
            return False
        pairs = zip(template.inputs, proposal.inputs, strict=True)
        given = {ours: theirs for ours, theirs in pairs if ours is not None and theirs is not None}
        return any(strict.match(template.output, root, Match(given), frozenset(given)))

    def of(self, root: Value, present: frozenset[Op]) -> Sequence[Template]:
        """Templates that end like ``root``, of ops whose bodies need only ops that are ``present`` in the graph.

        They have its element type and rank, and unknown lengths; verification uses the actual ones.
        """
        kind = root.type
        if not isinstance(kind, TensorType) or kind.shape is None or not kind.dtype.is_float or root.producer is None:
            return ()
        key = (kind.dtype, len(kind.shape), present)
        if key not in self._ending:
            ending: dict[Any, list[Template]] = {}
            for place in range(len(self.choices)):
                for template in self._of_choice(place, kind.dtype, len(kind.shape), present):
                    ending.setdefault(template.last, []).append(template)
            self._ending[key] = ending
        return self._ending[key].get(root.producer.op, ())

    def _of_choice(self, place: int, dtype: DType, rank: int, present: frozenset[Op]) -> Sequence[Template]:
        """Templates of one op with one set of attributes, for all sets of inputs, if the required ops are present."""
        op = self.choices[place][0]
        kind = TensorType(dtype, tuple(symbol(f"size{axis}") for axis in range(rank)))
        needed, everything = [not p.optional for p in op.signature.inputs], [True] * len(op.signature.inputs)
        least = self._traced_with(place, kind, needed) or self._traced_with(place, kind, everything)
        if least is None or not least.vocabulary <= present:
            return ()
        found = (self._traced_with(place, kind, presence) for presence in _presences(op))
        return [template for template in found if template is not None and template.vocabulary <= present]

    def _traced_with(self, place: int, kind: TensorType, presence: Sequence[bool]) -> Template | None:
        key = (place, kind, tuple(presence))
        if key not in self._traced:
            op, attributes = self.choices[place]
            self._traced[key] = self.traced(op, attributes, _input_types(op, attributes, kind, presence))
        return self._traced[key]

    def traced(self, op: Op, attributes: Mapping[str, Any], kinds: Sequence[Type | None]) -> Template | None:
        """The body for inputs of these types, in normal form; None if the types do not fit."""
        source = Graph("template", opsets=self.opsets)
        source.registry = self.registry
        inputs = [None if kind is None else source.input(f"input{k}", kind) for k, kind in enumerate(kinds)]
        try:
            with foreseeing(op.title, inputs, attributes), interpreting(Builder(source, fold=True)):
                given = _filled(op, inputs, attributes)
                op.requirements.check(given, attributes)
                results = invoke(op, op.function, given, attributes, 1 if op.signature.counts_outputs else None)
            if results[0] is None or results[0].producer is None:
                return None
            source.outputs = [results[0]]
            drop_dead_nodes(source)
            normal = Normalizer(source)
            output = normal.run().outputs[0]
        except TenonnxError:
            return None
        mapped = tuple(None if v is None else normal.copy(v) for v in inputs)
        return None if output.producer is None else Template(op, attributes, mapped, output)


def _filled(op: Op, inputs: Sequence[Value | None], attributes: Mapping[str, Any]) -> tuple[Value | None, ...]:
    """The inputs of a call, with absent required ones filled by the rule ``pattern.absent``."""
    rule = find_rule(op, "pattern.absent")
    absent = any(v is None and not p.optional for v, p in zip(inputs, op.signature.inputs, strict=True))
    return tuple(inputs if rule is None or not absent else rule(*inputs, **attributes))


def _with_lengths(kind: Type | None, place: int) -> Type | None:
    """A type with symbols for unknown lengths."""
    if not isinstance(kind, TensorType) or kind.shape is None or None not in kind.shape:
        return kind
    return kind.with_shape(tuple(symbol(f"size{place}_{k}") if d is None else d for k, d in enumerate(kind.shape)))


def _input_types(
    op: Op, attributes: Mapping[str, Any], kind: TensorType, presence: Sequence[bool]
) -> list[Type | None]:
    """Types for the inputs that are present: that of the result, or the shape required if the first input has it."""
    open_kinds = [kind, *[kind.with_shape(None)] * (len(presence) - 1)]
    values = [Value("", open_kinds[k]) if given else None for k, given in enumerate(presence)]
    try:
        narrowed = op.requirements.narrowed(values, op.requirements.check(values, attributes))
    except TenonnxError:
        return [kind if given else None for given in presence]
    found = (None if v is None else v.tensor for v in narrowed)
    return [None if each is None else kind if each.shape is None else each for each in found]


def _presences(op: Op) -> Iterator[list[bool]]:
    """Sets of present inputs: all subsets of a few optional ones, prefixes of more."""
    inputs, filled = op.signature.inputs, find_rule(op, "pattern.absent") is not None
    optional = [p.name for k, p in enumerate(inputs) if p.optional or (filled and k)]
    chosen: Iterable[Sequence[str]] = (optional[:count] for count in range(len(optional), -1, -1))
    if len(optional) <= MOST_OPTIONAL:
        chosen = itertools.chain.from_iterable(
            itertools.combinations(optional, count) for count in range(len(optional), -1, -1)
        )
    for names in chosen:
        yield [p.name not in optional or p.name in names for p in inputs]


def _choices(op: Op) -> Iterator[dict[str, Any]]:
    """The defaults, and variants with another string choice, or with a scale factor that the default omits.

    Only functions of one value get such a factor: with several inputs it could be absorbed by an input.
    """
    defaults = op.signature.attributes
    yield dict(defaults)
    for name, value in defaults.items():
        if isinstance(value, float) and value and (value != 1.0 or len(op.signature.inputs) == 1):
            yield {**defaults, name: 1.0 if value != 1.0 else 0.5}
    for requirement in op.requirements.declared:
        for name, words in requirement.choices.items():
            if len(words) <= MOST_WORDS:
                yield from ({**defaults, name: word} for word in words if word != defaults.get(name))


def _assignments(template: Template, numbers: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Attributes under which the template may equal the match: the traced ones, then numbers from the graph."""
    found = [np.asarray(n) for n in numbers if n is not None]
    floats = list(dict.fromkeys(float(n.reshape(-1)[0]) for n in found if n.dtype.kind == "f" and n.size == 1))
    ints = list(dict.fromkeys(int(i) for n in found if n.dtype.kind in "iu" for i in n.reshape(-1)[:8]))
    kinds = template.op.signature.attribute_types
    options: dict[str, list[Any]] = {}
    for name, value in template.attributes.items():
        others: list[Any] = ints if kinds.get(name) == "int" else []
        if kinds.get(name) == "float":
            others = [*floats, *(value * ratio for ratio in floats if value is not None)]
        options[name] = [value, *(other for other in others if other != value)]
    combinations = itertools.product(*options.values())
    for values in itertools.islice(combinations, MOST_ATTRIBUTES):
        yield dict(zip(options, values, strict=True))
