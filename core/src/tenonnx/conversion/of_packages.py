"""Steps of packages: the transforms that a conversion is asked for, each with the step that it comes behind."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

from tenonnx.conversion.options import ConvertConfig, asked_of_packages
from tenonnx.errors import InvalidCall, PluginError
from tenonnx.graph.graph import Graph
from tenonnx.registry.discovery import Plugin, cure, plugins
from tenonnx.registry.hints import provider
from tenonnx.transforms.marks import Marks, marks_of

#: Plugins of this entry-point group are functions from a graph to a graph.
TRANSFORMS = "tenonnx.transforms"


class Placed(NamedTuple):
    """A transform as a step, and what it says of itself."""

    name: str
    step: Callable[[Graph, Any], Any]
    marks: Marks


def placed(options: ConvertConfig, steps: Collection[str]) -> Sequence[Placed]:
    """The transforms that options ask for, by name; then functions, in the order that they are given in."""
    given = [options.transforms] if isinstance(options.transforms, str) else list(options.transforms)
    named = {each for each in given if isinstance(each, str)} | asked_of_packages(options)
    installed = {plugin.name: plugin for plugin in plugins(TRANSFORMS)} if named else {}
    if missing := sorted(named - installed.keys()):
        package = provider(TRANSFORMS, missing[0])
        raise InvalidCall(
            f'no transform "{missing[0]}" is installed',
            available=", ".join(installed),
            do=cure([package]) if package else "choose one of these",
        )
    found = [_placed(name, plugin.load(), plugin) for name, plugin in installed.items() if name in named]
    found += [
        _placed(getattr(each, "__name__", "transform"), each, None) for each in given if not isinstance(each, str)
    ]
    for each in found:
        if each.marks.behind not in steps:
            raise PluginError(
                f'the transform "{each.name}" must follow a step', given=each.marks.behind, available=", ".join(steps)
            )
    return found


def _placed(name: str, transform: Any, plugin: Plugin | None) -> Placed:
    if not callable(transform):
        raise InvalidCall("a transform is a name, or a function from a graph to a graph", given=repr(transform)[:80])

    marks = marks_of(transform)

    def step(graph: Graph, conversion: Any) -> tuple[Graph, Sequence[Any]]:
        arguments = (graph, conversion) if marks.is_step else (graph,)
        doing = f"applying {name} of", "could not transform the model"
        with nullcontext() if plugin is None else plugin.running(*doing):
            result = transform(*arguments)
        left = result if marks.is_step else (result, ())
        if not isinstance(left, tuple) or not isinstance(left[0], Graph):
            whose = "" if plugin is None else f" of {plugin.source}"
            raise PluginError(
                f'the transform "{name}"{whose} must return a graph',
                given=f"{type(left[0]).__name__}: {left[0]!r:.80}",
                do="" if plugin is None else f"correct {plugin.value}",
            )
        return left

    return Placed(name, step, marks)


def has_more_ops(graph: Graph, opset_version: int | Mapping[str, int] | None, domains: Collection[str] | None) -> bool:
    """Whether newer versions or other domains are asked for than the graph has, and what fuses is installed."""
    wanted = {"ai.onnx": opset_version} if isinstance(opset_version, int) else opset_version or {}
    newer = any(version > graph.opsets.get(domain, 0) for domain, version in wanted.items())
    more = newer or any(domain not in graph.opsets for domain in domains or ())
    return more and any(plugin.name == "fuse" for plugin in plugins(TRANSFORMS))
