"""The form of a conversion, made from the options of the commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import click

from tenonnx import InvalidCall, PluginError
from tenonnx.tools import backends, output_formats, runtimes
from tenonnx_cli.tools import program
from tenonnx_serve.sources import read_suffixes

#: Options that are not for the page: they name files of this machine, run code, or change only what a terminal shows.
KEPT_BACK = frozenset(
    (
        "--output",
        "--layout",
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

#: The parameters of ``convert`` that tell how FILE.py:FUNCTION is read, and what the reader calls them.
READING = {"task": "task", "input_names": "input_names", "output_names": "output_names", "fold": "simplify"}


@cache
def form() -> dict[str, Any]:
    """The options of ``convert``, and of other commands where their packages are there; formats and targets."""
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
    """Titles of the formats that an export can have, by suffix: those whose runtimes are installed."""
    return {each["suffix"]: each["title"] for each in output_formats() if each["installed"]}


def methods_of_attribution() -> list[str]:
    """The methods of ``explain``, none where its package is not there."""
    command = command_named("explain")
    options = () if command is None else command.params
    method = next((each for each in options if each.name == "method"), None)
    return list(method.type.choices) if method is not None and isinstance(method.type, click.Choice) else []


def arguments(command: str, options: Mapping[str, Any]) -> list[str]:
    """Options by flag as arguments of a command: true or false, a text, or several.

    Raises ``InvalidCall`` for what the page cannot ask for.
    """
    known = {max(option.opts, key=len): option for option, _ in _options(command)}
    found = []
    for flag, value in options.items():
        option = known.get(flag)
        if option is None:
            raise InvalidCall(f"{command} takes no {str(flag)[:80]} from the page", available=", ".join(known))
        if option.is_flag:
            found += [flag] if value is True else option.secondary_opts[:1] if value is False else []
            continue
        texts = value if isinstance(value, list) else [value]
        found += [f"{flag}={text}" for text in map(str, texts) if text.strip()]
    return found


def command_named(name: str) -> click.Command | None:
    """A command of the command line, where its package is installed."""
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
    told = option.get_help_record(context)  # transforms know their help then
    kind = "choice" if isinstance(option.type, click.Choice) else "text"
    if option.is_flag:
        kind = "switch" if option.secondary_opts else "flag"
    elif isinstance(option.type, click.types.IntParamType | click.types.FloatParamType):
        kind = "number"
    default = option.get_default(context)
    return {
        "flag": flag,
        "kind": kind,
        "help": option.help or (told[1] if told else ""),
        "metavar": option.metavar or "",
        "choices": list(option.type.choices) if isinstance(option.type, click.Choice) else [],
        "several": option.multiple,
        "reading": option.name in READING,
        "default": default if isinstance(default, bool | int | float | str) else None,
    }
