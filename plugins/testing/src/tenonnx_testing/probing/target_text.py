"""Text of a target file."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tenonnx_testing.probing.summary import OpEntry, OpFailure

_WIDTH = 118


def target_text(
    keys: Mapping[str, Any], ops: Mapping[str, Sequence[OpEntry]], failed: Iterable[OpFailure], name: str = ""
) -> str:
    """A target file in TOML: its ``keys``, the failures one a line, and tables of ops with equal limits.

    With a ``name`` it is a table of targets, as packages install it.
    """
    table = f"targets.{_key(name)}"
    lines = [f"[{table}]"] if name else []
    lines += [f"{key} = {_value(value)}" for key, value in keys.items()]
    lines.append("failures = [")
    for each in failed:
        entry = {"op": each.op, "outcome": each.outcome, "calls": each.calls, "of": each.of}
        entry |= ({"dtypes": list(each.dtypes)} if each.dtypes else {}) | {"reason": each.reason}
        lines.append(f"    {_value(entry)},")
    lines += ["]"] if ops else ["]", "ops = []"]
    groups: dict[tuple[str, OpEntry], list[str]] = {}
    for op, held in ops.items():
        domain, _, op_type = op.partition("::")
        for limit in held:
            groups.setdefault((domain, limit), []).append(op_type)
    for (domain, limit), names in groups.items():
        lines += ["", f"[[{table}.ops]]" if name else "[[ops]]", *_listed("names", names)]
        limits = {
            "domain": None if domain == "ai.onnx" else domain,
            "since": limit.since,
            "until": limit.until,
            "ranks": None if limit.ranks is None else list(limit.ranks),
            "constant": list(limit.constant) or None,
            "attributes": {name: list(values) for name, values in limit.attributes} or None,
        }
        if limit.dtypes is not None:
            lines += _listed("dtypes", limit.dtypes)
        lines += [f"{key} = {_value(value)}" for key, value in limits.items() if value is not None]
    return "\n".join(lines) + "\n"


def _listed(key: str, names: Sequence[str]) -> list[str]:
    """A list of texts, over several lines where it is long."""
    line = f"{key} = {_value(list(names))}"
    if len(line) <= _WIDTH:
        return [line]
    rows = textwrap.wrap(", ".join(map(_value, names)) + ",", _WIDTH, initial_indent="    ", subsequent_indent="    ")
    return [f"{key} = [", *rows, "]"]


def _value(value: Any) -> str:
    """A value in TOML, whose texts on one line are those of JSON."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_value(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value)


def _key(key: str) -> str:
    return key if key.replace("_", "").replace("-", "").isalnum() and key.isascii() else json.dumps(key)
