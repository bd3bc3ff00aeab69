"""Settings: defaults of options in a TOML file, by command and by profile."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from tenonnx import InvalidCall
from tenonnx.extend import did_you_mean_file
from tenonnx.tools import did_you_mean, listing
from tenonnx_cli.printable import printable

#: Settings file; alternatively the table ``[tool.tenonnx]`` of a project's pyproject.toml.
SETTINGS, PROJECT = "tenonnx.toml", "pyproject.toml"

#: The options that select settings.
CHOOSING = frozenset({"--config", "--profile", "--print-config"})

#: Options that belong to a single call, or are parsed before click.
_NOT_IN_FILES = CHOOSING | {"--help", "-h", "--json", "--output", "--input", "--inputs"}

#: Options that run code, lift a limit, open this machine to others or write further files. They are accepted from a
#: settings file that the user names, but not from one found in the folder. Options that take a Python file are
#: included.
_NAMED_ALONE = frozenset(
    [
        *("--trust", "--load", "--rules", "--hook", "--check", "--timeout", "--on"),
        *("--host", "--port", "--token", "--upload", "--jobs", "--write"),
        *("--overwrite", "--best", "--log", "--checkpoint", "--emit-step", "--choose", "--dot", "--svg", "--html"),
    ]
)


def settings_of(ctx: click.Context, command: click.Command, path: str | None, profile: str | None) -> dict[str, Any]:
    """Defaults of a command's parameters, from the named or nearest file and a profile in it.

    Raises ``InvalidCall`` for a file that cannot be read, an unknown option or profile, and a value of another type.
    """
    found = None if path is not None else nearest(Path.cwd())
    if path is None and found is None:
        if profile is not None:
            raise InvalidCall(
                f'there is no profile "{printable(profile)}"',
                given="no file of settings",
                do=f"write {SETTINGS} with [profiles.NAME.{command.name}], or name a file with --config",
            )
        return {}
    name = str(path or found)
    table = _table(name)
    defaults = _defaults(name, _part(table, str(command.name)), command, ctx, is_named=path is not None)
    if profile is not None:
        profiles = _part(table, "profiles")
        if not isinstance(profiles.get(profile), dict):
            raise InvalidCall(
                f'"{printable(name)}" has no profile "{printable(profile)}"',
                available=listing(profiles),
                do=did_you_mean(profile, profiles),
            )
        chosen = _part(profiles[profile], str(command.name))
        defaults |= _defaults(name, chosen, command, ctx, is_named=path is not None)
    return defaults


def nearest(folder: Path) -> Path | None:
    """The settings file of a folder, or of the nearest parent that has one."""
    for place in (folder, *folder.parents):
        if (own := place / SETTINGS).is_file():
            return own
        project = place / PROJECT
        try:
            if project.is_file() and "tool.tenonnx" in project.read_text("utf-8", "replace"):
                return project
        except OSError:
            continue
    return None


def _table(path: str) -> Mapping[str, Any]:
    import tomllib

    try:
        table: dict[str, Any] = tomllib.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        what = f'cannot read "{printable(path)}"'
        raise InvalidCall(what, given=printable(str(why)), do=printable(did_you_mean_file(path))) from error
    for key in ("tool", "tenonnx") if Path(path).name == PROJECT else ():
        table = _part(table, key)
    return table


def _part(table: Mapping[str, Any], key: str) -> dict[str, Any]:
    part = table.get(key, {})
    return part if isinstance(part, dict) else {}


def _defaults(
    path: str, table: Mapping[str, Any], command: click.Command, ctx: click.Context, *, is_named: bool
) -> dict[str, Any]:
    """A table of options as defaults of parameters."""
    from tenonnx_cli.output import complain

    known = dict(options_in_files(command, ctx))
    result: dict[str, Any] = {}
    for key, value in table.items():
        option = known.get(key.replace("_", "-"))
        if option is None:
            what = f'"{printable(path)}" has an unknown option of {command.name}'
            do = did_you_mean(key, known)
            raise InvalidCall(what, given=printable(key), available=listing(known), do=do)
        if not is_named and _is_named_alone(option):
            complain(f"note: {key} in {path} is ignored, as no --config names this file")
            continue
        result[str(option.name)] = _as_given(path, key, value, option)
    return result


def options_in_files(command: click.Command, ctx: click.Context) -> Iterator[tuple[str, click.Option]]:
    """The options that files may set, by flags without dashes."""
    for option in command.get_params(ctx):
        if isinstance(option, click.Option) and not _NOT_IN_FILES.intersection(option.opts):
            for flag in option.opts:
                if flag.startswith("--"):
                    yield flag.removeprefix("--"), option


def _is_named_alone(option: click.Option) -> bool:
    return bool(_NAMED_ALONE.intersection(option.opts)) or ".py" in (option.metavar or "")


def _as_given(path: str, key: str, value: Any, option: click.Option) -> Any:
    """Convert a value to the form that click expects from the command line."""
    if option.is_flag:
        if isinstance(value, bool):
            return value
        raise InvalidCall(f'"{printable(key)}" in "{printable(path)}" is not true or false', given=repr(value)[:80])
    each = value if isinstance(value, list) else [value]
    if any(isinstance(one, bool) or not isinstance(one, str | int | float) for one in each):
        what = f'"{printable(key)}" in "{printable(path)}" is not a number, a string or an array of these'
        raise InvalidCall(what, given=repr(value)[:80])
    texts = [str(one) for one in each]
    return texts if option.multiple else ",".join(texts)


def as_settings(ctx: click.Context, command: click.Command, given: Mapping[str, Any]) -> str:
    """The options of a call as a settings file, including those with a default."""
    lines = [f"[{command.name}]"]
    for flag, option in options_in_files(command, ctx):
        if f"--{flag}" != next(each for each in option.opts if each.startswith("--")):
            continue
        name = str(option.name)
        value = given.get(name, (ctx.default_map or {}).get(name))
        if value is None:
            value = option.get_default(ctx)
        if isinstance(value, bool | int | float) or (value and isinstance(value, str | list | tuple)):
            lines.append(f"{flag} = {_in_toml(value, option)}")
    return "\n".join(lines)


def _in_toml(value: Any, option: click.Option) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_in_toml(each, option) for each in value)}]"
    if isinstance(value, str) and isinstance(option.type, click.types.IntParamType | click.types.FloatParamType):
        return value
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
