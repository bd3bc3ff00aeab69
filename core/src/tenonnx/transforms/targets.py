"""Where a graph can go, and what became of its nodes on the way."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tenonnx.errors import InvalidCall, NotRepresentable
from tenonnx.graph.dtypes import DType
from tenonnx.graph.graph import Graph
from tenonnx.graph.types import OptionalType, SequenceType, SparseTensorType, TensorType, Type
from tenonnx.op.op import Op
from tenonnx.registry.registry import canonical_domain, default_registry

#: The versions of ai.onnx whose ops first knew an element type; the others were there from the start.
FIRST_OPSET: Mapping[DType, int] = {
    DType.bfloat16: 13,
    DType.float8e4m3fn: 19,
    DType.float8e4m3fnuz: 19,
    DType.float8e5m2: 19,
    DType.float8e5m2fnuz: 19,
    DType.uint4: 21,
    DType.int4: 21,
    DType.float4e2m1: 23,
    DType.float8e8m0: 24,
    DType.uint2: 25,
    DType.int2: 25,
}

#: The domain of ops that are never written to a file.
INTERNAL_DOMAIN = "tenonnx"

#: How many refused nodes a message names; the report has them all.
LISTED_REFUSALS = 50

#: Domains whose versions the onnx package knows for certain.
_SPECIFIED = ("ai.onnx", "ai.onnx.ml")


@dataclass(frozen=True, slots=True)
class Target:
    """Where a graph is to go: a version for each domain that it may use.

    ``accepts``, if given, further says whether the target has a kernel for an op at its version with these dtypes.
    """

    opsets: Mapping[str, int]
    accepts: Any = None

    def version(self, domain: str) -> int | None:
        return self.opsets.get(domain)


@dataclass(slots=True)
class Change:
    """What became of one node: ``action`` is kept, respelled, folded, lowered, expanded, cast, inlined or refused.

    An input or output of the graph that the target cannot have is refused likewise; ``op`` says what it is.
    """

    node: str
    op: str
    action: str
    reason: str = ""
    into: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"node": self.node, "op": self.op, "action": self.action, "reason": self.reason, "into": self.into}

    def __str__(self) -> str:
        into = ", ".join(name if count == 1 else f"{name} x{count}" for name, count in self.into.items())
        text = f"{self.node} ({self.op}): {self.action}" + (f" into {into}" if into else "")
        return f"{text}; {self.reason}" if self.reason else text


@dataclass(slots=True)
class Retargeted:
    """A graph that is legal in its target, and what became of each node. ``refused`` is empty unless asked for."""

    graph: Graph
    changes: list[Change]

    @property
    def refused(self) -> list[Change]:
        return [change for change in self.changes if change.action == "refused"]


def target_for(
    graph: Graph, opset: int | Mapping[str, int] | None = None, domains: Collection[str] | None = None
) -> Target:
    """The target of an opset (an int for ``ai.onnx``, or versions by domain) and a whitelist of domains.

    Domains that are not named keep the version of the graph. Raises ``InvalidCall`` for an opset that there is not.
    """
    opsets = dict(graph.opsets)
    for node in graph.walk():
        if (
            isinstance(node.op, Op)
            and node.domain not in opsets
            and (node.domain, node.op_type, "") not in graph.functions
        ):
            opsets[node.domain] = max(opsets.get(node.domain, 0), node.op.version)
    opsets.setdefault("ai.onnx", max((n.op.version for n in graph.walk() if isinstance(n.op, Op)), default=1))
    wanted = {"ai.onnx": opset} if isinstance(opset, int) else dict(opset or {})
    _check_domains([*wanted, *(domains or ())], graph, opsets)
    for domain, version in wanted.items():
        _check_version(canonical_domain(domain), version, graph)
        opsets[canonical_domain(domain)] = version
    if domains is not None:
        allowed = {canonical_domain(domain) for domain in domains}
        opsets = {domain: version for domain, version in opsets.items() if domain in allowed}
    return Target(opsets)


def _check_domains(names: Sequence[str], graph: Graph, opsets: Mapping[str, int]) -> None:
    """Raise ``InvalidCall`` for a domain that neither the graph nor any installed package has: a slip of the pen."""
    known = {"ai.onnx", *opsets, *(graph.registry or default_registry()).domains()} - {INTERNAL_DOMAIN}
    unknown = [name for name in names if canonical_domain(name) not in known]
    if unknown:
        raise InvalidCall(
            f'no domain "{unknown[0]}" is in the graph or in an installed package', available=", ".join(sorted(known))
        )


def _check_version(domain: str, version: int, graph: Graph) -> None:
    """Raise ``InvalidCall`` for a version that the specification does not have, unless the graph itself does."""
    import onnx

    known = [held for owner, held in onnx.helper.OP_SET_ID_VERSION_MAP if owner == domain and domain in _SPECIFIED]
    if known and not 1 <= version <= max(known) and version != graph.opsets.get(domain):
        raise InvalidCall(
            "the target must be an opset that there is",
            given=f"{domain} {version}",
            available=f"{domain} 1 to {max(known)}",
        )


def refusal(refused: Sequence[Change], target: Target) -> NotRepresentable:
    """The error that names every refused node."""
    opsets = ", ".join(f"{domain} {version}" for domain, version in target.opsets.items())
    lines = [f"{_subject(c)}: {c.reason}" for c in refused[:LISTED_REFUSALS]]
    if len(refused) > LISTED_REFUSALS:
        lines.append(f"and {len(refused) - LISTED_REFUSALS} more")
    of_nodes = all("::" in change.op for change in refused)
    singular, plural = ("node has", "nodes have") if of_nodes else ("value has", "nodes and values have")
    count = f"{len(refused)} {plural if len(refused) > 1 else singular}"
    return NotRepresentable(f"{count} no form in the target ({opsets})", given="\n".join(lines))


def _subject(change: Change) -> str:
    return f'node "{change.node}" ({change.op})' if "::" in change.op else f'{change.op} "{change.node}"'


def interface_refusals(graph: Graph, target: Target) -> list[Change]:
    """The inputs and outputs of a graph whose element types did not exist yet, though no node may touch them."""
    version = target.version("ai.onnx")
    if version is None or version >= graph.opsets.get("ai.onnx", 0):
        return []
    found = []
    for what, values in (("graph input", graph.formals), ("graph output", graph.outputs)):
        for value in values:
            dtype = _element_type(value.type)
            if dtype is not None and version < FIRST_OPSET.get(dtype, 1):
                reason = f"{dtype} does not exist at version {version} of ai.onnx, but from {FIRST_OPSET[dtype]} on"
                found.append(Change(value.name, what, "refused", reason))
    return found


def _element_type(kind: Type | None) -> DType | None:
    if isinstance(kind, TensorType | SparseTensorType):
        return kind.dtype
    return _element_type(kind.element) if isinstance(kind, SequenceType | OptionalType) else None
