"""Options that commands share, and what their values mean."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tenonnx_cli.output import complain, standard_input, working

if TYPE_CHECKING:
    from tenonnx import Graph
    from tenonnx.tools import Plugin

Command = TypeVar("Command", bound=Callable[..., Any])

InputShapes = dict[str, tuple[int | str | None, ...]]
FreeDims = dict[str, dict[int, str]]

#: The name of a file, which shells complete.
FILE = click.Path()

_AXIS = re.compile(r"\s*-?[0-9]{1,9}\s*")


def _opsets(ctx: click.Context, option: click.Parameter, values: Sequence[str]) -> dict[str, int] | None:
    """``13`` and ``com.microsoft=1`` as versions by domain."""
    versions: dict[str, int] = {}
    for text in values:
        domain, _, version = text.rpartition("=")
        if not version.isascii() or not version.isdigit() or not 0 < int(version) < 1 << 31:
            raise click.BadParameter(f"{text!r} is neither a version such as 13 nor domain=version", ctx, option)
        versions[domain or "ai.onnx"] = int(version)
    return versions or None


def names_like(example: str) -> Callable[[click.Context, click.Parameter, str | None], list[str] | None]:
    """What reads names with commas between, such as those of the example."""

    def read(ctx: click.Context, option: click.Parameter, value: str | None) -> list[str] | None:
        names = None if value is None else [name.strip() for name in value.split(",")]
        if names is not None and not all(names):
            raise click.BadParameter(f"{value!r} is no list of names such as {example}", ctx, option)
        return names

    return read


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


def _rules(ctx: click.Context, option: click.Parameter, values: Sequence[str]) -> None:
    """Let ``load_model`` know the rules of the files."""
    from tenonnx import InvalidCall
    from tenonnx.tools import rules_of
    from tenonnx_cli.code import loaded, telling

    for path in values:
        found = [replace(rule, function=telling(path, rule.function)) for rule in rules_of(loaded(path))]
        if not found:
            do = "write functions behind @import_rule(...), or a mapping rules = {...}"
            raise InvalidCall(f'"{path}" has no import rule', do=do)
        ctx.meta.setdefault(RULES, []).extend(found)


#: Where a command keeps the rules of files.
RULES = "tenonnx.rules"

rules_option = click.option(
    "--rules", multiple=True, type=FILE, callback=_rules, expose_value=False, metavar="FILE.py",
    help="A Python file with import rules, which replace nodes while the model is read. The file is executed. "
    "Repeatable.",
)  # fmt: skip


def model_argument(command: Command) -> Command:
    """The model that a command reads, and ``--rules`` for that."""
    return click.argument("model", type=FILE, metavar="MODEL")(rules_option(command))


def models_argument(command: Command) -> Command:
    """The two models that a command reads, and ``--rules`` for these."""
    both = click.argument("second", type=FILE, metavar="SECOND")(rules_option(command))
    return click.argument("first", type=FILE, metavar="FIRST")(both)


def rules_given() -> dict[str, Any]:
    """The argument ``rules`` of ``load``, where rules of files were given."""
    context = click.get_current_context(silent=True)
    rules = None if context is None else context.meta.get(RULES)
    return {"rules": rules} if rules else {}


def _free_dims(ctx: click.Context, option: click.Parameter, values: Sequence[str]) -> FreeDims:
    """``image:0=batch,2=height`` as symbols by input and axis."""
    found: FreeDims = {}
    for text in values:
        name, colon, dims = text.rpartition(":")
        for part in dims.split(","):
            axis, _, symbol = part.partition("=")
            if not name or not colon or not _AXIS.fullmatch(axis) or not symbol.strip():
                raise click.BadParameter(f"{text!r} is not of the form image:0=batch", ctx, option)
            found.setdefault(name, {})[int(axis)] = symbol.strip()
    return found


def _hooks(ctx: click.Context, option: click.Parameter, values: Sequence[str]) -> list[Any]:
    """Functions of files, and names of hooks that packages offer."""
    if not values:
        return []
    from tenonnx.tools import Hook, installed_hook
    from tenonnx_cli.code import function_of, loaded

    found = []
    for text in values:
        path, colon, name = text.rpartition(":")
        is_file = bool(colon) and path.lower().endswith(".py")
        found.append(Hook(function_of(loaded(path), path, name), name) if is_file else installed_hook(text))
    return found


#: By the kind of an option of a conversion, how click reads it.
_KINDS: Mapping[str, Mapping[str, Any]] = {
    "flag": {"is_flag": True},
    "text": {},
    "texts": {"multiple": True},
    "names": {"callback": names_like("ai.onnx,com.microsoft")},
    "opsets": {"multiple": True, "callback": _opsets},
    "dims": {"multiple": True, "callback": parse_shapes},
    "free_dims": {"multiple": True, "callback": _free_dims},
    "hooks": {"multiple": True, "callback": _hooks},
    "count": {"type": click.IntRange(min=0)},
    "version": {"type": click.IntRange(min=1)},
    "positive": {"type": click.FloatRange(min=0, min_open=True), "show_default": True},
    "difference": {"type": click.FloatRange(min=0)},
}


def config_options(
    *names: str, of: type[Any] | None = None, kinds: Mapping[str, Mapping[str, Any]] = _KINDS
) -> Callable[[Command], Command]:
    """A decorator that gives a command options, in order: fields of a configuration, by default ``ConvertConfig``.

    ``kinds`` says how click reads an option, by its kind.
    """
    from tenonnx.tools import ConvertConfig, options_of

    config: type[Any] = of or ConvertConfig
    known = options_of(config)

    def decorate(command: Command) -> Command:
        for name in reversed(names or list(known)):
            told = known[name]
            kind = {"type": click.Choice(told.choices)} if told.choices else kinds[told.kind]
            default: dict[str, Any] = {}
            if not kind.get("multiple"):
                default = {"default": config.__dataclass_fields__[name].default}
            if told.choices and default["default"] is not None:
                default["show_default"] = True
            command = click.option(told.flag, name, help=told.help, metavar=told.metavar, **{**kind, **default})(
                command
            )
        return command

    return decorate


def gathered(name: str, kind: type[Any]) -> Callable[[Command], Command]:
    """A decorator that hands a command the options which are fields of ``kind`` as one argument, ``name``."""
    own = [each.name for each in fields(kind)]

    def decorate(command: Command) -> Command:
        @wraps(command)
        def called(*arguments: Any, **given: Any) -> Any:
            made = kind(**{each: given.pop(each) for each in own})
            return command(*arguments, **{**given, name: made})

        return called  # type: ignore[return-value]

    return decorate


def in_order(*decorators: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """One decorator of several options, which ``--help`` shows in this order."""

    def decorate(command: Command) -> Command:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print the result as JSON on stdout, and nothing else."
)

shapes_option = config_options("input_shapes")
seed_option = config_options("seed")
exact_option = config_options("exact")
overwrite_option = config_options("overwrite")

#: How near numbers must be: ``--atol`` and ``--rtol``.
tolerance_options = config_options("absolute", "relative")

#: What a file may hold: ``--opset`` and ``--domains``.
version_options = config_options("opset_version", "domains")

#: Where to go: ``--opset``, ``--domains`` and ``--target``.
target_options = config_options("opset_version", "domains", "target")


def input_options(command: Command) -> Command:
    """What to feed: ``--input`` and ``--inputs``."""
    one = click.option(
        "--input", "inputs", multiple=True, metavar="NAME=FILE",
        help="The value of an input, from a .npy file or from the entry of that name in a .npz file. Repeatable. Or "
        "FILE alone: a .csv file with a column for each input.",
    )  # fmt: skip
    whole = click.option(
        "--inputs",
        "archive",
        type=FILE,
        metavar="FILE",
        help="A .npz or .csv file with the values of inputs by name; - for standard input.",
    )
    return one(whole(command))


def hook_option(command: Command) -> Command:
    """``--hook``, as ``hooks``."""
    return config_options("post_export_hooks")(command)


class TransformingCommand(click.Command):
    """A command with a flag for each transform of the installed packages. ``transforms_given`` are those given."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        flags = [
            _Transform([*_flags(plugin)], is_flag=True, expose_value=False, callback=_note_transform)
            for plugin in _transforms()
        ]
        return [*super().get_params(ctx), *flags]


