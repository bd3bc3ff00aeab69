"""Names and output files of ``extract``, ``rename`` and ``compose``."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from tenonnx_cli.options import FILE, Decorated, hook_option, json_option, overwrite_option, quiet_option
from tenonnx_cli.output import plural, say, say_json, standard_output

if TYPE_CHECKING:
    from tenonnx import Graph


#: Commas and equals signs without a preceding backslash.
_COMMA, _EQUALS = re.compile(r"(?<!\\),"), re.compile(r"(?<!\\)=")


def names(ctx: click.Context, option: click.Parameter, values: Sequence[str]) -> Sequence[str]:
    """Check that each text has the form ``a,b``, for ``names_among``."""
    if not all(part.strip() for text in values for part in _COMMA.split(text)):
        raise click.BadParameter(f"{', '.join(values)!r} is not a list of names such as a,b", ctx, option)
    return values


def names_among(known: Collection[str], texts: Sequence[str]) -> list[str]:
    """Split texts of the form ``a,b`` into names. A text that is a ``known`` name is not split."""
    return [
        name
        for text in texts
        for name in ([text] if text in known else [_plain(part.strip()) for part in _COMMA.split(text)])
    ]


def pairs(ctx: click.Context, option: click.Parameter, values: Sequence[str]) -> Sequence[str]:
    """Check that each text has the form ``old=new``, for ``pairs_among``."""
    for text in values:
        if not any(0 < each.start() < len(text) - 1 for each in _EQUALS.finditer(text)):
            raise click.BadParameter(f"{text!r} is not of the form old=new", ctx, option)
    return values


def pairs_among(known: Collection[str], texts: Sequence[str]) -> list[tuple[str, str]]:
    """Split texts of the form ``old=new``: where that yields a ``known`` name, else at the first equals sign."""
    result = []
    for text in texts:
        ends = [each.start() for each in _EQUALS.finditer(text) if 0 < each.start() < len(text) - 1]
        cuts = [(_plain(text[:end]), _plain(text[end + 1 :])) for end in ends]
        result.append(next((cut for cut in cuts if cut[0] in known), cuts[0]))
    return result


def _plain(text: str) -> str:
    """A name with backslashes before commas and equals signs removed."""
    return re.sub(r"\\([,=])", r"\1", text)


def renaming(graph: Graph, texts: Sequence[str]) -> dict[str, str]:
    """Texts of the form ``old=new`` as a mapping. Raises ``InvalidCall`` for a name that occurs twice on one side."""
    from tenonnx import InvalidCall

    found = pairs_among({value.name for value in graph.values()}, texts)
    for side in zip(*found, strict=True):
        if len(set(side)) < len(side):
            given = ", ".join(map("=".join, found))
            raise InvalidCall("a value is renamed twice, or two values get the same name", given=given)
    return dict(found)


def rename_all(graph: Graph, renamed: Mapping[str, str]) -> None:
    """Rename values; names may be swapped."""
    with graph.editing():
        values = {new: graph.find(old) for old, new in renamed.items()}
        for value in values.values():
            graph.rename(value, graph.unique_name(f"{value.name}/before"))
        for new, value in values.items():
            graph.rename(value, new)


def output_file(ctx: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """Validate an output file, if there is one, before anything is read."""
    from tenonnx_cli.convert import check_output

    if value is not None:
        check_output(value)
    return value


#: ``-o FILE`` for a model; - is standard output, see ``opened``.
output_option = click.option(
    "-o",
    "--output",
    type=FILE,
    required=True,
    metavar="FILE",
    callback=output_file,
    help="A .onnx file, or a .safetensors file in the native format of tenonnx; - for standard output.",
)


def opened(file: str) -> str | BinaryIO:
    """A file named on the command line, as an argument of ``export``."""
    return standard_output() if file == "-" else file


def write_options(command: Decorated) -> Decorated:
    """``--hook``, ``--overwrite``, ``-q`` and ``--json``."""
    return hook_option(overwrite_option(quiet_option(json_option(command))))


def write(
    graph: Graph,
    file: str,
    *inputs: str,
    overwrite: bool,
    as_json: bool,
    post_export_hooks: Sequence[Any] = (),
    training_state: bool = False,
) -> None:
    """Write a model made of the files ``inputs``, and print its interface."""
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
