"""``tenonnx targets import``: target files from published third-party measurements."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import click

from tenonnx_cli.command import Command
from tenonnx_cli.options import json_option
from tenonnx_cli.output import plural, say, say_json, say_table, working


@click.command(
    "import",
    cls=Command,
    examples=[
        "tenonnx targets import winml winml_cli-0.4.0-py3-none-any.whl -o winml.json",
        "tenonnx convert model.onnx -o moved.onnx --target winml.json#winml-openvino-npu",
    ],
)
@click.argument("tables", type=click.Choice(["winml"]))
@click.argument("wheel")
@click.option("-o", "--output", required=True, metavar="FILE", help="The target file to write (.json).")
@json_option
def command(tables: str, wheel: str, output: str, as_json: bool) -> None:
    """Write a target file from the tables of measured support in a package.

    WHEEL is the file that `pip download winml-cli --no-deps` gives, which is not installed. The file has a target for
    each execution provider and device. Needs tenonnx-testing and pyarrow.
    """
    from tenonnx import InvalidCall
    from tenonnx.tools import import_optional

    reader = import_optional(f"tenonnx_testing.probing.{tables}", "import targets")
    if not output.endswith(".json"):
        raise InvalidCall("the output of several targets has no suffix .json", given=output)
    if not Path(output).absolute().parent.is_dir():
        raise InvalidCall("no such folder", given=str(Path(output).parent))
    with working(f"reading {wheel}"):
        found = reader.winml_targets(Path(wheel))
    Path(output).write_text(import_module("tenonnx_testing.probing.target_text").json_texts(found), "utf-8")
    counts = {name: len({op for table in target["ops"] for op in table["names"]}) for name, target in found.items()}
    if as_json:
        say_json({"file": output, "targets": [{"name": name, "ops": count} for name, count in counts.items()]})
        return
    say(f"{output}: {plural(len(found), 'target')}")
    say_table([(f"{output}#{name}", plural(count, "op")) for name, count in counts.items()])
