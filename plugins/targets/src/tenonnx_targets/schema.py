"""Parsing target files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tenonnx.extend import DType
from tenonnx_targets.target import ANY_VERSION, OpLimits, Target

#: Keys of a target, or defaults for all targets of a file, with their types.
_KEYS: Mapping[str, type] = {
    "title": str,
    "source": str,
    "note": str,
    "opsets": dict,
    "minimum": dict,
    "ir_version": int,
    "dtypes": list,
    "ops": list,
    "unspecified": list,
    "static_shapes": bool,
    "control_flow": bool,
    "max_rank": int,
    "batch": int,
    "external_data": bool,
    "file_size": int,
    "failures": list,
}

#: Limits of whole models, which are copied to the target unchanged.
_PLAIN, _SIZES = ("static_shapes", "control_flow", "external_data"), ("max_rank", "batch", "file_size")

#: Required keys of an installed target; a target given by path may omit opsets to allow any version.
_REQUIRED = ("title", "source", "opsets")

#: Keys of a measured failure, with their types.
_FAILURE_KEYS: Mapping[str, type] = {
    "op": str,
    "outcome": str,
    "calls": int,
    "of": int,
    "dtypes": list,
    "reason": str,
}

#: Keys of an entry in ``ops``, with their types.
_OP_KEYS: Mapping[str, type] = {
    "names": list,
    "domain": str,
    "dtypes": list,
    "since": int,
    "until": int,
    "ranks": list,
    "constant": list,
    "attributes": dict,
    "outputs": int,
}


class WrongTarget(ValueError):
    """A target file is invalid: ``near`` are words of the line at fault, ``line`` is its number if known."""

    def __init__(self, message: str, *near: str) -> None:
        super().__init__(message)
        self.near = near
        self.line: int | None = None


def read_targets(text: str, *, json: bool = False, package: str = "", alone: str = "") -> Iterator[Target]:
    """The targets of a file. Without a table ``targets`` the file is one target called ``alone``, if that is given.

    Raises ``WrongTarget`` with the line at fault.
    """
    try:
        shared = _parsed(text, json)
        tables = shared.pop("targets", None)
        if tables is None and alone:
            tables = {alone: {}}
        if not isinstance(tables, dict) or not tables:
            raise WrongTarget("it has no table [targets.NAME]", "targets")
        for name, own in tables.items():
            if not isinstance(own, dict):
                raise WrongTarget(f'"targets.{name}" is not a table', name)
            yield _target(name, shared | own, package, bool(alone))
    except WrongTarget as error:
        if error.line is None:
            error.line = _line(text, error.near)
        raise


def _parsed(text: str, json: bool) -> dict[str, Any]:
    import json as json_module
    import tomllib

    try:
        result = json_module.loads(text) if json else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        wrong = WrongTarget(str(error))
        number = re.search(r"line (\d+)", str(error))
        wrong.line = int(number[1]) if number else len(text.splitlines())
        raise wrong from error
    if not isinstance(result, dict):
        raise WrongTarget("it is not an object of keys")
    return result


def _line(text: str, near: tuple[str, ...]) -> int | None:
    """The number of the first line that has these words, each searched after the previous one."""
    lines, start, result = text.splitlines(), 0, None
    for word in near:
        pattern = re.compile(rf"(?<![\w-]){re.escape(word)}(?![\w-])")
        place = next((k for k in range(start, len(lines)) if pattern.search(lines[k])), None)
        start, result = (start, result) if place is None else (place, place + 1)
    return result


def _target(name: str, table: Mapping[str, Any], package: str, by_path: bool) -> Target:
    of = f"of target {name}"
    _check_types(table, _KEYS, of, name)
    if by_path:
        table = {"title": name, "source": "a file of its own", "opsets": {"ai.onnx": ANY_VERSION}, **table}
    missing = [key for key in _REQUIRED if not table.get(key)]
    if missing:
        raise WrongTarget(f"target {name} lacks {', '.join(missing)}", name)
    ops: dict[tuple[str, str], tuple[OpLimits, ...]] = {}
    for group in table.get("ops", ()):
        group = {"names": [group]} if isinstance(group, str) else group
        if not isinstance(group, dict) or (not by_path and set(group) - set(_OP_KEYS)):
            raise WrongTarget(f'"ops" {of} are not tables of names, dtypes and domain', name, "ops")
        for op in _strings(group.get("names"), f'"names" in "ops" {of}', name, "ops"):
            key = group.get("domain", "ai.onnx"), op
            ops[key] = (*ops.get(key, ()), _limits(group, name))
    opsets = {
        domain: None if version == ANY_VERSION else _whole_number(version, name, "opsets")
        for domain, version in table["opsets"].items()
    }
    plain: dict[str, Any] = {key: table[key] for key in _PLAIN if key in table}
    plain |= {key: _whole_number(table[key], name, key) for key in _SIZES if key in table}
    return Target(
        name,
        table["title"],
        opsets,
        {domain: _whole_number(version, name, "minimum") for domain, version in table.get("minimum", {}).items()},
        None if "ir_version" not in table else _whole_number(table["ir_version"], name, "ir_version"),
        _dtypes(table, name),
        ops if "ops" in table else None,
        table["source"].strip(),
        table.get("note", "").strip(),
        package,
        frozenset(_strings(table.get("unspecified", []), f'"unspecified" {of}', name, "unspecified")),
        failures=tuple(_failure(each, name) for each in table.get("failures", ())),
        **plain,
    )


def _failure(given: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(given, dict) or not {"op", "outcome"} <= given.keys():
        raise WrongTarget(f'"failures" of target {name} are not tables of op and outcome', name, "failures")
    _check_types(given, _FAILURE_KEYS, f'in "failures" of target {name}', name)
    return given


def _check_types(table: Mapping[str, Any], keys: Mapping[str, type], of: str, name: str) -> None:
    for key, value in table.items():
        if key not in keys:
            raise WrongTarget(f'"{key}" {of} is not one of {", ".join(keys)}', name, key)
        wanted = keys[key]
        if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
            raise WrongTarget(f'"{key}" {of} is not of type {wanted.__name__}: {value!r}', name, key)


def _limits(group: Mapping[str, Any], name: str) -> OpLimits:
    of = f'in "ops" of target {name}'
    _check_types(group, _OP_KEYS, of, name)
    ranks = group.get("ranks")
    if ranks is not None and not all(type(rank) is int and rank >= 0 for rank in ranks):
        raise WrongTarget(f'"ranks" {of} are not whole numbers: {ranks!r}', name, "ranks")
    attributes = group.get("attributes", {})
    for attribute, values in attributes.items():
        if not isinstance(values, list):
            raise WrongTarget(f'"{attribute}" {of} is not a list of values: {values!r}', name, attribute)
    return OpLimits(
        _dtypes(group, name),
        group.get("since"),
        group.get("until"),
        None if ranks is None else tuple(ranks),
        tuple(_strings(group.get("constant", []), f'"constant" {of}', name, "constant")),
        tuple((attribute, tuple(values)) for attribute, values in attributes.items()),
        _whole_number(group["outputs"], name, "outputs") if "outputs" in group else None,
    )


def _whole_number(given: Any, name: str, key: str) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        raise WrongTarget(f'"{key}" of target {name} is not a whole number from 1 on: {given!r}', name, key)
    return given


def _dtypes(table: Mapping[str, Any], name: str) -> frozenset[DType] | None:
    if "dtypes" not in table:
        return None
    names = _strings(table["dtypes"], f'"dtypes" of target {name}', name, "dtypes")
    unknown = [dtype for dtype in names if dtype not in DType.__members__]
    if unknown:
        raise WrongTarget(f"target {name} has a dtype {unknown[0]!r}, which ONNX does not define", name, unknown[0])
    return frozenset(DType[dtype] for dtype in names)


def _strings(given: Any, what: str, *near: str) -> list[str]:
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise WrongTarget(f"{what} is not a list of strings: {given!r}", *near)
    return given
