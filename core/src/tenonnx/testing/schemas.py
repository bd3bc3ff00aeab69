"""What the onnx package says of an op: its schemas by version. Vendor domains have none."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

import onnx

from tenonnx.graph.types import MapType, OptionalType, SequenceType, TensorType, Type
from tenonnx.op.op import Op
from tenonnx.registry.registry import canonical_domain

Schema = onnx.defs.OpSchema


@functools.cache
def _schemas() -> Mapping[tuple[str, str], Mapping[int, Any]]:
    found: dict[tuple[str, str], dict[int, Any]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        held = found.setdefault((canonical_domain(schema.domain), schema.name), {})
        held[schema.since_version] = schema
    return {key: dict(sorted(held.items())) for key, held in found.items()}


def names(domain: str) -> Iterable[str]:
    """The names of all ops that the domain ever had."""
    return sorted(name for held, name in _schemas() if held == domain)


def history(domain: str, name: str) -> Mapping[int, Any]:
    """The schemas of an op by the version that introduced them; a deprecated one ends the op."""
    return _schemas().get((domain, name), {})


def schema_at(op: Op, version: int) -> Any:
    """The schema in force at a version, or None where the onnx package does not have the op."""
    held = [schema for since, schema in history(op.domain, op.name).items() if since <= version]
    return held[-1] if held and not held[-1].deprecated else None


def versions(op: Op) -> list[int]:
    """The versions within a meaning at which its schema or spelling changes, the first one included."""
    steps = {op.since, *(step.before for step in op.respellings)}
    steps.update(since for since, schema in history(op.domain, op.name).items() if not schema.deprecated)
    return sorted(version for version in steps if op.holds_at(version))


def accepts(schema: Any, inputs: Iterable[Type | None]) -> bool:
    """Whether a schema takes inputs of these types."""
    if schema is None:
        return True
    bound: dict[str, str] = {}
    allowed = {c.type_param_str: set(c.allowed_type_strs) for c in schema.type_constraints}
    for position, kind in enumerate(inputs):
        formal = schema.inputs[min(position, len(schema.inputs) - 1)] if schema.inputs else None
        if formal is None:
            return False
        if kind is None or (text := type_text(kind)) is None:
            continue
        if text not in allowed.get(formal.type_str, {formal.type_str}):
            return False
        if formal.is_homogeneous and bound.setdefault(formal.type_str, text) != text:
            return False
    return True


_TENSOR_NAMES = {"float32": "float", "float64": "double"}


def type_text(kind: Type | None) -> str | None:
    """A type as schemas write it, None where it is not known to the last detail."""
    if isinstance(kind, TensorType):
        return f"tensor({_TENSOR_NAMES.get(kind.dtype.name, kind.dtype.name)})"
    if isinstance(kind, SequenceType | OptionalType):
        element = type_text(kind.element)
        return None if element is None else f"{'seq' if isinstance(kind, SequenceType) else 'optional'}({element})"
    if isinstance(kind, MapType):
        value = type_text(kind.value)
        return None if value is None else f"map({kind.key.name}, {value.removeprefix('tensor(').removesuffix(')')})"
    return None
