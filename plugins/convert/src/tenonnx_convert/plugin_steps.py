"""Packages' transforms as conversion steps, with their options."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import MISSING, fields, is_dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from tenonnx.errors import InvalidCall, PluginError, did_you_mean
from tenonnx.registry.discovery import Plugin, cure, plugins
from tenonnx.registry.hints import provider
from tenonnx.transforms.decorators import Marks, marks_of
from tenonnx_convert.options import ConvertConfig, ExportConfig, Option, options_of

if TYPE_CHECKING:
    from tenonnx.graph.graph import Graph

#: Entry-point group of transforms: functions from a graph to a graph, or dataclasses with such instances.
TRANSFORMS = "tenonnx.transforms"


class Placed(NamedTuple):
    """A transform as a step: a function of the graph and the state that returns a graph or a ``StepResult``."""

    name: str
    step: Callable[[Graph, Any], Any]
    marks: Marks


class StepOption(NamedTuple):
    """An option of a transform."""

    plugin: Plugin
    option: Option
    default: Any
    after: str


def has_options(plugin: Plugin) -> bool:
    """Whether an entry point names a class, by its capitalized name; classes have options, functions are flags."""
    return plugin.value.rpartition(":")[2][:1].isupper()


def _classes() -> Iterator[tuple[Plugin, Any]]:
    """The transforms with options. Those that fail to load are skipped."""
    for plugin in plugins(TRANSFORMS):
        if has_options(plugin):
            try:
                found = plugin.load()
            except PluginError:
                continue
            if not is_dataclass(found):
                what = f'the transform "{plugin.name}" of {plugin.source} is not a dataclass'
                raise PluginError(what, given=plugin.value, do="put @dataclass(frozen=True) above it")
            yield plugin, found


def step_options() -> dict[str, StepOption]:
    """The options of all transforms by name. Raises ``PluginError`` if two packages declare the same one."""
    result: dict[str, StepOption] = {}
    taken = {each.name: "tenonnx-convert" for each in fields(ConvertConfig)}
    for plugin, kind in _classes():
        defaults = {f.name: f.default if f.default_factory is MISSING else f.default_factory() for f in fields(kind)}
        for name, option in options_of(kind).items():
            if name in taken:
                raise PluginError(
                    f'the option "{name}" is declared twice',
                    given=f"{taken[name]} and {plugin.source}",
                    do=f"switch one off: TENONNX_PLUGINS=-{plugin.distribution}",
                )
            taken[name] = plugin.source
            result[name] = StepOption(plugin, option, defaults[name], marks_of(kind).after)
    return result


def given_config(
    kind: type[Any], config: ExportConfig | None, given: Mapping[str, Any], without: Collection[str] = ()
) -> Any:
    """A configuration updated with the given fields and options of transforms.

    Transforms that follow a step in ``without`` are not available. Raises ``InvalidCall`` for an unknown option,
    listing the known ones.
    """
    names = [each.name for each in fields(kind)]
    base = {} if config is None else {each.name: getattr(config, each.name) for each in fields(config)}
    base |= {name: value for name, value in given.items() if name in names}
    others = {name: value for name, value in given.items() if name not in names}
    if others:
        declared = [name for name, each in step_options().items() if each.after not in without]
        if unknown := [name for name in others if name not in declared]:
            available = ", ".join([*names, *declared])
            raise InvalidCall(f"unknown option: {', '.join(unknown)}", available=available)
        base["step_options"] = {**base.get("step_options", {}), **others}
    return kind(**{name: value for name, value in base.items() if name in names})


def writes_folder(options: ConvertConfig) -> bool:
    """Whether a requested transform has the class attribute ``writes_folder``, so that the output is a folder."""
    kinds = [kind for _, kind in _classes() if getattr(kind, "writes_folder", False)]
    return any(_instance_of(kind, options) != kind() for kind in kinds)


def _instance_of(kind: Any, options: ConvertConfig) -> Any:
    """An instance of a transform with its given options."""
    own = {each.name for each in fields(kind)}
    return kind(**{name: value for name, value in options.step_options.items() if name in own})


def placed(options: ConvertConfig, steps: Collection[str], state: Any) -> Sequence[Placed]:
    """The requested transforms, in order of name; then functions, in the given order."""
    given = [options.transforms] if isinstance(options.transforms, str) else list(options.transforms)
    named = {each for each in given if isinstance(each, str)}
    configured = dict(_configured(options, named, state))
    installed = {plugin.name: plugin for plugin in plugins(TRANSFORMS)} if named else {}
    if missing := sorted(named - installed.keys()):
        package = provider(TRANSFORMS, missing[0])
        raise InvalidCall(
            f'no transform "{missing[0]}" is installed',
            available=", ".join(installed),
            do=cure([package]) if package else did_you_mean(missing[0], installed) or "choose one of these",
        )
    configured |= {
        plugin: plugin.load() for name, plugin in installed.items() if name in named and not has_options(plugin)
    }
    result = [
        _placed(plugin.name, configured[plugin], plugin) for plugin in sorted(configured, key=lambda each: each.name)
    ]
    result += [
        _placed(getattr(each, "__name__", type(each).__name__), each, None)
        for each in given
        if not isinstance(each, str)
    ]
    for each in result:
        if each.marks.after not in steps:
            raise PluginError(
                f'the transform "{each.name}" follows an unknown step',
                given=each.marks.after,
                available=", ".join(steps),
            )
    return result


def _configured(options: ConvertConfig, named: Collection[str], state: Any) -> Iterator[tuple[Plugin, Any]]:
    """Transforms with their given options, if they are named or their options request them."""
    for plugin, kind in _classes():
        transform = _instance_of(kind, options)
        asks = getattr(transform, "is_wanted", None)
        wanted = asks(state) if asks is not None else transform != kind()
        if wanted or plugin.name in named:
            yield plugin, transform


def _placed(name: str, transform: Any, plugin: Plugin | None) -> Placed:
    if not callable(transform):
        raise InvalidCall(
            "a transform is neither a name nor a function from a graph to a graph", given=repr(transform)[:80]
        )

    marks = marks_of(transform)

    def step(graph: Graph, state: Any) -> tuple[Graph, Any]:
        from tenonnx.graph.graph import Graph

        arguments = (graph, state) if marks.is_step else (graph,)
        with nullcontext() if plugin is None else plugin.running("could not transform the model"):
            result = transform(*arguments)
        left = result if marks.is_step else (result, ())
        if not isinstance(left, tuple) or not isinstance(left[0], Graph):
            whose = "" if plugin is None else f" of {plugin.source}"
            raise PluginError(
                f'the transform "{name}"{whose} returned no graph',
                given=f"{type(left[0]).__name__}: {left[0]!r:.80}",
                do="" if plugin is None else f"correct {plugin.value}",
            )
        return left

    return Placed(name, step, marks)
