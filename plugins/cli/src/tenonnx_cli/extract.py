"""``tenonnx extract``: a part of a model as a model."""

from __future__ import annotations

from typing import Any

import click

from tenonnx_cli.options import FILE, load_model, model_argument
from tenonnx_cli.parts import names, output_file, write, write_options


@click.command("extract")
@model_argument
@click.argument("file", type=FILE, metavar="FILE", callback=output_file)
@click.option(
    "-i", "--inputs", multiple=True, callback=names, metavar="A,B",
    help="Values that become the inputs; by default the graph inputs that are needed. Repeatable.",
)  # fmt: skip
@click.option(
    "-o", "--outputs", multiple=True, callback=names, metavar="A,B",
    help="Values that become the outputs; by default the graph outputs. Repeatable.",
)  # fmt: skip
@write_options
def command(model: str, file: str, inputs: list[str], outputs: list[str], **writing: Any) -> None:
    """Extract a subgraph, given its inputs and outputs, to FILE.

    tenonnx inspect --nodes lists the values.
    """
    graph = load_model(model)
    part = graph.extract(inputs or None, outputs or [value.name for value in graph.outputs])
    write(part, file, model, **writing)
