"""Options that commands share, and what their values mean."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tenonnx.cli.output import complain, working

if TYPE_CHECKING:
    from tenonnx.graph.graph import Graph

Command = TypeVar("Command", bound=Callable[..., Any])

#: Plugins of this entry-point group are functions from a graph to a graph, each a flag of its name.
TRANSFORMS = "tenonnx.transforms"

InputShapes = dict[str, tuple[int | str | None, ...]]


def _opsets(ctx: click.Context, option: click.Parameter, values: Sequence[str]) -> dict[str, int] | None:
    """``13`` and ``com.microsoft=1`` as versions by domain."""
    versions: dict[str, int] = {}
    for text in values:
        domain, _, version = text.rpartition("=")
        if not version.isascii() or not version.isdigit() or not 0 < int(version) < 1 << 31:
            raise click.BadParameter(f"{text!r} is neither a version such as 13 nor domain=version", ctx, option)
        versions[domain or "ai.onnx"] = int(version)
    return versions or None


def _domains(ctx: click.Context, option: click.Parameter, value: str | None) -> list[str] | None:
    if value is None:
        return None
    names = [name.strip() for name in value.split(",")]
    if not all(names):
        raise click.BadParameter(f"{value!r} is no list such as ai.onnx,com.microsoft", ctx, option)
    return names


def parse_shapes(ctx: click.Context, option: click.Parameter, values: Sequence[str]) -> InputShapes:
    """``x:1,batch,?`` as dims: numbers, symbols or expressions of them, and None."""
    shapes: InputShapes = {}
    for text in values:
        name, colon, dims = text.rpartition(":")
        parts = [part.strip() for part in dims.split(",")] if dims.strip() else []
        if not name or not colon or not all(parts):
            raise click.BadParameter(f"{text!r} is no shape such as x:1,3,224,224", ctx, option)
        shapes[name] = tuple(_dim(part) for part in parts)
    return shapes


def _dim(text: str) -> int | str | None:
    if text == "?":
        return None
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else text


model_argument = click.argument("model", metavar="MODEL")

json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON, alone on stdout.")

shapes_option = click.option(
    "--input-shapes", multiple=True, callback=parse_shapes, metavar="NAME:DIMS",
    help="Dims of an input, such as x:1,3,224,224 or mask:batch,past+new. Repeatable.",
)  # fmt: skip

seed_option = click.option("--seed", type=click.IntRange(min=0), default=0, help="Seed of inputs that are made up.")


def version_options(command: Command) -> Command:
    """What a file may hold: ``--opset`` and ``--domains``."""
    opset = click.option(
        "--opset", "opset_version", multiple=True, callback=_opsets, metavar="N",
        help="The opset of ai.onnx, or of another domain as com.microsoft=1. Repeatable.",
    )  # fmt: skip
    domains = click.option(
        "--domains", callback=_domains, metavar="A,B", help="The only domains that the result may use."
    )
    return opset(domains(command))


def target_options(command: Command) -> Command:
    """Where to go: ``--opset``, ``--domains`` and ``--target``."""
    target = click.option(
        "--target",
        metavar="NAME",
        help="A runtime or converter that is to take the result; tenonnx targets lists them.",
    )
    return version_options(target(command))


def input_options(command: Command) -> Command:
    """What to feed: ``--input`` and ``--inputs``."""
    one = click.option(
        "--input", "inputs", multiple=True, metavar="NAME=FILE",
        help="Contents of an input: a .npy file, or a .npz file that holds the name. Repeatable. "
        "Or a .csv file alone, with a column for each input.",
    )  # fmt: skip
    whole = click.option(
        "--inputs", "archive", metavar="FILE", help="A .npz file with contents of inputs by name, or a .csv file."
    )
    return one(whole(command))


def tolerance_options(command: Command) -> Command:
    """How near numbers must be: ``--atol`` and ``--rtol``."""
    for option, kind in (("--rtol", "relative"), ("--atol", "absolute")):
        told = f"Allowed {kind} difference, in place of the table's."
        command = click.option(option, kind, type=click.FloatRange(min=0), help=told)(command)
    return command


fuse_option = click.option(
    "--fuse/--no-fuse", default=None,
    help="Put one node where the body of an op stands that the target has, such as LayerNormalization or Attention. "
    "By default where --opset is newer than the model's, or --domains has one that the model does not use.",
)  # fmt: skip


def has_more_ops(graph: Graph, opset_version: Mapping[str, int] | None, domains: Sequence[str] | None) -> bool:
    """Whether newer versions or other domains are asked for than the graph has."""
    newer = any(version > graph.opsets.get(domain, 0) for domain, version in (opset_version or {}).items())
    return newer or any(domain not in graph.opsets for domain in domains or ())


overwrite_option = click.option("--overwrite", is_flag=True, help="Replace the output file even if it is read-only.")


class TransformingCommand(click.Command):
    """A command with a flag for each transform of the installed packages. ``transformed`` applies those given."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        from tenonnx.registry.discovery import plugins

        flags = [
            _Transform([f"--{plugin.name}"], is_flag=True, expose_value=False, callback=_note_transform)
            for plugin in plugins(TRANSFORMS)
        ]
        return [*super().get_params(ctx), *flags]


class _Transform(click.Option):
    """A flag whose help is what the transform says of itself first. It is imported for that alone."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        from tenonnx.errors import PluginError
        from tenonnx.registry.discovery import plugins

        (plugin,) = (each for each in plugins(TRANSFORMS) if f"--{each.name}" in self.opts)
        try:
            said = (inspect.getdoc(plugin.load()) or "").split("\n\n")[0]
        except PluginError as error:
            said = f"{error.what}."
        self.help = f"{' '.join(said.split())} Offered by {plugin.source}."
        return super().get_help_record(ctx)


def _note_transform(ctx: click.Context, option: click.Parameter, wanted: bool) -> None:
    if wanted:
        ctx.meta.setdefault(TRANSFORMS, set()).add(option.opts[0].removeprefix("--"))


def transformed(graph: Graph) -> Graph:
    """``graph`` after the transforms whose flags were given."""
    from tenonnx.registry.discovery import plugins

    wanted = click.get_current_context().meta.get(TRANSFORMS, ())
    for plugin in plugins(TRANSFORMS) if wanted else ():
        if plugin.name in wanted:
            graph = plugin.load()(graph)
    return graph


def note_unused(asked: Mapping[str, int] | None, domains: Collection[str]) -> None:
    """Say which versions were asked for that no node of the result has a use for."""
    for domain in asked or ():
        if domain not in domains:
            complain(f'note: no node is of domain "{domain}", so its version is left out')


def load_model(path: str) -> Graph:
    """The model that a command was given."""
    from tenonnx.formats.loaders import load

    with working(f"reading {path}"):
        return load(path)
