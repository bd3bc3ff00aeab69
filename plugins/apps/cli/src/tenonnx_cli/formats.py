"""``tenonnx formats``: the file formats that can be written."""

from __future__ import annotations

import click

from tenonnx_cli.command import Command
from tenonnx_cli.options import json_option
from tenonnx_cli.output import say, say_json, say_table


@click.command("formats", cls=Command, examples=["tenonnx formats", "tenonnx formats --json"])
@json_option
def command(as_json: bool) -> None:
    """List the file formats that a model can be written in.

    tenonnx convert MODEL -o FILE writes the format of the suffix, and compares the written file, in the format's own
    runtime, with the model.
    """
    from tenonnx.tools import output_formats

    found = output_formats()
    if as_json:
        say_json(found)
        return
    rows = [
        (each["suffix"], each["title"], each["package"], each["runtime"] if each["installed"] else "not installed")
        for each in found
    ]
    say_table(rows, ("suffix", "format", "package", "verified by"))
    say("tenonnx convert MODEL -o FILE writes the format of the suffix")
