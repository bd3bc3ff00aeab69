"""The page of the JSON that commands print: a table of keys per command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SCHEMA = Path(__file__).parents[2] / "docs" / "reference" / "json.schema.json"

HEAD = """# JSON output

What each command prints with `--json`. <a href="../_static/json.schema.json">json.schema.json</a> says the same as a
JSON Schema, with an entry of `properties` for each command, and tests hold every command to it. A later version may add
keys ([stability](stability.md)): a program should pass over those that it does not know.

A key with `?` after it is not always there. `[]` stands for the items of an array, `*` for each key of an object.
"""


def write(path: Path, static: Path) -> None:
    """Write the page, and copy the schema to the static files of the site."""
    schema = json.loads(SCHEMA.read_text("utf-8"))
    (static / SCHEMA.name).write_bytes(SCHEMA.read_bytes())
    parts = [HEAD]
    for command, node in schema["properties"].items():
        parts += [
            f"## tenonnx {command}\n",
            f"{node['description']}\n",
            "| key | type | what it is |",
            "| --- | --- | --- |",
        ]
        parts += [f"| `{key}` | {kind} | {text} |" for key, kind, text in rows(node, schema) if key]
        parts.append("")
    path.write_text("\n".join(parts), "utf-8")


def every_key() -> Iterator[tuple[str, str]]:
    """Each command, and each key that it prints."""
    schema = json.loads(SCHEMA.read_text("utf-8"))
    for command, node in schema["properties"].items():
        yield from ((command, key.replace("?", "")) for key, _, _ in rows(node, schema))


def rows(
    node: dict[str, Any], schema: dict[str, Any], key: str = "", name: str = "", around: tuple[str, ...] = ()
) -> Iterator[tuple[str, str, str]]:
    """The key, type and meaning of a part of the schema and of its nested parts. Recursion stops after one level."""
    reference = node.get("$ref", "").rpartition("/")[2]
    if reference in around:
        return
    around += (reference,) if reference else ()
    referred = schema["$defs"][reference] if reference else {}
    ways = [way for way in node.get("anyOf", ()) if way.get("type") != "null"]
    found = {**referred, **node, "properties": {**node.get("properties", {}), **referred.get("properties", {})}}
    required = {*node.get("required", ()), *referred.get("required", ())}
    if name:
        yield (
            key,
            _kind({**found, **(ways[0] if ways else {})}, found),
            found.get("description", "").replace("|", "\\|"),
        )
    for way in ways:
        yield from list(rows(way, schema, key, name, around))[1 if name else 0 :]
    for each, inner in found["properties"].items():
        mark = "" if each in required else "?"
        yield from rows(inner, schema, f"{key}.{each}{mark}".lstrip("."), each, around)
    for word, mark in (("items", "[]"), ("additionalProperties", ".*")):
        inner = found.get(word)
        if isinstance(inner, dict):
            has_meaning = "description" in inner and "properties" not in inner
            yield from rows(inner, schema, key + mark, mark if has_meaning else "", around)


def _kind(found: dict[str, Any], outer: dict[str, Any]) -> str:
    if "enum" in found:
        return " or ".join(f"`{each}`" for each in found["enum"])
    kinds = found.get("type", "any")
    named = [kinds] if isinstance(kinds, str) else list(kinds)
    named += ["null"] if any(way.get("type") == "null" for way in outer.get("anyOf", ())) else []
    return " or ".join(named)
