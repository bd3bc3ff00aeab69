"""Signatures against the schemas of the onnx package: every version, every name, every default."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx

from tenonnx.op.op import Op
from tenonnx.op.signature import REQUIRED
from tenonnx.op.spelling import Form, form_at, same_attribute
from tenonnx.registry.hints import provider
from tenonnx.registry.registry import Registry
from tenonnx.testing import schemas

_Option = onnx.defs.OpSchema.FormalParameterOption


def signature_problems(op: Op) -> list[str]:
    """How the signature of one meaning differs from the schemas of its versions; nothing for ops without a schema."""
    history = schemas.history(op.domain, op.name)
    if not history:
        return []
    problems = []
    for what, version in (("since", op.since), ("before", op.before)):
        if version is not None and version not in history:
            problems.append(f"{what}={version} is no version of {op.name}; these are {list(history)}")
    for step in op.respellings:
        if step.before not in history or not op.since < step.before <= (op.before or 10**9):
            problems.append(
                f"until({step.before}) is no version of {op.name} within this meaning; these are {list(history)}"
            )
    held = [version for version in schemas.versions(op) if schemas.schema_at(op, version) is not None]
    if not held:
        problems.append("no schema lies within its versions")
    for version in held:
        schema, form = schemas.schema_at(op, version), form_at(op, version)
        newest = version == max(held)
        problems += [f"at version {version}, {problem}" for problem in _inputs(form, schema, newest)]
        problems += [f"at version {version}, {problem}" for problem in _attributes(form, schema)]
    return problems


def _inputs(form: Form, schema: Any, newest: bool) -> Iterator[str]:
    ours, theirs = form.inputs, list(schema.inputs)
    if len(ours) != len(theirs):
        yield f"the inputs are {[p.name for p in ours]}, and the schema has {[f.name for f in theirs]}"
        return
    names = [f.name for f in theirs]
    for position, (parameter, formal) in enumerate(zip(ours, theirs, strict=True)):
        moved = parameter.name in names and names.index(parameter.name) != position
        if moved or (newest and parameter.name != formal.name and not _is_keyword(formal.name)):
            yield f'input {position} is "{parameter.name}", and the schema has "{formal.name}"'
        if parameter.variadic != (formal.option == _Option.Variadic):
            yield f'input "{parameter.name}" is {"" if parameter.variadic else "not "}variadic, in the schema otherwise'
        elif parameter.variadic:
            continue
        elif not parameter.optional and formal.option == _Option.Optional:
            yield f'input "{parameter.name}" is required, and optional in the schema'
        elif newest and parameter.optional and formal.option != _Option.Optional:
            yield f'input "{parameter.name}" is optional, and required in the schema'


def _is_keyword(name: str) -> bool:
    """Names that no Python parameter can have."""
    import keyword

    return keyword.iskeyword(name) or not name.isidentifier()


def _attributes(form: Form, schema: Any) -> Iterator[str]:
    ours = {*form.attributes, *form.ignored}
    for name in sorted(set(schema.attributes) - ours):
        yield f'attribute "{name}" of the schema is missing'
    for name in sorted(ours - set(schema.attributes)):
        yield f'attribute "{name}" is not in the schema'
    for name, today in form.attributes.items():
        if name not in schema.attributes:
            continue
        attribute, default = schema.attributes[name], form.defaults[today]
        wanted = REQUIRED if attribute.required else _default(attribute)
        if (default is REQUIRED) != (wanted is REQUIRED):
            yield f'attribute "{name}" is {"" if default is REQUIRED else "not "}required, in the schema otherwise'
        elif default is not REQUIRED and not _same_default(default, wanted):
            yield f'attribute "{name}" is {default!r} by default, and {wanted!r} in the schema'


def _same_default(ours: Any, theirs: Any) -> bool:
    if ours is None or theirs is None:
        return ours is theirs
    kinds = {list if isinstance(v, tuple) else type(v) for v in (ours, theirs)}
    return len(kinds) == 1 and same_attribute(ours, theirs)


def _default(attribute: Any) -> Any:
    proto = attribute.default_value
    if not proto.type:
        return None
    value = onnx.helper.get_attribute_value(proto)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list | tuple):
        return [v.decode() if isinstance(v, bytes) else v for v in value]
    return value


def uncovered(registry: Registry, domain: str, distribution: str) -> list[str]:
    """The schema versions of a domain that are the distribution's to serve, and that no registered meaning covers."""
    missing = []
    for name in schemas.names(domain):
        if provider(domain, name) != distribution:
            continue
        history = schemas.history(domain, name)
        missing += [
            f"{name}@{v}" for v, s in history.items() if not s.deprecated and registry.lookup(domain, name, v) is None
        ]
    return missing


def versions_without_meaning(registry: Registry, op: Op) -> list[int]:
    """The versions of a registered op's name that no meaning covers, and deprecated ones that some meaning has."""
    found = []
    for version, schema in schemas.history(op.domain, op.name).items():
        if (registry.lookup(op.domain, op.name, version) is not None) == bool(schema.deprecated):
            found.append(version)
    return found
