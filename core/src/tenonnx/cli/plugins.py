"""``tenonnx plugins``: which packages extend this installation, and why one does not."""

from __future__ import annotations

from typing import Any

import click

from tenonnx.cli.options import json_option
from tenonnx.cli.output import complain, say, say_json, say_table


@click.command("plugins")
@json_option
def command(as_json: bool) -> None:
    """List the installed plugins, and why one is not loaded.

    TENONNX_PLUGINS restricts plugins to the packages that it names, separated by commas; if empty, to none.
    """
    from tenonnx.registry.discovery import GROUPS, left_out, plugins
    from tenonnx.registry.registry import default_registry

    registry = default_registry()
    registry.load_all()
    rows: list[dict[str, Any]] = []
    for group in GROUPS:
        for plugin in plugins(group):
            failure = registry.failures.get(plugin) if group == "tenonnx.ops" else _failure(plugin)
            status = "loaded" if failure is None else "failed"
            rows.append(_row(plugin, status, str(failure or "")))
        rows += [_row(plugin, "left out", "TENONNX_PLUGINS does not name it") for plugin in left_out(group)]
    if as_json:
        say_json(rows)
        return
    if not rows:
        say("no plugins are installed")
        return
    columns = ("group", "name", "package", "version", "status")
    say_table([[row[column] for column in columns] for row in rows], columns)
    for row in rows:
        if row["status"] == "failed":
            complain(row["reason"])


def _failure(plugin: Any) -> Exception | None:
    from tenonnx.errors import PluginError

    try:
        plugin.load()
    except PluginError as error:
        return error
    return None


def _row(plugin: Any, status: str, reason: str) -> dict[str, Any]:
    return {
        "group": plugin.group,
        "name": plugin.name,
        "package": plugin.distribution,
        "version": plugin.version,
        "value": plugin.value,
        "status": status,
        "reason": reason,
    }
