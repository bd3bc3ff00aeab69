"""Trainable initializers, and the reasons why others are not."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tenonnx import default_registry
from tenonnx.extend import Graph, InvalidCall, Node, Op, Registry, TensorType, Value, find_trait
from tenonnx.extend.transforms import in_registry_of_graph

#: Added constants with elements below this are attention masks.
_MASKED = -1e4

#: Origin of a value: constants and integers, fed floats, or computed with weights.
_FIXED, _FED, _WEIGHED = range(3)


@dataclass
class TrainableVariables:
    """The floating-point variables of a graph by their role in training.

    ``parameters`` are trainable; ``frozen`` are parameters excluded from training; ``buffers`` are declared as not
    trainable; ``undeclared`` have no declared role and are not used as weights. ``fixed_rows`` of parameters are not
    trained.
    """

    parameters: list[str] = field(default_factory=list)
    frozen: list[str] = field(default_factory=list)
    buffers: list[str] = field(default_factory=list)
    undeclared: list[str] = field(default_factory=list)
    fixed_rows: dict[str, tuple[int, ...]] = field(default_factory=dict)


@in_registry_of_graph
def trainable_variables(graph: Graph) -> TrainableVariables:
    """Classify the variables of ``graph``, whose types are known.

    Declared roles (``Value.role``) have priority. Without one, constants with axes are trainable if ops use them as
    weights, according to the traits ``weights`` and ``adjusts``.
    """
    result = TrainableVariables()
    floats = [v for v in graph.variables if isinstance(v.type, TensorType) and v.type.dtype.is_float]
    weights = _Weights(graph).names if any(not _has_role(value) for value in floats) else set()
    for value in floats:
        if value.role is None or not _has_role(value):
            is_weight = value.name in weights and value.tensor.shape and not _is_computed_number(value)
            (result.parameters if is_weight else result.undeclared).append(value.name)
            continue
        kinds = {"parameter": result.parameters, "frozen": result.frozen}
        kinds.get(value.role.kind, result.buffers).append(value.name)
        if value.role.fixed_rows:
            result.fixed_rows[value.name] = value.role.fixed_rows
    return result


def check_made_alike(source: Graph, target: Graph, names: Iterable[str]) -> None:
    """Raise ``InvalidCall`` for a variable that was computed from different variables in the two graphs."""
    made_of = [{v.name: v.role.made_of for v in graph.variables if v.role is not None} for graph in (source, target)]
    for name in names:
        one, other = (each.get(name, ()) for each in made_of)
        if one != other:
            raise InvalidCall(
                f'"{name}" is made of different parameters in the two graphs',
                given=f"{', '.join(one) or name}, and {', '.join(other) or name}",
                do="simplify both alike: simplify=False (--no-fold) keeps each parameter of a module",
            )


def _is_computed_number(value: Value) -> bool:
    """Whether a scalar was computed by PyTorch's dynamo exporter, such as the scale of attention; its name is val_N."""
    return set(value.tensor.shape or ()) == {1} and re.fullmatch(r"val_[0-9]+", value.name) is not None


def _has_role(value: Value) -> bool:
    return value.role is not None and bool(value.role.kind)


class _Weights:
    """``names`` are the names of variables that ops use as weights, directly or after operations on variables only."""

    def __init__(self, graph: Graph) -> None:
        registry = graph.root.registry
        self.registry: Registry = default_registry() if registry is None else registry
        self.declared: dict[str, bool] = {}
        self.names: set[str] = set()
        self.sources: dict[Value, frozenset[str]] = {
            v: frozenset([v.name]) for v in graph.variables if isinstance(v.type, TensorType) and v.type.dtype.is_float
        }
        self.levels: dict[Value, int] = {v: _FED for v in graph.inputs if _is_float(v)}
        self.adjusting: set[str] = set()
        self.walk(graph)
        self.names = self.names or self.adjusting  # a model of only sums and products

    def walk(self, graph: Graph) -> None:
        for node in graph.nodes:
            for subgraph in node.subgraphs:
                self.enter(node, subgraph)
            self.visit(node)

    def enter(self, node: Node, subgraph: Graph) -> None:
        """Analyze a subgraph with facts about its captures; its inputs may depend on weights."""
        for stand_in, value in zip(subgraph.captures, node.captures, strict=False):
            self.levels[stand_in] = self.levels.get(value, _FIXED)
            if value in self.sources:
                self.sources[stand_in] = self.sources[value]
        self.levels.update((value, _WEIGHED) for value in subgraph.all_inputs if _is_float(value))
        self.walk(subgraph)

    def visit(self, node: Node) -> None:
        used = [operand for place, operand in self.operands(node) if self.is_weight(node, place, operand)]
        for operand in used:
            self.names |= self.sources[operand]
        constant = all(v.data is not None or v in self.sources for v in node.uses)
        passing = node.uses[:1] if any(map(_holds_quantized, (*node.uses, *node.outputs))) else node.uses
        names: frozenset[str] = frozenset().union(*(self.sources.get(v, ()) for v in passing))
        level = _WEIGHED if used else max((self.levels.get(v, _FIXED) for v in node.uses), default=_FIXED)
        for output in node.outputs:
            if output is not None and constant:
                self.sources[output] = names
            elif output is not None and _is_float(output):
                self.levels[output] = level

    def operands(self, node: Node) -> Iterator[tuple[int, Value]]:
        """The inputs of a node that depend only on variables."""
        return ((place, v) for place, v in enumerate(node.inputs) if v is not None and v in self.sources)

    def is_weight(self, node: Node, place: int, operand: Value) -> bool:
        op = node.op
        if not isinstance(op, Op) or not self.declares(op.domain):
            return True  # the op's inputs are not declared
        if not op.signature.inputs:
            return False
        name = op.signature.input_at(place).name
        weights, adjusts = (_names(find_trait(op, trait)) for trait in ("weights", "adjusts"))
        others = [v for k, v in enumerate(node.inputs) if k != place and v is not None]
        if name in weights:
            alike = [v for k, v in enumerate(node.inputs) if v in others and op.signature.input_at(k).name in weights]
            is_distinct = len(alike) < len(others) or not others
            return is_distinct or any(self.levels.get(v, _FIXED) > _FIXED for v in alike)
        if name in adjusts and not _is_mask(operand):
            level = max((self.levels.get(v, _FIXED) for v in others), default=_FIXED)
            self.adjusting |= self.sources[operand] if level == _FED else frozenset()
            return level == _WEIGHED
        return False

    def declares(self, domain: str) -> bool:
        """Whether a package declares weights for ops of a domain."""
        if domain not in self.declared:
            self.declared[domain] = any(find_trait(op, "weights") for op in self.registry.ops(domain))
        return self.declared[domain]


def _names(fact: object) -> list[str]:
    return fact.split() if isinstance(fact, str) else []


def _is_float(value: Value) -> bool:
    return not isinstance(value.type, TensorType) or value.type.dtype.is_float


def _holds_quantized(value: Value | None) -> bool:
    """Whether a value has a quantized type, which is used with scale and zero point."""
    kind = None if value is None else value.type
    return isinstance(kind, TensorType) and kind.dtype.is_integer and kind.dtype.bits <= 16


def _is_mask(value: Value) -> bool:
    """Whether constant contents are an attention mask, or a single number."""
    if value.data is None:
        return False
    sizes = value.tensor.shape or ()
    if math.prod(dim for dim in sizes if isinstance(dim, int)) < 2:
        return not sizes
    return bool(value.tensor.shape and len(sizes) > 1 and value.data.array().min() <= _MASKED)
