"""``tenonnx compose``: two models as one."""

from __future__ import annotations

from typing import Any

import click

from tenonnx_cli.options import load_model, rules_option
from tenonnx_cli.parts import output_file, pairs, write, write_options


@click.command("compose")
@click.argument("first", metavar="FIRST")
@click.argument("second", metavar="SECOND")
@rules_option
@click.option("-o", "--output", required=True, metavar="FILE", callback=output_file, help="The file to write.")
@click.option(
    "--map", "mapping", multiple=True, callback=pairs, metavar="OUT=IN",
    help="Which output of FIRST goes to which input of SECOND, by default those of one name. Repeatable.",
)  # fmt: skip
@write_options
def command(first: str, second: str, output: str, mapping: dict[str, str], **writing: Any) -> None:
    """Join two models, such as a preprocessing and a network: SECOND reads what FIRST computes.

    What is not joined stays an input or output of the whole. The opset is the newer of the two.
    """
    from tenonnx import compose

    whole = compose(load_model(first), load_model(second), mapping or None)
    write(whole, output, first, second, **writing)
