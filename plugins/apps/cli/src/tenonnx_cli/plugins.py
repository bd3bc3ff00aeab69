"""``tenonnx plugins``: installed plugins, and reasons why some are left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tenonnx_cli import FAILED
from tenonnx_cli.conformance import command as test
from tenonnx_cli.new import command as new
from tenonnx_cli.options import json_option
from tenonnx_cli.output import complain, say, say_json, say_table

if TYPE_CHECKING:
    from tenonnx import PluginError
    from tenonnx.tools import Plugin


@click.group("plugins", invoke_without_command=True)
@click.option("--check", is_flag=True, help="Exit with code 1 if a plugin, or one of its ops, is not loaded.")
@json_option
@click.pass_context
def command(context: click.Context, check: bool, as_json: bool) -> int:
    """List the installed plugins and those that failed to load; create or test one.

    The environment variable TENONNX_PLUGINS restricts plugins to a comma-separated list of packages; if empty, no
    plugins are loaded. A minus sign before a name excludes that package.
    """
    return 0 if context.invoked_subcommand else _list(check, as_json)


command.add_command(new)
command.add_command(test)


def _list(check: bool, as_json: bool) -> int:
    rows, problems = installed_plugins(check)
    if as_json:
        say_json(rows)
    elif not rows:
        say("no plugins are installed")
    else:
        columns = ("group", "name", "package", "version", "status")
        say_table([[row[column] for column in columns] for row in rows], columns)
        for row in rows:
            if row.get("rules"):
                say(f"rules of {row['package']} {row['version']}: {'; '.join(row['rules'])}")
    for problem in problems:
        complain(problem)
    return FAILED if check and problems else 0


def installed_plugins(check: bool) -> tuple[list[dict[str, Any]], list[str]]:
    """All plugins as rows, and the problems of those that are not loaded."""
    import warnings

    from tenonnx import default_registry
    from tenonnx.tools import (
        EXTENSIONS,
        GROUPS,
        broken_rules,
        in_words,
        left_out,
        plugins,
        refused_plugins,
        runtimes,
        selection,
    )

    registry = default_registry()
    with warnings.catch_warnings(action="ignore"):  # all of them are reported below
        registry.load_all()
        found = [p for group in GROUPS for p in plugins(group) if group != EXTENSIONS or not p.is_ours]
        rows = [_row(p, *_status(p, registry.failures.get(p))) for p in found]
        for group in GROUPS:
            rows += [_row(plugin, "refused", str(error)) for plugin, error in refused_plugins(group).items()]
            rows += [_row(plugin, "left out", "by TENONNX_PLUGINS") for plugin in left_out(group)]
    rows.sort(key=lambda row: (list(GROUPS).index(row["group"]), row["name"], row["package"]))
    problems = [row["reason"] for row in rows if row["status"] in ("failed", "refused")]
    problems += [*in_words(registry.conflicts), *_conflicts_of_rules()]
    others = [*runtimes()[1], *(broken_rules() if check else ())]
    problems += [text for text in dict.fromkeys(map(str, others)) if text not in problems]
    problems += [f"TENONNX_PLUGINS names {name}, which is not installed" for name in selection().unknown]
    return rows, problems


def _rules(plugin: Plugin) -> list[str]:
    """Descriptions of a plugin's import rules."""
    from tenonnx.tools import rules_of

    return [f"{rule.title}, priority {rule.priority}" for rule in rules_of(plugin.load())]


def _status(plugin: Plugin, failure: PluginError | None) -> tuple[str, str]:
    """Whether a plugin can be loaded, and the reason if not."""
    from tenonnx import PluginError

    if failure is None and plugin.group != "tenonnx.ops":
        try:
            plugin.load()
        except PluginError as error:
            failure = error
    return ("loaded", "") if failure is None else ("failed", str(failure))


def _row(plugin: Plugin, status: str, reason: str) -> dict[str, Any]:
    rules = {"rules": _rules(plugin)} if (plugin.group, status) == ("tenonnx.rules", "loaded") else {}
    return rules | {
        "group": plugin.group,
        "name": plugin.name,
        "package": plugin.distribution,
        "version": plugin.version,
        "value": plugin.value,
        "status": status,
        "reason": reason,
    }


def _conflicts_of_rules() -> list[str]:
    """Conflicts: rules of different packages for the same nodes with equal priority."""
    from tenonnx.extend.rules import installed_rules

    first: dict[Any, Any] = {}
    lines = []
    for each in installed_rules():
        rule, plugin = each.rule, each.plugin
        assert plugin is not None
        owner = first.setdefault((rule.op, rule.domain, rule.name, rule.frontend, rule.priority), each)
        if owner.plugin is not None and owner.plugin.distribution != plugin.distribution:
            lines.append(
                f"{owner.plugin.source} and {plugin.source} have rules for {rule.title} with priority {rule.priority}; "
                f"that of {owner.plugin.source} is asked first"
            )
    return lines
