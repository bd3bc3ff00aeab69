"""``tenonnx compose``: two models as one."""

from __future__ import annotations

from typing import Any

import click

from tenonnx_cli.options import load_model, models_argument
from tenonnx_cli.parts import output_option, pairs, write, write_options


@click.command("compose")
@models_argument
@output_option
@click.option(
    "--map", "mapping", multiple=True, callback=pairs, metavar="OUT=IN",
    help="Connect output OUT of FIRST to input IN of SECOND; by default those of the same name. Repeatable.",
)  # fmt: skip
@write_options
def command(first: str, second: str, output: str, mapping: dict[str, str], **writing: Any) -> None:
    """Connect two models, such as preprocessing and a network: outputs of FIRST become inputs of SECOND.

    Other inputs and outputs remain those of the result. Its opset is the newer of the two.
    """
    from tenonnx.tools import late

    whole = late("compose")(load_model(first), load_model(second), mapping or None)
    write(whole, output, first, second, **writing)
