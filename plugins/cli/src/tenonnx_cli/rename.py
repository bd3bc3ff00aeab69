"""``tenonnx rename``: other names for inputs, outputs and other values."""

from __future__ import annotations

from typing import Any

import click

from tenonnx_cli.options import load_model, model_argument
from tenonnx_cli.parts import output_option, pairs, rename_all, write, write_options


@click.command("rename")
@model_argument
@click.argument("renamed", nargs=-1, required=True, metavar="OLD=NEW...", callback=pairs)
@output_option
@write_options
def command(model: str, renamed: dict[str, str], output: str, **writing: Any) -> None:
    """Rename inputs, outputs, initializers and other values. Names can be swapped.

    Training state that the file holds for an initializer is renamed with it.
    """
    from tenonnx import InvalidCall

    if len(set(renamed.values())) < len(renamed):
        raise InvalidCall("two values cannot get the same name", given=", ".join(map("=".join, renamed.items())))
    graph = load_model(model)
    rename_all(graph, renamed)
    write(graph, output, model, training_state=True, **writing)
