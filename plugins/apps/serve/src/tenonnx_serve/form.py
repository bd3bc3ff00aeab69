"""The form of a conversion, generated from command options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import click

from tenonnx import InvalidCall, PluginError
from tenonnx.tools import backends, output_formats, runtimes
from tenonnx_cli.tools import program
from tenonnx_serve.sources import read_suffixes

#: Options that the page lacks: they name files of this machine or concern folders, run code, or only affect a terminal.
KEPT_BACK = frozenset(
    (
        "--output",
        "--adapter",
        "--cache",
        "--layout",
        "--max-shard",
        "--json",
        "--help",
        "-h",
        "--hook",
        "--constant",
        "--config",
        "--rules",
        "--load",
        "--trust",
        "--input",
        "--inputs",
        "--overwrite",
        "--example",
        "--dims",
        "--costs",
        "--quiet",
        "--verbose",
    )
)

#: Parameters of ``convert`` for reading FILE.py:FUNCTION, with their names in the reader.
READING = {"task": "task", "input_names": "input_names", "output_names": "output_names", "fold": "simplify"}


@cache
def form() -> dict[str, Any]:
    """The options of ``convert`` and of other installed commands, with formats and targets."""
    found, _ = runtimes()
    return {
        "convert": [_described(option, context) for option, context in _options("convert")],
        "quantize": [_described(option, context) for option, context in _options("quantize")],
        "suffixes": read_suffixes(),
        "formats": written_formats(),
        "backends": ["auto", "numpy", *backends()],
        "explain": methods_of_attribution(),
        "targets": {name: {"title": runtime.title, "opsets": runtime.opsets} for name, runtime in found.items()},
    }


def written_formats() -> dict[str, str]:
    """Export formats by suffix, with titles: those whose runtimes are installed."""
    return {each["suffix"]: each["title"] for each in output_formats() if each["installed"]}


def methods_of_attribution() -> list[str]:
    """The attribution methods of ``explain``; empty if its package is not installed."""
    command = command_named("explain")
    options = () if command is None else command.params
    method = next((each for each in options if each.name == "method"), None)
    return list(method.type.choices) if method is not None and isinstance(method.type, click.Choice) else []


def arguments(command: str, options: Mapping[str, Any]) -> list[str]:
    """Convert options by flag to command-line arguments; values are booleans, a string, or several.

    Raises ``InvalidCall`` for options that the page does not offer.
    """
    known = {max(option.opts, key=len): option for option, _ in _options(command)}
    result = []
    for flag, value in options.items():
        option = known.get(flag)
        if option is None:
            raise InvalidCall(f"{command} takes no {str(flag)[:80]} from the page", available=", ".join(known))
        if option.is_flag:
            result += [flag] if value is True else option.secondary_opts[:1] if value is False else []
            continue
        texts = value if isinstance(value, list) else [value]
        result += [f"{flag}={text}" for text in map(str, texts) if text.strip()]
    return result


def command_named(name: str) -> click.Command | None:
    """A command of the command line, None if its package is not installed."""
    try:
        return program.get_command(click.Context(program), name)
    except PluginError:
        return None


def _options(name: str) -> Sequence[tuple[click.Option, click.Context]]:
    command = command_named(name)
    if command is None:
        return ()
    context = click.Context(command)
    return [
        (option, context)
        for option in command.get_params(context)
        if isinstance(option, click.Option) and not KEPT_BACK.intersection(option.opts)
    ]


def _described(option: click.Option, context: click.Context) -> dict[str, Any]:
    flag = max(option.opts, key=len)
    record = option.get_help_record(context)  # loads the help texts of transforms
    kind = "choice" if isinstance(option.type, click.Choice) else "text"
    if option.is_flag:
        kind = "switch" if option.secondary_opts else "flag"
    elif isinstance(option.type, click.types.IntParamType | click.types.FloatParamType):
        kind = "number"
    default = option.get_default(context)
    return {
        "flag": flag,
        "kind": kind,
        "help": option.help or (record[1] if record else ""),
        "metavar": option.metavar or "",
        "choices": list(option.type.choices) if isinstance(option.type, click.Choice) else [],
        "several": option.multiple,
        "reading": option.name in READING,
        "default": default if isinstance(default, bool | int | float | str) else None,
    }
