"""``tenonnx rename``: other names for inputs, outputs and other values."""

from __future__ import annotations

import click

from tenonnx.cli.options import load_model, model_argument
from tenonnx.cli.parts import output_file, pairs, write, write_options


@click.command("rename")
@model_argument
@click.argument("renamed", nargs=-1, required=True, metavar="OLD=NEW...", callback=pairs)
@click.option("-o", "--output", required=True, metavar="FILE", callback=output_file, help="The file to write.")
@write_options
def command(model: str, renamed: dict[str, str], output: str, overwrite: bool, as_json: bool) -> None:
    """Give inputs, outputs, weights and other values other names. Two names may be exchanged."""
    from tenonnx.errors import InvalidCall

    if len(set(renamed.values())) < len(renamed):
        raise InvalidCall("every value must get a name of its own", given=", ".join(map("=".join, renamed.items())))
    graph = load_model(model)
    with graph.editing():
        values = {new: graph.find(old) for old, new in renamed.items()}
        for value in values.values():
            graph.rename(value, graph.unique_name(f"{value.name}/before"))
        for new, value in values.items():
            graph.rename(value, new)
    write(graph, output, model, overwrite=overwrite, as_json=as_json)
