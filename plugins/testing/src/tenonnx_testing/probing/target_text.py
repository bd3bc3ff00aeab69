"""Target files as JSON or TOML text."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tenonnx_testing.probing.summary import OpEntry, OpFailure

_WIDTH = 118


def target_table(
    keys: Mapping[str, Any], ops: Mapping[str, Sequence[OpEntry]], failed: Iterable[OpFailure]
) -> dict[str, Any]:
    """Contents of a target file: ``keys``, failures, and one table for all ops with equal limits."""
    groups: dict[tuple[str, OpEntry], list[str]] = {}
    for op, entries in ops.items():
        domain, _, op_type = op.partition("::")
        for limit in entries:
            groups.setdefault((domain, limit), []).append(op_type)
    listed = [_op_table(domain, limit, names) for (domain, limit), names in groups.items()]
    return {**keys, "failures": [_failure(each) for each in failed], "ops": listed}


def _op_table(domain: str, limit: OpEntry, names: Sequence[str]) -> dict[str, Any]:
    table = {
        "names": list(names),
        "dtypes": None if limit.dtypes is None else list(limit.dtypes),
        "domain": None if domain == "ai.onnx" else domain,
        "since": limit.since,
        "until": limit.until,
        "ranks": None if limit.ranks is None else list(limit.ranks),
        "constant": list(limit.constant) or None,
        "attributes": {name: list(values) for name, values in limit.attributes} or None,
        "outputs": limit.outputs,
    }
    return {key: value for key, value in table.items() if value is not None}


def _failure(each: OpFailure) -> dict[str, Any]:
    table = {"op": each.op, "outcome": each.outcome, "calls": each.failures, "of": each.calls}
    return table | ({"dtypes": list(each.dtypes)} if each.dtypes else {}) | {"reason": each.reason}


def json_text(table: Mapping[str, Any], name: str = "") -> str:
    """Return a target file in JSON, with one line per failure and table of ops.

    With a ``name`` it is a table of targets, for installation by a package.
    """
    return json_texts({name: table}) if name else f"{_json_object(table)}\n"


def json_texts(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a file in JSON with several targets by name."""
    tables_text = ",\n".join(f"{json.dumps(name)}: {_json_object(table)}" for name, table in tables.items())
    return f'{{"targets": {{{tables_text}}}}}\n'


def _json_object(table: Mapping[str, Any]) -> str:
    lines = []
    for key, value in table.items():
        rows = [f"  {json.dumps(row)}" for row in value] if key in ("failures", "ops") else []
        text = "[\n" + ",\n".join(rows) + "\n]" if rows else json.dumps(value)
        lines.append(f"{json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n}"


def toml_text(table: Mapping[str, Any], name: str = "") -> str:
    """Return a target file in TOML. With a ``name`` it is a table of targets, for installation by a package."""
    head = f"targets.{_key(name)}"
    lines = [f"[{head}]"] if name else []
    lines += [f"{key} = {_value(value)}" for key, value in table.items() if key not in ("failures", "ops")]
    lines += ["failures = [", *(f"    {_value(each)}," for each in table["failures"])]
    lines += ["]"] if table["ops"] else ["]", "ops = []"]
    for each in table["ops"]:
        lines += ["", f"[[{head}.ops]]" if name else "[[ops]]"]
        for key, value in each.items():
            lines += _listed(key, value) if key in ("names", "dtypes") else [f"{key} = {_value(value)}"]
    return "\n".join(lines) + "\n"


def _listed(key: str, names: Sequence[str]) -> list[str]:
    """Lines of a list of texts in TOML, wrapped if long."""
    line = f"{key} = {_value(list(names))}"
    if len(line) <= _WIDTH:
        return [line]
    rows = textwrap.wrap(", ".join(map(_value, names)) + ",", _WIDTH, initial_indent="    ", subsequent_indent="    ")
    return [f"{key} = [", *rows, "]"]


def _value(value: Any) -> str:
    """Return a value in TOML; strings are written as in JSON."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_value(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value)


def _key(key: str) -> str:
    return key if key.replace("_", "").replace("-", "").isalnum() and key.isascii() else json.dumps(key)
