"""Report on the conversion of nodes to a target."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tenonnx.errors import NotRepresentable
from tenonnx.graph.dtypes import DType
from tenonnx.graph.graph import Graph, Node
from tenonnx.graph.types import OptionalType, SequenceType, SparseTensorType, TensorType, Type
from tenonnx.transforms.target import Target

#: Maximum number of refused nodes in a message; the report lists all.
LISTED_REFUSALS = 50


@dataclass(slots=True)
class Change:
    """Outcome for one node: ``action`` is kept, adapted, folded, lowered, expanded, cast, inlined or refused; for a
    node that replaces several it is fused.

    Unsupported graph inputs and outputs are refused, too, and an input that became a constant is closed; ``op`` is then
    "graph input" or "graph output". ``node`` is the path of a node: its name, after the names of the enclosing nodes
    and attributes. ``do`` is advice for a refused node, ``reason`` says why the target does not support it and which op
    of its expansion is unsupported, ``reasons`` lists all reasons.
    """

    node: str
    op: str
    action: str
    reason: str = ""
    into: dict[str, int] = field(default_factory=dict)
    do: str = ""
    reasons: Sequence[str] = ()

    @classmethod
    def of(cls, node: Node, label: str, action: str) -> Change:
        """The outcome of ``node``; ``label`` is its path."""
        return cls(label, f"{node.domain}::{node.op_type}@{node.version}", action)

    def count(self, nodes: Sequence[Node]) -> None:
        """Count the nodes that replace this one."""
        for node in nodes:
            self.into[node.op_type] = self.into.get(node.op_type, 0) + 1

    def refuse(self, reasons: Sequence[str], do: str) -> None:
        self.action, self.do, self.reasons = "refused", do, reasons
        self.reason = reasons[0] if len(reasons) == 1 else f"{reasons[0]}; instead of it, {reasons[-1]}"

    def to_dict(self) -> dict[str, Any]:
        return {name: given for name, given in asdict(self).items() if name != "reasons" or given}

    def __str__(self) -> str:
        into = ", ".join(name if count == 1 else f"{name} x{count}" for name, count in self.into.items())
        text = f"{self.node} ({self.op}): {self.action}" + (f" into {into}" if into else "")
        return f"{text}; {self.reason}" if self.reason else text


@dataclass(slots=True)
class Retargeted:
    """A graph that is valid for its target, and the outcomes of all nodes. Refusals raise unless requested."""

    graph: Graph
    changes: list[Change]

    @property
    def refused(self) -> list[Change]:
        return [change for change in self.changes if change.action == "refused"]

    def note_closed(self, inputs: Iterable[str]) -> None:
        """Report inputs that lost their default, because a node can only be expressed with it."""
        reason = "a node can be expressed in the target only for the default value, so it can no longer be fed"
        self.changes += [Change(name, "graph input", "closed", reason) for name in inputs]


def all_kept(graph: Graph) -> Iterator[Change]:
    """The report for an unchanged graph."""
    return (Change.of(node, label, "kept") for label, node in labeled(graph))


def labeled(graph: Graph, path: str = "") -> Iterator[tuple[str, Node]]:
    """All nodes with their paths, those of subgraphs first."""
    for node in graph.nodes:
        for name, attribute in node.attributes.items():
            for inner in attribute if isinstance(attribute, list) else [attribute]:
                if isinstance(inner, Graph):
                    yield from labeled(inner, f"{path}{node.label}/{name}/")
        yield path + node.label, node


def refusal(refused: Sequence[Change], target: Target) -> NotRepresentable:
    """The error naming all refused nodes."""
    lines = [f"{_subject(c)}: {c.reason}" for c in refused[:LISTED_REFUSALS]]
    if len(refused) > LISTED_REFUSALS:
        lines.append(f"and {len(refused) - LISTED_REFUSALS} more")
    of_nodes = all("::" in change.op for change in refused)
    singular, plural = ("node", "nodes") if of_nodes else ("value", "nodes and values")
    count = f"{len(refused)} {plural if len(refused) > 1 else singular}"
    do = "\n".join(dict.fromkeys(change.do for change in refused if change.do))
    return NotRepresentable(f"{count} cannot be expressed in the target ({target})", given="\n".join(lines), do=do)


def _subject(change: Change) -> str:
    return f'node "{change.node}" ({change.op})' if "::" in change.op else f'{change.op} "{change.node}"'


def interface_refusals(graph: Graph, target: Target) -> list[Change]:
    """Refusals of graph inputs and outputs whose element types the target lacks, used or not."""
    version = target.version("ai.onnx")
    older = version is not None and version < graph.opsets.get("ai.onnx", 0)
    runtime = target.runtime
    result = []
    for what, values in (("graph input", graph.all_inputs), ("graph output", graph.outputs)):
        for value in values:
            dtype = _element_type(value.type)
            if dtype is None:
                continue
            first, reason, do = dtype.first_opset, "", "give the model an interface of other element types"
            if older and version is not None and version < first:
                reason = f"{dtype} does not exist at version {version} of ai.onnx, but from {first} on"
                do = f"go to version {first} of ai.onnx or newer"
            elif runtime is not None:
                reason, do = runtime.interface_problem(what, value)
            if reason:
                result.append(Change(value.name, what, "refused", reason, do=do))
    return result


def _element_type(kind: Type | None) -> DType | None:
    if isinstance(kind, TensorType | SparseTensorType):
        return kind.dtype
    return _element_type(kind.element) if isinstance(kind, SequenceType | OptionalType) else None
