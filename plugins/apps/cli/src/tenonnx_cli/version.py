"""``tenonnx version``: the version of the installed package."""

from __future__ import annotations

import click

from tenonnx_cli.command import Command
from tenonnx_cli.options import json_option
from tenonnx_cli.output import say, say_json


@click.command("version", cls=Command, examples=["tenonnx version", "tenonnx version --json"])
@json_option
def command(as_json: bool) -> None:
    """Show the version of tenonnx; `tenonnx doctor` shows those of everything installed."""
    import tenonnx

    if as_json:
        say_json({"tenonnx": tenonnx.__version__})
    else:
        say(f"tenonnx {tenonnx.__version__}")
