"""Cost model: multiply-adds, bytes and live memory of a graph, by node."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tenonnx.extend import (
    Graph,
    Node,
    Op,
    TenonnxError,
    TensorType,
    Type,
    UnknownType,
    Value,
    copy_graph,
    counted,
    find_rule,
    html_of,
    known_op,
)
from tenonnx.extend.symbolic import symbols_of
from tenonnx.extend.transforms import (
    INTERNAL_DOMAIN,
    Call,
    bind,
    decompose,
    foreseeing,
    in_registry_of_graph,
    infer,
    retarget_to,
    substitute_type,
    target_for,
)


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of one node. ``weights`` are bytes of weights that no earlier node reads, ``written`` bytes of outputs,
    ``live`` bytes of activations that are live while it runs. None if sizes are unknown."""

    node: str
    op: str
    multiplications: int | None
    weights: int
    written: int | None
    live: int | None


@dataclass(slots=True)
class Costs:
    """Costs of all nodes, and the sizes assumed for symbols."""

    nodes: list[Cost] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)

    @property
    def multiplications(self) -> int:
        return sum(cost.multiplications or 0 for cost in self.nodes)

    @property
    def weights(self) -> int:
        return sum(cost.weights for cost in self.nodes)

    @property
    def peak(self) -> int:
        return max((cost.live or 0 for cost in self.nodes), default=0)

    @property
    def unknown(self) -> list[str]:
        """The nodes whose number of multiplications is unknown."""
        return [cost.node for cost in self.nodes if cost.multiplications is None]

    def to_dict(self) -> dict[str, Any]:
        """The costs as data for JSON: totals, assumed sizes, and each node."""
        return {
            "multiplications": self.multiplications,
            "weights": self.weights,
            "peak": self.peak,
            "sizes": self.sizes,
            "nodes": [asdict(cost) for cost in self.nodes],
        }

    def plot(self, axes: Any = None, *, nodes: int = 20) -> Any:
        """Plot the multiplications of the ``nodes`` most expensive nodes as bars; returns the axes of matplotlib."""
        from tenonnx.tools import plot_axes

        axes = plot_axes(axes)
        most = sorted(self.nodes, key=lambda cost: -(cost.multiplications or 0))[:nodes]
        labels = [f"{cost.node} ({cost.op})" for cost in most]
        axes.barh(range(len(most)), [(cost.multiplications or 0) / 1e6 for cost in most])
        axes.set_yticks(range(len(most)), labels)
        axes.invert_yaxis()
        axes.set_xlabel("multiplications (millions)")
        axes.set_ylabel("node")
        axes.set_title(f"{self.multiplications:,} multiplications in all")
        return axes

    def _repr_html_(self) -> str | None:
        return html_of(self)

    def __str__(self) -> str:
        more = f" and those of {len(self.unknown)} unknown" if self.unknown else ""
        return (
            f"{counted(len(self.nodes), 'node')}, {self.multiplications:,} multiplications{more}, "
            f"{self.weights:,} bytes of weights, at most {self.peak:,} bytes live"
        )

    def __repr__(self) -> str:
        return f"Costs({self})"


@in_registry_of_graph
def costs(graph: Graph, input_shapes: Mapping[str, Sequence[int | str | None]] | None = None) -> Costs:
    """The cost of each node of ``graph``; symbols that ``input_shapes`` do not fix are 1.

    The rule ``cost`` counts the multiplications of an op; without the rule, those of its body are counted, and 0 for a
    primitive. A subgraph counts once. Internal gradient ops count as their lowerings at the graph's versions. The graph
    is not modified.
    """
    sized = copy_graph(graph)
    infer(sized, input_shapes, strict=False)
    if any(node.domain == INTERNAL_DOMAIN for node in sized.walk()):
        sized = retarget_to(sized, target_for(sized), refuse=False).graph
        infer(sized, input_shapes, strict=False)
    kinds = [value.type for value in sized.all_inputs if isinstance(value.type, TensorType)]
    result = Costs(sizes={s: 1 for kind in kinds for dim in kind.shape or () for s in sorted(symbols_of(dim))})
    for value in (value for nested in sized.nested() for value in nested.values()):
        value._replace_fields(type=substitute_type(value.type, result.sizes))
    last = {value: place for place, node in enumerate(sized.nodes) for value in node.uses}
    last |= dict.fromkeys(sized.outputs, len(sized.nodes))
    live = {value: _bytes(value.type) for value in sized.inputs}
    seen: set[Value] = set()
    for place, node in enumerate(sized.nodes):
        outputs = [value for value in node.outputs if value is not None]
        written = [_bytes(value.type) for value in outputs]
        live |= dict(zip(outputs, written, strict=True))
        constants = {value for value in node.uses if value.is_constant} - seen
        seen |= constants
        result.nodes.append(
            Cost(
                node.label,
                f"{node.domain}::{node.op_type}".removeprefix("ai.onnx::"),
                multiplications(node),
                sum(value.data.nbytes for value in constants if value.data is not None),
                _sum(written),
                _sum(live.values()),
            )
        )
        live = {value: size for value, size in live.items() if last.get(value, -1) > place}
    return result


def _sum(sizes: Any) -> int | None:
    known = list(sizes)
    return None if None in known else sum(known)


def _bytes(kind: Type | None) -> int | None:
    """The size of a tensor in bytes; None if a dim is unknown."""
    if not isinstance(kind, TensorType) or kind.shape is None:
        return None
    elements = math.prod(dim for dim in kind.shape if isinstance(dim, int))
    return -(-elements * kind.dtype.bits // 8) if all(isinstance(dim, int) for dim in kind.shape) else None


def multiplications(node: Node) -> int | None:
    """Number of multiplications of a node, None if unknown."""
    if not isinstance(node.op, Op):
        return None
    if node.subgraphs:
        return _sum(multiplications(each) for graph in node.subgraphs for each in graph.walk())
    return _counted(node.op, *bind(node), len(node.outputs))


def _counted(op: Op, inputs: Sequence[Value | None], attributes: Mapping[str, Any], outputs: int) -> int | None:
    rule = find_rule(op, "cost")
    try:
        if rule is not None:
            return _by_rule(op, rule, inputs, attributes)
        if op.primitive:
            return 0
        body = Graph(op.name, opsets={op.domain: op.version})
        given = [None if v is None else _given(body, f"x{place}", v) for place, v in enumerate(inputs)]
        with body.building():
            results = op(*given, **attributes, _outputs=outputs)
        body.outputs = [v for v in (results if isinstance(results, tuple) else (results,)) if v is not None]
        total = 0
        for node in decompose(body, _is_counted).walk():
            found = find_rule(known_op(node), "cost")
            if found is not None:
                total += _by_rule(known_op(node), found, *bind(node))
        return total
    except TenonnxError:  # a size that the body leaves unknown, or a call with wrong types
        return None


def _by_rule(op: Op, rule: Callable[..., Any], inputs: Sequence[Value | None], attributes: Mapping[str, Any]) -> int:
    with foreseeing(op.title, inputs, attributes):
        return int(rule(*inputs, **attributes))


def _given(body: Graph, name: str, value: Value) -> Value:
    if value.data is not None:
        return body.variable(name, value.data)
    if value.type is None:
        raise UnknownType(f'type of "{value.name}" is unknown: cannot count operations')
    return body.input(name, value.type)


def _is_counted(call: Call) -> bool:
    return call.op.primitive or find_rule(call.op, "cost") is not None
