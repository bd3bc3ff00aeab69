"""Options shared by commands, and the parsing of their values."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tenonnx_cli.command import Command
from tenonnx_cli.output import complain, standard_input, verdict_alone, working
from tenonnx_cli.trust import trust_given

if TYPE_CHECKING:
    from tenonnx import Graph
    from tenonnx.tools import Option, Plugin

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

InputShapes = dict[str, tuple[int | str | None, ...]]
FreeDims = dict[str, dict[int, str]]

#: Device names of standard input and output, which are treated like ``-``.
_STREAMS = {"/dev/stdin", "/dev/stdout", "/dev/fd/0", "/dev/fd/1"}


class _File(click.Path):
    """The path of a file, or ``-``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return "-" if value in _STREAMS else super().convert(value, param, ctx)


#: The name of a file, which shells complete.
FILE = _File()

_AXIS = re.compile(r"\s*-?[0-9]{1,9}\s*")


def _opsets(ctx: click.Context, option: click.Parameter, values: Sequence[str]) -> dict[str, int] | None:
    """Parse ``13`` and ``com.microsoft=1`` as versions by domain."""
    versions: dict[str, int] = {}
    for text in values:
        domain, _, version = text.rpartition("=")
        if not version.isascii() or not version.isdigit() or not 0 < int(version) < 1 << 31:
            raise click.BadParameter(f"{text!r} is neither a version such as 13 nor domain=version", ctx, option)
        versions[domain or "ai.onnx"] = int(version)
    return versions or None


def names_like(example: str) -> Callable[[click.Context, click.Parameter, str | None], list[str] | None]:
    """Parser of comma-separated names, such as those of the example."""

    def read(ctx: click.Context, option: click.Parameter, value: str | None) -> list[str] | None:
        names = None if value is None else [name.strip() for name in value.split(",")]
        if names is not None and not all(names):
            raise click.BadParameter(f"{value!r} is not a list of names such as {example}", ctx, option)
        return names

    return read


def input_columns(ctx: click.Context, option: click.Parameter, values: Sequence[str]) -> dict[str, list[str]]:
    """Parse ``x=age,income`` as the table columns of an input."""
    result = {}
    for text in values:
        name, equals, names = text.partition("=")
        parts = [part.strip() for part in names.split(",")]
        if not name or not equals or not all(parts):
            raise click.BadParameter(f"{text!r} is not of the form x=age,income", ctx, option)
        result[name] = parts
    return result


columns_option = click.option(
    "--columns",
    multiple=True,
    callback=input_columns,
    metavar="INPUT=A,B",
    help="The columns of a table that make an input, such as x=age,income. By default the column of the input's name, "
    "or for the only input of a model all that are left. Repeatable.",
)


def parse_shapes(ctx: click.Context, option: click.Parameter, values: Sequence[str]) -> InputShapes:
    """Parse ``x:1,batch,?`` as dims: numbers, symbols or expressions, and None."""
    shapes: InputShapes = {}
    for text in values:
        name, colon, dims = text.rpartition(":")
        parts = [part.strip() for part in dims.split(",")] if dims.strip() else []
        if not name or not colon or not all(parts):
            raise click.BadParameter(f"{text!r} is not a shape such as x:1,3,224,224", ctx, option)
        shapes[name] = tuple(_dim(part) for part in parts)
    return shapes


def _dim(text: str) -> int | str | None:
    if text == "?":
        return None
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else text


def _rules(ctx: click.Context, option: click.Parameter, values: Sequence[str]) -> None:
    """Store the rules of the files for ``load_model``."""
    from tenonnx import InvalidCall
    from tenonnx.tools import rules_of
    from tenonnx_cli.code import loaded, telling

    for path in values:
        found = [replace(rule, function=telling(path, rule.function)) for rule in rules_of(loaded(path))]
        if not found:
            do = "write functions behind @import_rule(...), or a mapping rules = {...}"
            raise InvalidCall(f'"{path}" has no import rule', do=do)
        ctx.meta.setdefault(RULES, []).extend(found)


#: Context key for the rules of files.
RULES = "tenonnx.rules"

