"""Settings files for the Python interface."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import TYPE_CHECKING

import click

from tenonnx import InvalidCall
from tenonnx_cli.printable import printable

if TYPE_CHECKING:
    from tenonnx import ConvertConfig

#: Options of ``convert`` that only affect printing.
_PRINTED = frozenset({"costs", "quiet", "verbose"})


def read_config(path: str | os.PathLike[str], profile: str | None = None) -> ConvertConfig:
    """The options of ``tenonnx convert --config`` in a TOML file, for ``tx.convert(..., config=...)``.

    They are in the table ``[tool.tenonnx.convert]`` of a pyproject.toml, or ``[convert]`` of other files; those of
    ``profile`` have priority. Raises ``InvalidCall`` for a file that cannot be read, an unknown option or profile, an
    invalid value, and an option of reading the source.
    """
    from tenonnx import ConvertConfig
    from tenonnx.tools import given_config, step_options
    from tenonnx_cli.config_file import settings_of
    from tenonnx_cli.convert import command
    from tenonnx_cli.options import transforms_given

    name = printable(os.fspath(path))
    defaults = settings_of(click.Context(command), command, os.fspath(path), profile)
    try:
        context = command.make_context("convert", ["-", "--output", "-"], default_map=defaults)
    except click.UsageError as error:
        raise InvalidCall(f'"{name}": {error.format_message()}') from error
    with context:
        fields_known = {*(each.name for each in fields(ConvertConfig)), *step_options()}
        source = click.core.ParameterSource.DEFAULT_MAP
        given = {key: value for key, value in context.params.items() if context.get_parameter_source(key) is source}
        if others := sorted(given.keys() - fields_known - _PRINTED):
            raise InvalidCall(
                f'"{name}" has options for reading the source, which Python takes as reading=',
                given=", ".join(others),
                do="give them as reading= of tenonnx.convert",
            )
        options = {key: value for key, value in given.items() if key in fields_known}
        config: ConvertConfig = given_config(ConvertConfig, None, {"transforms": transforms_given(), **options})
        return config
