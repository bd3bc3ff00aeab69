"""Signatures of an op at older opset versions.

Most version steps of ONNX change no meaning: an attribute became an input, was renamed, got another default, or did not
exist yet. A ``SignatureChange`` describes one step; the signature at a version results from the newest one and all
steps above that version.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from tenonnx.errors import NotRepresentable
from tenonnx.op.signature import REQUIRED, Input, Signature


class SignatureChange(NamedTuple):
    """Differences of the signature below version ``before``.

    ``attributes`` are inputs that were attributes; the op ``lacks`` these parameters; ``vectors`` are inputs of one
    element that were a single number; ``renamed`` maps new names to old ones; ``defaults`` are the old defaults;
    ``ignored`` attributes had no effect; ``positive`` are axes that could not be negative. ``unless`` returns the
    reason why the version cannot express a call, or an empty string.
    """

    before: int
    attributes: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    renamed: Mapping[str, str] = MappingProxyType({})
    defaults: Mapping[str, Any] = MappingProxyType({})
    ignored: tuple[str, ...] = ()
    vectors: tuple[str, ...] = ()
    positive: tuple[str, ...] = ()
    unless: Callable[..., str] | None = None


class HasSignature(Protocol):
    """The part of an op that signatures read."""

    def __hash__(self) -> int: ...

    @property
    def title(self) -> str: ...

    @property
    def signature(self) -> Signature: ...

    @property
    def signature_changes(self) -> tuple[SignatureChange, ...]: ...


class VersionedSignature(NamedTuple):
    """The signature of an op at one version.

    ``inputs`` are the newest input parameters that are inputs at that version; ``attributes`` maps each old attribute
    name to the newest parameter; ``defaults`` are the old defaults by the newest name; ``input_attributes`` names the
    newest inputs that are attributes at that version.
    """

    inputs: tuple[Input, ...]
    attributes: Mapping[str, str]
    defaults: Mapping[str, Any]
    input_attributes: frozenset[str]
    lacks: frozenset[str]
    ignored: frozenset[str]
    vectors: frozenset[str]
    positive: frozenset[str] = frozenset()


@functools.lru_cache(maxsize=4096)
def signature_at(op: HasSignature, version: int) -> VersionedSignature:
    """The signature of ``op`` at ``version``."""
    steps = sorted((step for step in op.signature_changes if step.before > version), key=lambda step: -step.before)

    def union(field: str) -> frozenset[str]:
        return frozenset(name for step in steps for name in getattr(step, field))

    lacks = union("lacks")
    input_attributes = union("attributes") - lacks
    renamed = {today: old for step in steps for today, old in step.renamed.items()}
    defaults: dict[str, Any] = {**dict.fromkeys(input_attributes), **op.signature.attributes}
    for step in steps:
        defaults |= step.defaults
    inputs = tuple(p for p in op.signature.inputs if p.name not in input_attributes and p.name not in lacks)
    names = [n for n in (*op.signature.attributes, *sorted(input_attributes)) if n not in lacks]
    attributes = {renamed.get(n, n): n for n in names}
    return VersionedSignature(
        inputs,
        attributes,
        defaults,
        input_attributes,
        lacks,
        union("ignored"),
        union("vectors"),
        union("positive") - lacks,
    )


def bind_attributes(signature: VersionedSignature, written: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes of a node by their newest names, with the defaults of the version."""
    return {name: written.get(old, signature.defaults[name]) for old, name in signature.attributes.items()}


def unbind_attributes(
    op: HasSignature, version: int, attributes: Mapping[str, Any], static: Mapping[str, Any], rank: int | None = None
) -> dict[str, Any]:
    """The attributes of a node at ``version`` for the newest ``attributes`` and ``static`` contents of inputs.

    ``rank`` is the rank of the first input, to normalize negative axes. Raises ``NotRepresentable`` if the version
    cannot express a value.
    """
    signature = signature_at(op, version)
    defaults = op.signature.attributes
    unsaid = {n: a for n, a in attributes.items() if n in signature.lacks and not same_attribute(a, defaults[n])}
    if unsaid:
        verb = "does" if len(unsaid) == 1 else "do"
        raise NotRepresentable(
            f"{op.title}: attribute {' and '.join(map(json.dumps, unsaid))} {verb} not exist at version {version}",
            given=", ".join(f"{name}={value!r}" for name, value in unsaid.items()),
        )
    written: dict[str, Any] = {}
    for old, name in signature.attributes.items():
        default = signature.defaults[name]
        value = static.get(name) if name in signature.input_attributes else attributes[name]
        if value is None:
            if default is REQUIRED:
                raise NotRepresentable(f'{op.title}: attribute "{old}" has no default at version {version}')
            if default is not None and name not in signature.input_attributes:
                raise NotRepresentable(f'{op.title}: attribute "{old}" cannot be absent at version {version}')
        elif default is REQUIRED or not same_attribute(value, default):
            written[old] = _from_front(op, version, old, value, rank) if name in signature.positive else value
    return written


def _from_front(op: HasSignature, version: int, name: str, value: Any, rank: int | None) -> Any:
    """Normalize negative axes."""
    axes = value if isinstance(value, list | tuple) else [value]
    if not all(isinstance(axis, int) for axis in axes):
        raise NotRepresentable(f'{op.title}: attribute "{name}" does not hold whole numbers', given=repr(value))
    if all(axis >= 0 for axis in axes):
        return value
    if rank is None:
        raise NotRepresentable(
            f'{op.title}: attribute "{name}" cannot be negative at version {version}, and the rank is not known',
            given=f"{name}={value!r}",
        )
    counted = [axis + rank if axis < 0 else axis for axis in axes]
    return counted if isinstance(value, list | tuple) else counted[0]


def same_attribute(a: Any, b: Any) -> bool:
    """Whether two attribute values are equal; floats are compared bit by bit as float32, the precision of a file."""
    if a is b:
        return True
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(same_attribute(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) or isinstance(b, float):
        import numpy as np

        numbers = isinstance(a, int | float) and isinstance(b, int | float)
        return numbers and np.float32(a).tobytes() == np.float32(b).tobytes()
    return (type(a) is type(b) and not hasattr(a, "array") and bool(a == b)) or (isinstance(a, int) and a == b)
