"""What ``extract``, ``rename`` and ``compose`` share: names on the command line, and writing the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from tenonnx_cli.options import FILE, Command, hook_option, json_option, overwrite_option
from tenonnx_cli.output import plural, say, say_json, standard_output

if TYPE_CHECKING:
    from tenonnx import Graph


def names(ctx: click.Context, option: click.Parameter, values: Sequence[str]) -> list[str]:
    """``a,b`` and repeated options as one list of names."""
    found = [name.strip() for text in values for name in text.split(",")]
    if not all(found):
        raise click.BadParameter(f"{', '.join(values)!r} is no list of names such as a,b", ctx, option)
    return found


def pairs(ctx: click.Context, option: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    """``old=new`` as a mapping."""
    found: dict[str, str] = {}
    for text in values:
        old, equals, new = text.partition("=")
        if not equals or not old or not new or old in found:
            raise click.BadParameter(f"{text!r} is not of the form old=new, or repeats a name", ctx, option)
        found[old] = new
    return found


def rename_all(graph: Graph, renamed: Mapping[str, str]) -> None:
    """Give values other names, old to new; two may be exchanged."""
    with graph.editing():
        values = {new: graph.find(old) for old, new in renamed.items()}
        for value in values.values():
            graph.rename(value, graph.unique_name(f"{value.name}/before"))
        for new, value in values.items():
            graph.rename(value, new)


def output_file(ctx: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """A file that a model can be written to, if one is named; that is judged before anything is read."""
    from tenonnx_cli.convert import check_output

    if value is not None:
        check_output(value)
    return value


#: ``-o FILE``, a model: - is standard output, as ``opened`` has it.
output_option = click.option(
    "-o", "--output", type=FILE, required=True, metavar="FILE", callback=output_file,
    help="A .onnx file, or a .safetensors file in the native format of tenonnx; - for standard output.",
)  # fmt: skip


def opened(file: str) -> str | BinaryIO:
    """What ``export`` writes to for a file that was named on the command line."""
    return standard_output() if file == "-" else file


def write_options(command: Command) -> Command:
    """``--hook``, ``--overwrite`` and ``--json``."""
    return hook_option(overwrite_option(json_option(command)))


def write(
    graph: Graph,
    file: str,
    *inputs: str,
    overwrite: bool,
    as_json: bool,
    post_export_hooks: Sequence[Any] = (),
    training_state: bool = False,
) -> None:
    """Write a model, made of the files ``inputs``, and say what it takes and gives."""
    from tenonnx import export
    from tenonnx_cli.convert import note_replaced

    note_replaced(file, inputs)
    export(
        graph,
        opened(file),
        overwrite=overwrite,
        post_export_hooks=post_export_hooks,
        include_training_state=training_state,
    )
    shown = {
        kind: [{"name": value.name, "type": str(value.type or "?")} for value in values]
        for kind, values in (("inputs", graph.inputs), ("outputs", graph.outputs))
    }
    if as_json:
        say_json({"output": file, "nodes": len(graph.nodes), **shown})
        return
    say(f"{file}: {plural(len(graph.nodes), 'node')}")
    for kind, values in shown.items():
        for value in values:
            say(f"  {kind[:-1]:<6}  {value['name']}: {value['type']}")