rules_option = click.option(
    "--rules",
    multiple=True,
    type=FILE,
    callback=_rules,
    expose_value=False,
    metavar="FILE.py",
    help="A Python file with import rules, which replace nodes while the model is read. The file is executed. "
    "Repeatable.",
)


def model_argument(command: Decorated) -> Decorated:
    """The argument for a model, with ``--rules``."""
    return click.argument("model", type=FILE, metavar="MODEL")(rules_option(command))


def models_argument(command: Decorated) -> Decorated:
    """The arguments for two models, with ``--rules``."""
    both = click.argument("second", type=FILE, metavar="SECOND")(rules_option(command))
    return click.argument("first", type=FILE, metavar="FIRST")(both)


def rules_given() -> dict[str, Any]:
    """The argument ``rules`` of ``load``, if ``--rules`` was given."""
    context = click.get_current_context(silent=True)
    rules = None if context is None else context.meta.get(RULES)
    return {"rules": rules} if rules else {}


def _free_dims(ctx: click.Context, option: click.Parameter, values: Sequence[str]) -> FreeDims:
    """Parse ``image:0=batch,2=height`` as symbols by input and axis."""
    result: FreeDims = {}
    for text in values:
        name, colon, dims = text.rpartition(":")
        for part in dims.split(","):
            axis, _, symbol = part.partition("=")
            if not name or not colon or not _AXIS.fullmatch(axis) or not symbol.strip():
                raise click.BadParameter(f"{text!r} is not of the form image:0=batch", ctx, option)
            result.setdefault(name, {})[int(axis)] = symbol.strip()
    return result


def _hooks(ctx: click.Context, option: click.Parameter, values: Sequence[str]) -> list[Any]:
    """Parse functions of files, and names of installed hooks."""
    if not values:
        return []
    result = []
    for text in values:
        from tenonnx.tools import Hook, installed_hook
        from tenonnx_cli.code import function_of, loaded

        path, colon, name = text.rpartition(":")
        is_file = bool(colon) and path.lower().endswith(".py")
        result.append(Hook(function_of(loaded(path), path, name), name) if is_file else installed_hook(text))
    return result


def _contents(ctx: click.Context, option: click.Parameter, values: Sequence[str]) -> dict[str, Any]:
    """Parse ``NAME=FILE.npy`` and ``NAME=VALUE`` (JSON) as contents by name."""
    result: dict[str, Any] = {}
    for text in values:
        from tenonnx_cli.arrays import read_array

        name, _, value = text.partition("=")
        try:
            result[name] = read_array(value) if value.endswith(".npy") else json.loads(value)
        except ValueError as error:
            raise click.BadParameter(
                f"{text!r} is neither NAME=FILE.npy nor NAME=VALUE in JSON", ctx, option
            ) from error
    return result


def _limits(ctx: click.Context, option: click.Parameter, values: Sequence[str]) -> float | dict[str, float] | None:
    """Parse ``1e-3`` for all outputs and ``logits=1e-2`` for one; a number if no output is named."""
    found: dict[str, float] = {}
    for text in values:
        name, _, number = text.rpartition("=")
        try:
            limit = float(number)
        except ValueError:
            limit = -1.0
        if not 0 <= limit < float("inf") or name in found:
            raise click.BadParameter(f"{text!r} is neither a non-negative number nor OUTPUT=NUMBER", ctx, option)
        found[name] = limit
    return found[""] if found.keys() == {""} else found or None


#: click's parameters for each kind of conversion option
_KINDS: Mapping[str, Mapping[str, Any]] = {
    "flag": {"is_flag": True},
    "text": {},
    "texts": {"multiple": True},
    "names": {"callback": names_like("ai.onnx,com.microsoft")},
    "opsets": {"multiple": True, "callback": _opsets},
    "dims": {"multiple": True, "callback": parse_shapes},
    "free_dims": {"multiple": True, "callback": _free_dims},
    "hooks": {"multiple": True, "callback": _hooks},
    "wish": {"is_flag": False, "flag_value": "yes", "type": click.Choice(["yes", "try"])},
    "contents": {"multiple": True, "callback": _contents},
    "count": {"type": click.IntRange(min=0)},
    "version": {"type": click.IntRange(min=1)},
    "positive": {"type": click.FloatRange(min=0, min_open=True), "show_default": True},
    "limits": {"multiple": True, "callback": _limits},
}


