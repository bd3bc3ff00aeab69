"""Comparison of op signatures with ONNX and onnxruntime schemas: versions, names, defaults and element types."""

from __future__ import annotations

import functools
import keyword
from collections.abc import Iterator
from typing import Any

from tenonnx.extend import REQUIRED, DType, Op, OptionalType, Registry, SequenceType, TensorType, Type
from tenonnx.extend.testing import VersionedSignature, provider, signature_at, type_code
from tenonnx.extend.transforms import same_attribute
from tenonnx_testing import schemas
from tenonnx_testing.schemas import Schema, type_text


def signature_problems(op: Op) -> list[str]:
    """Differences between the signature of an op and the schemas of its versions; empty for ops without a schema."""
    history = schemas.history(op.domain, op.name)
    if not history:
        return []
    problems = []
    for what, version in (("since", op.since), ("before", op.before)):
        known = version is None or version in history or not op.is_specified_at(version)
        if not known:
            problems.append(f"{what}={version} is not a version of {op.name}; these are {list(history)}")
    for step in op.signature_changes:
        if step.before not in history or not op.since < step.before <= (op.before or step.before):
            problems.append(f"until({step.before}) is not a version of {op.name} here; these are {list(history)}")
    found = {version: schema for version in schemas.versions(op) if (schema := schemas.schema_at(op, version))}
    for version, schema in found.items():
        signature, newest = signature_at(op, version), version == max(found)
        problems += [f"at version {version}, {problem}" for problem in _inputs(signature, schema, newest)]
        problems += [f"at version {version}, {problem}" for problem in _attributes(signature, schema)]
    return problems


def _inputs(signature: VersionedSignature, schema: Schema, newest: bool) -> Iterator[str]:
    ours, theirs = signature.inputs, schema.inputs
    names = [formal.name for formal in theirs]
    if len(ours) != len(theirs):
        yield f"the inputs are {[p.name for p in ours]}, and the schema has {names}"
        return
    for position, (parameter, formal) in enumerate(zip(ours, theirs, strict=True)):
        moved = parameter.name in names and names.index(parameter.name) != position
        if moved or (newest and not _same_name(parameter.name, formal.name)):
            yield f'input {position} is "{parameter.name}", and the schema has "{formal.name}"'
        if parameter.variadic or formal.kind == "Variadic":
            if not parameter.variadic or formal.kind != "Variadic":
                kind = "variadic" if parameter.variadic else "not variadic"
                yield f'input "{parameter.name}" is {kind}, unlike in the schema'
        elif not parameter.optional and formal.kind == "Optional":
            yield f'input "{parameter.name}" is required, and optional in the schema'
        elif newest and parameter.optional and formal.kind != "Optional":
            yield f'input "{parameter.name}" is optional, and required in the schema'


def _same_name(ours: str, theirs: str) -> bool:
    """Whether the names are equal, or the name in the schema cannot be that of a Python parameter."""
    return ours == theirs or keyword.iskeyword(theirs) or not theirs.isidentifier()


def _attributes(signature: VersionedSignature, schema: Schema) -> Iterator[str]:
    ours = {*signature.attributes, *signature.ignored}
    for name in sorted(set(schema.attributes) - ours):
        yield f'attribute "{name}" of the schema is missing'
    for name in sorted(ours - set(schema.attributes)):
        yield f'attribute "{name}" is not in the schema'
    for name, today in signature.attributes.items():
        if name not in schema.attributes:
            continue
        default, wanted = signature.defaults[today], schema.attributes[name].default
        if (default is REQUIRED) != (wanted is REQUIRED):
            yield f'attribute "{name}" is {"" if default is REQUIRED else "not "}required, unlike in the schema'
        elif default is not REQUIRED and not _same_default(default, wanted, schema):
            yield f'attribute "{name}" is {default!r} by default, and {wanted!r} in the schema'


def _same_default(ours: Any, theirs: Any, schema: Schema) -> bool:
    if theirs is None:
        return ours is None or not schema.judged  # onnxruntime's kernels have defaults that its schemas omit
    kinds = {list if isinstance(v, tuple) else type(v) for v in (ours, theirs)}
    return len(kinds) == 1 and same_attribute(ours, theirs)


def dtype_problems(op: Op, registry: Registry) -> list[str]:
    """Differences between the registry's table of element types, if it has one, and the schemas of an op."""
    problems = []
    for version in schemas.versions(op):
        schema, table = schemas.schema_at(op, version), registry.dtypes(op.domain, op.name, version)
        if schema is None or table is None:
            continue
        for formal, codes in zip(schema.inputs, table["inputs"], strict=False):
            wanted = {_codes().get(text) for text in schema.constraints.get(formal.types, {formal.types})} - {None}
            ours = {code for code in codes or () if code in _codes().values()}  # newer versions of ONNX may add types
            if codes is not None and ours != wanted:
                differing = sorted(map(str, ours ^ wanted))
                problems.append(f'at version {version}, input "{formal.name}" differs in the type codes {differing}')
    return problems


@functools.cache
def _codes() -> dict[str | None, int | None]:
    """Type codes of the tables, by type in the notation of schemas."""
    tensors: list[Type] = [TensorType(dtype) for dtype in DType if dtype is not DType.undefined]
    sequences: list[Type] = [SequenceType(kind) for kind in tensors]
    optionals: list[Type] = [OptionalType(kind) for kind in (*tensors, *sequences)]
    return {type_text(kind): type_code(kind) for kind in (*tensors, *sequences, *optionals)}


def uncovered(registry: Registry, domain: str, distribution: str) -> list[str]:
    """Schema versions of a domain that a distribution should provide but no registered op covers."""
    return [
        f"{name}@{version}"
        for name in schemas.names(domain)
        if provider(domain, name) == distribution
        for version, schema in schemas.history(domain, name).items()
        if not schema.ends and registry.lookup(domain, name, version) is None
    ]


def versions_without_meaning(registry: Registry, op: Op) -> list[int]:
    """Schema versions that no registered meaning covers, and deprecating versions that a meaning still covers."""
    return [
        version
        for version, schema in schemas.history(op.domain, op.name).items()
        if (registry.lookup(op.domain, op.name, version) is None) != schema.ends
    ]
