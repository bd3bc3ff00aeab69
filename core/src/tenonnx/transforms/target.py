"""Conversion targets: versions of domains, and the limits of a runtime."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tenonnx.errors import InvalidCall, did_you_mean, listing
from tenonnx.graph.containers import Operator
from tenonnx.graph.graph import Graph, Value
from tenonnx.graph.types import TensorType, Type
from tenonnx.op.op import Op
from tenonnx.registry.extensions import extension
from tenonnx.registry.registry import canonical_domain, default_registry
from tenonnx.transforms.rewrite import body_nodes
from tenonnx.transforms.runtimes import Runtime

#: The domain of ops that are never written to a file.
INTERNAL_DOMAIN = "tenonnx"

#: Domains whose versions are defined by the onnx package.
_SPECIFIED = ("ai.onnx", "ai.onnx.ml")


@dataclass(frozen=True, slots=True)
class Target:
    """Destination of a conversion: a version for each domain that may be used.

    ``accepts``, if given, tells whether the target has a kernel for an op at its version with these dtypes; ``runtime``
    has the limits of a named runtime. ``also`` names supported ops that no specification has.
    """

    opsets: Mapping[str, int]
    accepts: Any = None
    runtime: Runtime | None = None
    also: frozenset[str] = frozenset()

    def version(self, domain: str) -> int | None:
        return self.opsets.get(domain)

    def specifies(self, op: Op) -> bool:
        """Whether the specification has the op, or the target supports it nevertheless."""
        version = self.version(op.domain)
        if self.chooses or (version is not None and op.is_specified_at(version)):
            return True
        beyond = self.also if self.runtime is None else self.also | self.runtime.unspecified
        return not beyond.isdisjoint((op.name, f"{op.domain}::{op.name}"))

    @property
    def chooses(self) -> bool:
        """Whether the target supports only some ops of its domains."""
        return self.accepts is not None or (self.runtime is not None and self.runtime.ops is not None)

    def problem(
        self,
        op: Operator,
        version: int,
        inputs: Sequence[Value | None],
        outputs: Sequence[Type | None],
        attributes: Mapping[str, Any],
    ) -> str:
        """Reason why the target does not support an op with these values, or an empty string."""
        runtime = self.runtime
        result = "" if runtime is None else runtime.problem(op, version, inputs, outputs, attributes)
        kinds = [None if v is None else v.type for v in inputs]
        if not result and self.accepts is not None and not self.accepts(op, version, kinds, outputs):
            given = ", ".join("-" if k is None else str(getattr(k, "dtype", k)) for k in kinds)
            result = f"the target has no kernel of {op.domain}::{op.name} at version {version} for ({given})"
        return result

    def __str__(self) -> str:
        opsets = ", ".join(f"{domain} {version}" for domain, version in self.opsets.items()) or "no domain"
        return opsets if self.runtime is None else f"{self.runtime.name}: {opsets}"


def target_for(
    graph: Graph,
    opset_version: int | Mapping[str, int] | None = None,
    domains: Collection[str] | None = None,
    name: str | Runtime | None = None,
) -> Target:
    """The target for ``opset_version`` (of ``ai.onnx``, or by domain), a whitelist of domains, and a runtime.

    Other domains keep the version of the graph, or get the nearest that the runtime supports; a graph without ai.onnx
    may use its newest version. Raises ``InvalidCall`` for an unknown opset or runtime.
    """
    runtime = extension("tools.find_runtime")(name) if isinstance(name, str) else name
    opsets = {**graph.opsets, **undeclared_opsets(graph)}
    if "ai.onnx" in opsets and "ai.onnx" not in graph.opsets:
        opsets["ai.onnx"] = _version_by_default(graph, opsets["ai.onnx"])
    if "ai.onnx" not in opsets:
        opsets["ai.onnx"] = max(_published("ai.onnx"))
    wanted = dict(opset_version or {}) if isinstance(opset_version, Mapping | None) else {"ai.onnx": opset_version}
    if isinstance(domains, Mapping):
        raise InvalidCall(
            "domains are not a list of names", given=repr(domains)[:200], do="give their versions as opset_version"
        )
    domains = [domains] if isinstance(domains, str) else domains
    _check_domains([*wanted, *(domains or ())], graph, opsets)
    if runtime is not None:
        ops = {(node.domain, node.op_type) for node in graph.walk()}
        known = [(domain, versions) for domain, versions in opsets.items() if domain in runtime.opsets]
        opsets = {domain: runtime.nearest(domain, versions, ops) for domain, versions in known}
    for domain, version in wanted.items():
        _check_version(canonical_domain(domain), version, graph, runtime)
        opsets[canonical_domain(domain)] = version
    if domains is not None:
        allowed = {canonical_domain(domain) for domain in domains}
        opsets = {domain: version for domain, version in opsets.items() if domain in allowed}
    return Target(opsets, runtime=runtime)


def undeclared_opsets(graph: Graph) -> dict[str, int]:
    """Domains of installed ops that a graph uses without importing them, at the newest version."""
    result: dict[str, int] = {}
    local = set(graph.functions.values())
    for node in graph.walk():
        if node.domain not in graph.opsets and isinstance(node.op, Op) and node.op not in local:
            result[node.domain] = max(result.get(node.domain, 0), node.op.version)
    return result


#: Default opset version of a graph built by hand, and the newest IR version that its runtimes must support.
OPSET_BY_DEFAULT, _IR_BY_DEFAULT = 17, 8


def _version_by_default(graph: Graph, newest: int) -> int:
    """The version for a graph without one: ``OPSET_BY_DEFAULT``, or what its ops and element types need."""
    kinds = [value.type for nested in graph.nested() for value in nested.values()]
    needs = [kind.dtype.first_ir_version for kind in kinds if isinstance(kind, TensorType)]
    since = [node.op.since for node in graph.walk() if isinstance(node.op, Op) and node.domain == "ai.onnx"]
    fits = max(since, default=1) <= OPSET_BY_DEFAULT and max(needs, default=1) <= _IR_BY_DEFAULT
    return OPSET_BY_DEFAULT if fits else max(OPSET_BY_DEFAULT, newest)


def _check_domains(names: Sequence[str], graph: Graph, opsets: Mapping[str, int]) -> None:
    """Raise ``InvalidCall`` for a domain that neither the graph nor an installed package has, probably a typo."""
    known = {"ai.onnx", *opsets, *(graph.registry or default_registry()).domains()} - {INTERNAL_DOMAIN}
    unknown = [name for name in names if canonical_domain(name) not in known]
    if unknown:
        raise InvalidCall(
            f'no domain "{unknown[0]}" is used by the graph or defined by an installed package',
            available=listing(sorted(known)),
            do=did_you_mean(unknown[0], known),
        )


def _published(domain: str) -> Sequence[int]:
    """The versions of a domain known to the onnx package."""
    import onnx

    return [version for owner, version in onnx.helper.OP_SET_ID_VERSION_MAP if owner == domain]


def _check_version(domain: str, version: int, graph: Graph, runtime: Runtime | None) -> None:
    """Raise ``InvalidCall`` for a version that the specification lacks, unless the graph itself has it."""
    if not isinstance(version, int) or isinstance(version, bool):
        raise InvalidCall(
            "an opset is neither a whole number nor a mapping from domains to whole numbers",
            given=f"{domain} {version!r}",
        )
    if runtime is not None and (domain not in runtime.opsets or runtime.nearest(domain, version) != version):
        raise InvalidCall(
            f"target {runtime.name} does not support the requested opset",
            given=f"{domain} {version}",
            available=", ".join(f"{known} {runtime.versions(known)}" for known in runtime.opsets),
        )
    known = _published(domain) if domain in _SPECIFIED else ()
    if known and not 1 <= version <= max(known) and version != graph.opsets.get(domain):
        raise InvalidCall("unknown opset", given=f"{domain} {version}", available=f"{domain} 1 to {max(known)}")


def is_as_written(graph: Graph, target: Target, domains: Collection[str] | None = None) -> bool:
    """Whether every node is written for the target's versions already, and no runtime limits the ops."""
    opsets = target.opsets
    if target.runtime is not None:
        return False
    if domains is not None and any(n.domain not in opsets for m in graph.walk() for n in (m, *body_nodes(m.op))):
        return False
    if any(opsets.get(domain) != version for domain, version in graph.opsets.items() if domain in opsets):
        return False
    for node in graph.walk():
        if node.origin is None and isinstance(node.op, Op) and node.domain != INTERNAL_DOMAIN:
            if node.domain not in graph.opsets or opsets.get(node.domain) != node.version:
                return False
        elif node.domain == INTERNAL_DOMAIN or (node.domain in opsets and node.version != opsets[node.domain]):
            return False
    return True
