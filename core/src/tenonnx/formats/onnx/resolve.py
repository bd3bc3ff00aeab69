"""Resolution of op names in a file, with validation of attributes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tenonnx.errors import InvalidModel, TypeMismatch, counted, did_you_mean
from tenonnx.formats.onnx import proto as onnx
from tenonnx.graph.containers import Operator
from tenonnx.graph.graph import Graph
from tenonnx.op.binding import foreseeing
from tenonnx.op.op import Op, Opaque
from tenonnx.op.signature import PHRASES, REQUIRED, is_kind
from tenonnx.op.versioned_signature import bind_attributes, signature_at
from tenonnx.registry.registry import Registry, canonical_domain


@dataclass(slots=True)
class Resolved:
    """An op at a version of its domain, with the attributes and inputs that its nodes may have."""

    op: Op | Opaque
    version: int
    names: frozenset[str] = frozenset()
    required: frozenset[str] = frozenset()
    attribute_types: Mapping[str, str] | None = None
    checked: bool = False
    least_inputs: int = 0
    most_inputs: float = float("inf")


class Resolver:
    """Resolves each op once for a model, or for the body of one of its functions.

    ``assumed`` collects the assumed versions of domains that the file does not import.
    """

    def __init__(
        self, registry: Registry, opsets: Mapping[str, int], ir_version: int, *, in_function: bool = False
    ) -> None:
        self.in_function = in_function
        self.registry = registry
        self.opsets = opsets
        self.ir_version = ir_version
        self.assumed: dict[str, int] = {}
        self.functions: Mapping[tuple[str, str, str], Operator] = {}
        self.unsorted: dict[int, onnx.GraphProto] = {}  # graphs known to need sorting, by identity
        self._cache: dict[tuple[str, str], Resolved] = {}

    def resolve(self, node: onnx.NodeProto, attributes: Mapping[str, Any], inputs: int) -> tuple[Op | Opaque, int]:
        """The op of a node. Raises ``InvalidModel`` for attributes or inputs that the op does not accept."""
        key = (node.domain, node.op_type)
        if self.functions:
            function = self.functions.get((canonical_domain(node.domain), node.op_type, node.overload))
            if function is not None:
                assert isinstance(function, Op)
                return function, self.version(canonical_domain(node.domain))
        found = self._cache.get(key)
        if found is None:
            found = self._cache[key] = self._find(*key)
        op = found.op
        if found.attribute_types is not None and isinstance(op, Op):
            if (attributes or found.required) and not found.required <= attributes.keys() <= found.names:
                raise self._wrong_names(node, found, attributes)
            if not found.least_inputs <= inputs <= found.most_inputs:
                what = f"{_title(node, found)} takes {_span(found.least_inputs, found.most_inputs)}"
                raise InvalidModel(what, given=counted(inputs, "input"), available=op.signature.describe())
            for name, value in attributes.items():
                kind = found.attribute_types.get(name)
                if kind and not is_kind(value, kind) and not _is_reference(value):
                    raise InvalidModel(
                        f'{_title(node, found)}: attribute "{name}" is not {PHRASES[kind]}', given=f"{value!r}"[:500]
                    )
            if found.checked:
                self._check(node, found, op, attributes)
        return op, found.version

    def version(self, domain: str) -> int:
        """The version of a domain: the imported one, else the one implied by the IR version."""
        version = self.opsets.get(domain)
        if version is None:
            version = self.assumed.get(domain)
        if version is None:
            version = self.assumed[domain] = _implied_version(domain, self.ir_version)
        return version

    def _find(self, domain: str, name: str) -> Resolved:
        if isinstance(domain, bytes) or isinstance(name, bytes):
            raise InvalidModel("the name of an op is not in UTF-8", given=f"{domain!r}::{name!r}")
        domain = canonical_domain(domain)
        version = self.version(domain)
        op = self.registry.resolve(domain, name, version)
        if isinstance(op, Opaque):
            return Resolved(op, version)
        form = signature_at(op, version)
        required = frozenset(old for old, new in form.attributes.items() if form.defaults[new] is REQUIRED)
        attribute_types = {old: op.signature.attribute_types.get(new, "") for old, new in form.attributes.items()}
        variadic = bool(form.inputs) and form.inputs[-1].variadic
        most = float("inf") if variadic else len(form.inputs)
        least = max([k + 1 for k, p in enumerate(form.inputs) if not p.optional], default=0)
        names, checked = frozenset(form.attributes) | form.ignored, bool(op.requirements.of_attributes)
        return Resolved(op, version, names, required, attribute_types, checked, least, most)

    def _wrong_names(self, node: onnx.NodeProto, found: Resolved, attributes: Mapping[str, Any]) -> InvalidModel:
        unknown = sorted(map(str, attributes.keys() - found.names))
        missing = sorted(found.required - attributes.keys())
        reason = f"has no attribute {', '.join(unknown)}" if unknown else f"lacks attribute {', '.join(missing)}"
        available, do = ", ".join(sorted(found.names)), did_you_mean(unknown[0], found.names) if unknown else ""
        return InvalidModel(f"{_title(node, found)} {reason}", available=available or "no attributes", do=do)

    def _check(self, node: onnx.NodeProto, found: Resolved, op: Op, attributes: Mapping[str, Any]) -> None:
        if any(_is_reference(v) or isinstance(v, Graph) for v in attributes.values()):
            return
        bound = bind_attributes(signature_at(op, found.version), attributes)
        complete = {name: bound.get(name, default) for name, default in op.signature.attributes.items()}
        try:
            with foreseeing(_title(node, found), (), complete):
                op.requirements.check_attributes(_title(node, found), complete)
        except TypeMismatch as error:
            raise error.as_a(InvalidModel) from error


def _is_reference(value: Any) -> bool:
    return hasattr(value, "refers_to")


def _title(node: onnx.NodeProto, found: Resolved) -> str:
    label = node.name or (f"-> {node.output[0]}" if len(node.output) else "")
    return f'node "{label}" ({canonical_domain(node.domain)}::{node.op_type}@{found.version})'


def _implied_version(domain: str, ir_version: int) -> int:
    """The version implied for a domain that is not imported: the newest of the ONNX release with the IR version."""
    if domain != "ai.onnx" or ir_version < 3:
        return 1
    from onnx.helper import VERSION_TABLE

    versions = [row[2] for row in VERSION_TABLE if row[1] <= ir_version]
    return max(versions, default=1)


def _span(least: int, most: float) -> str:
    """The allowed number of inputs of an op, for messages."""
    if least == most:
        return f"exactly {counted(least, 'input')}"
    return f"at least {counted(least, 'input')}" if most == float("inf") else f"{least} to {most:g} inputs"
