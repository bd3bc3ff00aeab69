"""Op schemas of the onnx package and of onnxruntime."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx

from tenonnx.extend import REQUIRED, MapType, Op, OptionalType, SequenceType, TensorType, Type
from tenonnx.extend.testing import canonical_domain


@dataclass(frozen=True, slots=True)
class Formal:
    """One input or output: ``kind`` is "Single", "Optional" or "Variadic", ``types`` a type constraint or a type.

    ``differentiable`` is True only if the schema declares it.
    """

    name: str
    kind: str
    types: str
    homogeneous: bool
    differentiable: bool


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute: ``default`` is ``REQUIRED`` for a required one, None for an optional one without default."""

    default: Any
    is_float: bool


@dataclass(frozen=True, slots=True)
class Schema:
    """Schema of an op at one version.

    With ``ends``, this version deprecates the op. With ``judged``, ``onnx.checker`` knows the op at this version.
    """

    inputs: tuple[Formal, ...]
    outputs: tuple[Formal, ...]
    attributes: Mapping[str, Attribute]
    constraints: Mapping[str, frozenset[str]]
    maximum_outputs: int
    ends: bool
    judged: bool

    def accepts(self, inputs: Sequence[Type | None]) -> bool:
        """Whether the schema allows inputs of these types; None is an unknown type."""
        bound: dict[str, str] = {}
        for position, kind in enumerate(inputs):
            text, formal = type_text(kind), _formal(self.inputs, position)
            if formal is None:
                return False
            if text is not None and formal.homogeneous and bound.setdefault(formal.types, text) != text:
                return False
        return self._allows(self.inputs, inputs)

    def as_taken(self, position: int, kind: Type | None) -> Type | None:
        """Return the type of an input, wrapped in an optional where this version accepts only that."""
        if kind is None or self._allows_at(self.inputs, position, kind):
            return kind
        optional = OptionalType(kind)
        return optional if self._allows_at(self.inputs, position, optional) else kind

    def gives(self, outputs: Sequence[Type | None]) -> bool:
        """Whether the schema allows outputs of these types; None is an unknown type."""
        return self._allows(self.outputs, outputs)

    def _allows(self, formals: Sequence[Formal], kinds: Sequence[Type | None]) -> bool:
        return all(self._allows_at(formals, position, kind) for position, kind in enumerate(kinds))

    def _allows_at(self, formals: Sequence[Formal], position: int, kind: Type | None) -> bool:
        text, formal = type_text(kind), _formal(formals, position)
        return text is None or formal is None or text in self.constraints.get(formal.types, {formal.types})


def _formal(formals: Sequence[Formal], position: int) -> Formal | None:
    """Return the formal parameter at a position; the last one is repeated (variadic)."""
    return formals[min(position, len(formals) - 1)] if formals else None


@functools.cache
def domains() -> frozenset[str]:
    """Domains of the onnx package."""
    return frozenset(domain for domain, _ in _of_onnx())


def names(domain: str) -> list[str]:
    """Names of all ops of a domain, in any version."""
    return sorted(name for owner, name in (_of_onnx() if domain in domains() else _of_onnxruntime()) if owner == domain)


def history(domain: str, name: str) -> Mapping[int, Schema]:
    """Schemas of an op, by the version that introduced them."""
    return (_of_onnx() if domain in domains() else _of_onnxruntime()).get((domain, name), {})


def schema_at(op: Op, version: int) -> Schema | None:
    """Return the schema in force at a version; None if there is none or it is deprecated."""
    schemas = [schema for since, schema in history(op.domain, op.name).items() if since <= version]
    return schemas[-1] if schemas and not schemas[-1].ends else None


def versions(op: Op) -> list[int]:
    """Versions within a meaning at which its schema or signature changes, including the first."""
    steps = {op.since, *(step.before for step in op.signature_changes)}
    steps.update(since for since, schema in history(op.domain, op.name).items() if not schema.ends)
    return sorted(version for version in steps if op.holds_at(version))


# ----- conversion from onnx and onnxruntime ---------------------------------------------------------------------------

_Schemas = dict[tuple[str, str], dict[int, Schema]]


@functools.cache
def _of_onnx() -> _Schemas:
    return _collected(onnx.defs.get_all_schemas_with_history(), "type_str", "is_homogeneous", judged=True)


@functools.cache
def _of_onnxruntime() -> _Schemas:
    if importlib.util.find_spec("onnxruntime") is None:
        return {}
    from onnxruntime.capi import onnxruntime_pybind11_state as runtime

    return _collected(getattr(runtime, "get_all_operator_schema", list)(), "typeStr", "isHomogeneous", judged=False)


def _collected(schemas: Iterable[Any], types: str, homogeneous: str, *, judged: bool) -> _Schemas:
    result: _Schemas = {}
    for schema in sorted(schemas, key=lambda schema: schema.since_version):
        versions = result.setdefault((canonical_domain(schema.domain), schema.name), {})
        inputs, outputs = (
            tuple(
                Formal(f.name, f.option.name, getattr(f, types), bool(getattr(f, homogeneous)), _is_differentiable(f))
                for f in formals
            )
            for formals in (schema.inputs, schema.outputs)
        )
        schema_read = Schema(
            inputs,
            outputs,
            {name: _attribute(attribute) for name, attribute in schema.attributes.items()},
            {c.type_param_str: frozenset(c.allowed_type_strs) for c in schema.type_constraints},
            schema.max_output,
            ends=schema.deprecated and bool(versions),
            judged=judged and not schema.deprecated,
        )
        versions[schema.since_version] = schema_read
    return result


def _is_differentiable(formal: Any) -> bool:
    """Whether a parameter is declared as differentiable; schemas of onnxruntime lack the field."""
    category = getattr(formal, "differentiation_category", None)
    return category is not None and category.name == "Differentiable"


def _attribute(attribute: Any) -> Attribute:
    is_float = attribute.type.name in ("FLOAT", "FLOATS")
    if attribute.required:
        return Attribute(REQUIRED, is_float)
    proto = getattr(attribute, "default_value", None)
    if proto is None:
        proto = onnx.AttributeProto.FromString(attribute._default_value)
    return Attribute(_default(proto), is_float)


def _default(proto: onnx.AttributeProto) -> Any:
    value = onnx.helper.get_attribute_value(proto) if proto.type else None
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list | tuple):
        return [v.decode() if isinstance(v, bytes) else v for v in value]
    return value


_TENSOR_NAMES = {"float32": "float", "float64": "double"}


def type_text(kind: Type | None) -> str | None:
    """Return a type in the notation of schemas; None if it is not fully known."""
    if isinstance(kind, TensorType):
        return f"tensor({_TENSOR_NAMES.get(kind.dtype.name, kind.dtype.name)})"
    if isinstance(kind, SequenceType | OptionalType):
        element = type_text(kind.element)
        return None if element is None else f"{'seq' if isinstance(kind, SequenceType) else 'optional'}({element})"
    if isinstance(kind, MapType):
        value = type_text(kind.value)
        return None if value is None else f"map({kind.key.name}, {value.removeprefix('tensor(').removesuffix(')')})"
    return None