def config_options(
    *names: str, of: type[Any] | None = None, kinds: Mapping[str, Mapping[str, Any]] = _KINDS
) -> Callable[[Decorated], Decorated]:
    """Decorator that adds options to a command, in order: fields of a configuration, by default ``ConvertConfig``.

    ``kinds`` has click's parameters for each kind of option.
    """
    from tenonnx.tools import ConvertConfig, options_of

    config: type[Any] = of or ConvertConfig
    known = options_of(config)

    def decorate(command: Decorated) -> Decorated:
        for name in reversed(names or list(known)):
            default = config.__dataclass_fields__[name].default
            command = click.option(*known[name].flag.split(), name, **_attributes(known[name], default, kinds))(command)
        return command

    return decorate


def _attributes(option: Option, default: Any, kinds: Mapping[str, Mapping[str, Any]] = _KINDS) -> dict[str, Any]:
    """Attributes of an option for click."""
    attributes: dict[str, Any] = {"help": option.help, "metavar": option.metavar}
    attributes |= {"type": click.Choice(option.choices)} if option.choices else kinds[option.kind]
    if not attributes.get("multiple"):
        attributes["default"] = default
    if option.choices and default is not None:
        attributes["show_default"] = True
    return attributes


def gathered(name: str, kind: type[Any]) -> Callable[[Decorated], Decorated]:
    """Decorator that passes options which are fields of ``kind`` to a command as one argument ``name``."""
    own = [each.name for each in fields(kind)]

    def decorate(command: Decorated) -> Decorated:
        @wraps(command)
        def called(*arguments: Any, **given: Any) -> Any:
            config = kind(**{each: given.pop(each) for each in own})
            return command(*arguments, **{**given, name: config})

        return called  # type: ignore[return-value]

    return decorate


def in_order(*decorators: Callable[[Decorated], Decorated]) -> Callable[[Decorated], Decorated]:
    """Combine decorators of options, which ``--help`` shows in this order."""

    def decorate(command: Decorated) -> Decorated:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print the result as JSON on stdout, and nothing else."
)


def _be_quiet(ctx: click.Context, option: click.Parameter, wanted: bool) -> None:
    if wanted:
        verdict_alone(ctx)


#: ``-q`` for a command whose first line is its verdict
quiet_option = click.option(
    "-q", "--quiet", is_flag=True, expose_value=False, callback=_be_quiet, help="Print the verdict alone."
)

#: ``-v`` for a command with long lists, as ``verbose``
verbose_option = click.option("-v", "--verbose", is_flag=True, help="List everything, however long the lists are.")


def verbosity_options(command: Decorated) -> Decorated:
    """``-q``, and ``-v`` as ``verbose``."""
    verbose = click.option("-v", "--verbose", is_flag=True, help="Also list each changed node with what changed it.")
    return quiet_option(verbose(command))


costs_option = click.option(
    "--costs", is_flag=True, help="Also count the multiply-adds before and after (needs tenonnx-optimize)."
)

shapes_option = config_options("input_shapes")
seed_option = config_options("seed")
exact_option = config_options("exact")
overwrite_option = config_options("overwrite")

#: tolerances: ``--atol`` and ``--rtol``
tolerance_options = config_options("atol", "rtol")

#: versions of a file: ``--opset`` and ``--domains``
version_options = config_options("opset_version", "domains")

#: destination: ``--opset``, ``--domains`` and ``--target``
target_options = config_options("opset_version", "domains", "target")


def input_options(command: Decorated) -> Decorated:
    """Add the options for feeds: ``--input`` and ``--inputs``."""
    one = click.option(
        "--input",
        "inputs",
        multiple=True,
        metavar="NAME=FILE",
        help="The value of an input, from a .npy file or from the entry of that name in a .npz file. Repeatable. Or "
        "FILE alone: a table with a column for each input, such as a .csv or .parquet file.",
    )
    whole = click.option(
        "--inputs",
        "archive",
        type=FILE,
        metavar="FILE",
        help="The values of inputs by name: a .npz, .csv, .parquet, .arrow or .jsonl file, or a folder of tables; - "
        "for standard input.",
    )
    return one(whole(command))


