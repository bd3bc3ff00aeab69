"""Where a graph can go, and what became of its nodes on the way."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tenonnx.errors import InvalidCall, NotRepresentable
from tenonnx.graph.dtypes import DType
from tenonnx.graph.graph import Graph
from tenonnx.graph.types import OptionalType, SequenceType, SparseTensorType, TensorType, Type
from tenonnx.graph.values import Node, Operator
from tenonnx.op.op import Op
from tenonnx.registry.registry import canonical_domain, default_registry
from tenonnx.transforms.profiles import Profile, find_profile

#: The domain of ops that are never written to a file.
INTERNAL_DOMAIN = "tenonnx"

#: How many refused nodes a message names; the report has them all.
LISTED_REFUSALS = 50

#: Domains whose versions the onnx package knows for certain.
_SPECIFIED = ("ai.onnx", "ai.onnx.ml")


@dataclass(frozen=True, slots=True)
class Target:
    """Where a graph is to go: a version for each domain that it may use.

    ``accepts``, if given, further says whether the target has a kernel for an op at its version with these dtypes, and
    ``profile`` what the runtime that the target is named after takes.
    """

    opsets: Mapping[str, int]
    accepts: Any = None
    profile: Profile | None = None

    def version(self, domain: str) -> int | None:
        return self.opsets.get(domain)

    @property
    def chooses(self) -> bool:
        """Whether the target has but some of the ops of its domains."""
        return self.accepts is not None or (self.profile is not None and self.profile.ops is not None)

    def problem(self, op: Operator, version: int, inputs: Sequence[Type | None], outputs: Sequence[Type | None]) -> str:
        """Why the target does not take an op on these types, or nothing."""
        found = "" if self.profile is None else self.profile.problem(op.domain, op.name, inputs, outputs)
        if not found and self.accepts is not None and not self.accepts(op, version, inputs, outputs):
            given = ", ".join("-" if k is None else str(getattr(k, "dtype", k)) for k in inputs)
            found = f"the target has no kernel of {op.domain}::{op.name} at version {version} for ({given})"
        return found

    def __str__(self) -> str:
        opsets = ", ".join(f"{domain} {version}" for domain, version in self.opsets.items()) or "no domain"
        return opsets if self.profile is None else f"{self.profile.name}: {opsets}"


@dataclass(slots=True)
class Change:
    """What became of one node: ``action`` is kept, respelled, folded, lowered, expanded, cast, inlined or refused.

    An input or output of the graph that the target cannot have is refused likewise, and an input whose default is
    needed is closed; ``op`` says what it is. ``node`` is
    the way to a node: its name, after those of the nodes and attributes that hold its subgraph. ``do`` says what would
    help a refused one, ``reason`` why it has no form itself and what the last op is that would have to stand for it,
    ``reasons`` all that was found on the way.
    """

    node: str
    op: str
    action: str
    reason: str = ""
    into: dict[str, int] = field(default_factory=dict)
    do: str = ""
    reasons: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        names = ("node", "op", "action", "reason", "into", "do", "reasons")
        return {name: getattr(self, name) for name in names[: None if self.reasons else -1]}

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


def label_of(node: Node) -> str:
    return node.name or next((v.name for v in node.outputs if v is not None), "")


def way_to(graph: Graph, node: Node) -> str:
    """The node and the attribute that hold a subgraph, to stand before the names of its nodes."""
    held = (name for name, a in node.attributes.items() if a is graph or (isinstance(a, list) and graph in a))
    return f"{label_of(node)}/{next(held, graph.name)}/"


def all_kept(graph: Graph, path: str = "") -> Iterator[Change]:
    """The report on a graph to which nothing happens."""
    for node in graph.nodes:
        for inner in node.subgraphs:
            yield from all_kept(inner, path + way_to(inner, node))
        yield Change(path + label_of(node), f"{node.domain}::{node.op_type}@{node.version}", "kept")


def target_for(
    graph: Graph,
    opset: int | Mapping[str, int] | None = None,
    domains: Collection[str] | None = None,
    name: str | None = None,
) -> Target:
    """The target of an opset (an int for ``ai.onnx``, or versions by domain), a whitelist of domains and a name.

    Domains that are not named keep the version of the graph, or take the nearest that the named target has; a graph
    without ai.onnx may use its newest version. Raises ``InvalidCall`` for an opset or a name that there is not.
    """
    profile = None if name is None else find_profile(name)
    opsets = dict(graph.opsets)
    for node in graph.walk():
        if (
            isinstance(node.op, Op)
            and node.domain not in opsets
            and (node.domain, node.op_type, "") not in graph.functions
        ):
            opsets[node.domain] = max(opsets.get(node.domain, 0), node.op.version)
    opsets.setdefault("ai.onnx", max(_published("ai.onnx")))
    wanted = dict(opset or {}) if isinstance(opset, Mapping | None) else {"ai.onnx": opset}
    domains = [domains] if isinstance(domains, str) else domains
    _check_domains([*wanted, *(domains or ())], graph, opsets)
    if profile is not None:
        opsets = {domain: profile.nearest(domain, held) for domain, held in opsets.items() if domain in profile.opsets}
    for domain, version in wanted.items():
        _check_version(canonical_domain(domain), version, graph, profile)
        opsets[canonical_domain(domain)] = version
    if domains is not None:
        allowed = {canonical_domain(domain) for domain in domains}
        opsets = {domain: version for domain, version in opsets.items() if domain in allowed}
    return Target(opsets, profile=profile)


def _check_domains(names: Sequence[str], graph: Graph, opsets: Mapping[str, int]) -> None:
    """Raise ``InvalidCall`` for a domain that neither the graph nor any installed package has: a slip of the pen."""
    known = {"ai.onnx", *opsets, *(graph.registry or default_registry()).domains()} - {INTERNAL_DOMAIN}
    unknown = [name for name in names if canonical_domain(name) not in known]
    if unknown:
        raise InvalidCall(
            f'no domain "{unknown[0]}" is in the graph or in an installed package', available=", ".join(sorted(known))
        )


def _published(domain: str) -> Sequence[int]:
    """The versions of a domain that the onnx package knows."""
    import onnx

    return [version for owner, version in onnx.helper.OP_SET_ID_VERSION_MAP if owner == domain]


def _check_version(domain: str, version: int, graph: Graph, profile: Profile | None) -> None:
    """Raise ``InvalidCall`` for a version that the specification does not have, unless the graph itself does."""
    if not isinstance(version, int) or isinstance(version, bool):
        raise InvalidCall(
            "an opset must be a whole number, or a mapping from domains to whole numbers", given=f"{domain} {version!r}"
        )
    if profile is not None and (domain not in profile.opsets or profile.nearest(domain, version) != version):
        raise InvalidCall(
            f"the target {profile.name} must have the opset that is asked for",
            given=f"{domain} {version}",
            available=", ".join(f"{known} {profile.versions(known)}" for known in profile.opsets),
        )
    known = _published(domain) if domain in _SPECIFIED else ()
    if known and not 1 <= version <= max(known) and version != graph.opsets.get(domain):
        raise InvalidCall(
            "the target must be an opset that there is",
            given=f"{domain} {version}",
            available=f"{domain} 1 to {max(known)}",
        )


def refusal(refused: Sequence[Change], target: Target) -> NotRepresentable:
    """The error that names every refused node."""
    lines = [f"{_subject(c)}: {c.reason}" for c in refused[:LISTED_REFUSALS]]
    if len(refused) > LISTED_REFUSALS:
        lines.append(f"and {len(refused) - LISTED_REFUSALS} more")
    of_nodes = all("::" in change.op for change in refused)
    singular, plural = ("node has", "nodes have") if of_nodes else ("value has", "nodes and values have")
    count = f"{len(refused)} {plural if len(refused) > 1 else singular}"
    do = "\n".join(dict.fromkeys(change.do for change in refused if change.do))
    return NotRepresentable(f"{count} no form in the target ({target})", given="\n".join(lines), do=do)


def _subject(change: Change) -> str:
    return f'node "{change.node}" ({change.op})' if "::" in change.op else f'{change.op} "{change.node}"'


def interface_refusals(graph: Graph, target: Target) -> list[Change]:
    """The inputs and outputs of a graph whose element types the target does not have, though no node may touch them."""
    version = target.version("ai.onnx")
    older = version is not None and version < graph.opsets.get("ai.onnx", 0)
    profile = target.profile
    found = []
    for what, values in (("graph input", graph.all_inputs), ("graph output", graph.outputs)):
        for value in values:
            dtype = _element_type(value.type)
            if dtype is None:
                continue
            first, reason, do = dtype.first_opset, "", "give the model an interface of other element types"
            if older and version is not None and version < first:
                reason = f"{dtype} does not exist at version {version} of ai.onnx, but from {first} on"
                do = f"go to version {first} of ai.onnx or newer"
            elif profile is not None and profile.dtypes is not None and dtype not in profile.dtypes:
                reason = f"{profile.name} has no {dtype}"
            if reason:
                found.append(Change(value.name, what, "refused", reason, do=do))
    return found


def _element_type(kind: Type | None) -> DType | None:
    if isinstance(kind, TensorType | SparseTensorType):
        return kind.dtype
    return _element_type(kind.element) if isinstance(kind, SequenceType | OptionalType) else None
