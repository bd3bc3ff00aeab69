"""``tenonnx extract``: a part of a model as a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from tenonnx_cli.command import Command
from tenonnx_cli.options import load_model, model_argument
from tenonnx_cli.parts import names, names_among, output_option, write, write_options


@click.command(
    "extract",
    cls=Command,
    examples=[
        "tenonnx extract model.onnx -o part.onnx --output-names features",
        "tenonnx extract model.onnx -o part.onnx --input-names a,b --output-names c",
    ],
)
@model_argument
@output_option
@click.option(
    "-i",
    "--input-names",
    "inputs",
    multiple=True,
    callback=names,
    metavar="A,B",
    help="Values that become the inputs; by default the graph inputs that are needed. Repeatable.",
)
@click.option(
    "--output-names",
    "outputs",
    multiple=True,
    callback=names,
    metavar="A,B",
    help="Values that become the outputs; by default the graph outputs. Repeatable.",
)
@write_options
def command(model: str, output: str, inputs: Sequence[str], outputs: Sequence[str], **writing: Any) -> None:
    """Extract a subgraph, given its inputs and outputs.

    tenonnx inspect --nodes lists the values. A comma in a name may need a backslash ahead of it.
    """
    graph = load_model(model)
    known = {value.name for value in graph.values()}
    wanted = names_among(known, outputs) or [value.name for value in graph.outputs]
    part = graph.extract(names_among(known, inputs) or None, wanted)
    write(part, output, model, **writing)