def hook_option(command: Decorated) -> Decorated:
    """``--hook``, as ``hooks``."""
    return config_options("post_export_hooks")(command)


class TransformingCommand(Command):
    """A command with the options and flags of packages' transforms; see ``transforms_given``."""

    #: steps whose options the command lacks
    without: Collection[str] = ()

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        from tenonnx.tools import step_options

        options = [
            click.Option([*each.option.flag.split(), name], **_attributes(each.option, each.default))
            for name, each in step_options().items()
            if each.after not in self.without
        ]
        flags = [
            _Transform([*_flags(plugin)], is_flag=True, expose_value=False, callback=_note_transform)
            for plugin in _transforms()
        ]
        return [*super().get_params(ctx), *options, *flags]


class PlanningCommand(TransformingCommand):
    """A command without the options of steps that are only needed for writing."""

    without = ("tidy", "message", "hooks", "verify", "verify_with", "write")


def _transforms() -> list[Plugin]:
    """The transforms that are flags."""
    from tenonnx.tools import TRANSFORMS, has_options, plugins

    return [plugin for plugin in plugins(TRANSFORMS) if not has_options(plugin)]


def _flags(plugin: Plugin) -> dict[str, None]:
    """``--channels-first`` for ``channels_first``, and the name unchanged."""
    return dict.fromkeys((f"--{plugin.name.replace('_', '-')}", f"--{plugin.name}"))


class _Transform(click.Option):
    """A flag whose help is the first paragraph of the transform's docstring, which is imported only for that."""

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


#: Context key for the names of requested transforms.
_GIVEN = "tenonnx.transforms"


def transforms_given() -> Sequence[str]:
    """The names of the requested transforms."""
    given: Sequence[str] = click.get_current_context().meta.get(_GIVEN, ())
    return given


def common_sizes(one: Graph, other: Graph) -> InputShapes:
    """Fixed sizes of the second model for dims that are dynamic in the first."""
    from tenonnx import TensorType

    theirs = {value.name: value.type for value in other.inputs}
    result: InputShapes = {}
    for value in one.inputs:
        ours, kind = value.type, theirs.get(value.name)
        if isinstance(ours, TensorType) and isinstance(kind, TensorType) and ours.rank == kind.rank and ours.shape:
            pairs = zip(ours.shape, kind.shape or (), strict=True)
            result[value.name] = tuple(b if isinstance(b, int) and not isinstance(a, int) else None for a, b in pairs)
    return result


def note_unused(requested: Mapping[str, int] | None, domains: Collection[str]) -> None:
    """Print the requested versions of domains that the result does not use."""
    for domain in requested or ():
        if domain not in domains:
            complain(f'note: no node is of domain "{domain}", so its version is ignored')


def loading_options(given: Sequence[str]) -> dict[str, Any]:
    """Parse options ``NAME=VALUE`` of a front end; a value that is not JSON is a string."""
    from tenonnx import InvalidCall

    result: dict[str, Any] = {}
    for each in given:
        name, separator, value = each.partition("=")
        if not separator or not name.isidentifier() or name in result:
            do = "as in --load inputs=columns --load zipmap=true"
            raise InvalidCall("--load is not NAME=VALUE, or names an option twice", given=each, do=do)
        try:
            result[name] = json.loads(value)
        except ValueError:
            result[name] = value
    return result


def load_model(path: str, *, trust: bool = False, **options: Any) -> Graph:
    """Load the model of a command; a file that runs code needs ``trust``."""
    from tenonnx import limits, load
    from tenonnx.tools import weight_bytes
    from tenonnx_cli.memory import brought

    options = {**rules_given(), **trust_given(), **options, **({"trust": True} if trust else {})}
    with working(f"reading {path}"):
        graph = load(opened_for_reading(path), **options)
    limits.check_time()
    brought(weight_bytes(graph))
    return graph


def opened_for_reading(path: str) -> str | bytes:
    """A model named on the command line, as an argument of ``load`` and the like."""
    if path.endswith(".py"):
        from tenonnx import InvalidCall

        what = "a Python file was given without the function that returns the model"
        raise InvalidCall(what, given=path, do=f"{path}:FUNCTION")
    return standard_input() if path == "-" else path


#: ``--timeout`` for a command that compares
timeout_option = config_options("timeout")
