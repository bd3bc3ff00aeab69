"""``tenonnx rename``: other names for inputs, outputs and other values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from tenonnx_cli.command import Command
from tenonnx_cli.options import load_model, model_argument
from tenonnx_cli.parts import output_option, pairs, rename_all, renaming, write, write_options


@click.command(
    "rename",
    cls=Command,
    examples=[
        "tenonnx rename model.onnx x=image y=scores -o renamed.onnx",
        "tenonnx rename model.onnx a=b b=a -o swapped.onnx",
    ],
)
@model_argument
@click.argument("renamed", nargs=-1, required=True, metavar="OLD=NEW...", callback=pairs)
@output_option
@write_options
def command(model: str, renamed: Sequence[str], output: str, **writing: Any) -> None:
    """Rename inputs, outputs, initializers and other values. Names can be swapped.

    A comma or an equals sign in a name may need a backslash ahead of it.

    Training state that the file holds for an initializer is renamed with it.
    """
    graph = load_model(model)
    rename_all(graph, renaming(graph, renamed))
    write(graph, output, model, training_state=True, **writing)