def _transforms() -> list[Plugin]:
    """The transforms that have a flag of their own."""
    from tenonnx.tools import TRANSFORMS, names_of_options, plugins

    return [plugin for plugin in plugins(TRANSFORMS) if plugin.name not in names_of_options()]


def _flags(plugin: Plugin) -> dict[str, None]:
    """``--channels-first`` of ``channels_first``, and the name as it is."""
    return dict.fromkeys((f"--{plugin.name.replace('_', '-')}", f"--{plugin.name}"))


class _Transform(click.Option):
    """A flag whose help is what the transform says of itself first. It is imported for that alone."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        from tenonnx import PluginError

        plugin = _plugin_of(self)
        try:
            said = (inspect.getdoc(plugin.load()) or "").split("\n\n")[0]
        except PluginError as error:
            said = f"{error.what}."
        self.help = f"{' '.join(said.split())} Offered by {plugin.source}."
        return super().get_help_record(ctx)


def _note_transform(ctx: click.Context, option: click.Parameter, wanted: bool) -> None:
    if wanted:
        ctx.meta.setdefault(_GIVEN, []).append(_plugin_of(option).name)


def _plugin_of(option: click.Parameter) -> Plugin:
    return next(plugin for plugin in _transforms() if list(_flags(plugin)) == option.opts)


#: Where a command keeps the names of the transforms whose flags were given.
_GIVEN = "tenonnx.transforms"


def transforms_given() -> Sequence[str]:
    """The names of the transforms whose flags were given."""
    given: Sequence[str] = click.get_current_context().meta.get(_GIVEN, ())
    return given


def common_sizes(one: Graph, other: Graph) -> InputShapes:
    """The numbers that the second model demands where the first leaves a dim open."""
    from tenonnx import TensorType

    theirs = {value.name: value.type for value in other.inputs}
    found: InputShapes = {}
    for value in one.inputs:
        ours, kind = value.type, theirs.get(value.name)
        if isinstance(ours, TensorType) and isinstance(kind, TensorType) and ours.rank == kind.rank and ours.shape:
            pairs = zip(ours.shape, kind.shape or (), strict=True)
            found[value.name] = tuple(b if isinstance(b, int) and not isinstance(a, int) else None for a, b in pairs)
    return found


def note_unused(asked: Mapping[str, int] | None, domains: Collection[str]) -> None:
    """Say which versions were asked for that no node of the result has a use for."""
    for domain in asked or ():
        if domain not in domains:
            complain(f'note: no node is of domain "{domain}", so its version is ignored')


def loading_options(given: Sequence[str]) -> dict[str, Any]:
    """Options ``NAME=VALUE`` of what reads a model; a value that is no JSON is text."""
    from tenonnx import InvalidCall

    found: dict[str, Any] = {}
    for each in given:
        name, separator, value = each.partition("=")
        if not separator or not name.isidentifier() or name in found:
            do = "as in --load inputs=columns --load zipmap=true"
            raise InvalidCall("--load must be NAME=VALUE, each name once", given=each, do=do)
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def load_model(path: str, *, trust: bool = False, **options: Any) -> Graph:
    """The model that a command was given; a file whose code is run to read it must be trusted."""
    from tenonnx import load
    from tenonnx.tools import weight_bytes
    from tenonnx_cli.memory import brought

    options = {**rules_given(), **options, **({"trust": True} if trust else {})}
    with working(f"reading {path}"):
        graph = load(opened_for_reading(path), **options)
    brought(weight_bytes(graph))
    return graph


def opened_for_reading(path: str) -> str | bytes:
    """What ``load`` and the like read for a model that was named on the command line."""
    if path.endswith(".py"):
        from tenonnx import InvalidCall

        what = "a Python file must be named with the function in it that returns the model"
        raise InvalidCall(what, given=path, do=f"{path}:FUNCTION")
    return standard_input() if path == "-" else path
