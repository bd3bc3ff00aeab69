"""Inputs that have a default: initializers that are listed as graph inputs, so that a call may feed something else."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tenonnx.errors import TenonnxError
from tenonnx.graph.constants import Constant
from tenonnx.graph.graph import OPTIONAL_INPUTS_IR, Graph
from tenonnx.transforms.rewrite import copy_graph

if TYPE_CHECKING:
    from tenonnx.transforms.report import Retargeted

Transform = TypeVar("Transform", bound=Callable[..., Graph])


def opened(graph: Graph, names: Collection[str]) -> Graph:
    """A copy of ``graph`` in which the inputs of these names have no default, so that nothing counts on its contents.

    The graph itself if it is so already.
    """
    if not any(value.name in names for value in graph.all_inputs if value.data is not None):
        return graph
    copy = copy_graph(graph)
    for value in copy.all_inputs:
        if value.name in names:
            value._replace_fields(data=None)
    copy.variables = [value for value in copy.variables if value.data is not None]
    for node in copy.walk():
        for output in node.outputs:
            if output is not None:
                output.forget()
    return copy


def _defaults(graph: Graph) -> dict[str, Constant]:
    """Contents of the inputs that a call may feed, by name; in older files all initializers are listed as inputs."""
    if graph.ir_version is not None and graph.ir_version < OPTIONAL_INPUTS_IR:
        return {}
    return {value.name: value.data for value in graph.all_inputs if value.data is not None}


def leaving_defaults(transform: Transform) -> Transform:
    """A transform that does not count on a default, as another value may be fed.

    Where it cannot do without, the inputs that have one become constants.
    """

    @functools.wraps(transform)
    def transformed(graph: Graph, *arguments: Any, **keywords: Any) -> Graph:
        contents = _defaults(graph)
        if not contents:
            return transform(graph, *arguments, **keywords)
        try:
            found = transform(opened(graph, contents), *arguments, **keywords)
        except TenonnxError:
            return transform(without_defaults(graph), *arguments, **keywords)
        _give_back(found, graph, contents)
        return found

    return cast("Transform", transformed)


def sparing_defaults(graph: Graph, retargeted: Callable[[Graph], Retargeted]) -> Retargeted:
    """Result of ``retargeted`` on ``graph`` without reading defaults, as another value may be fed.

    Where a node has a form with the defaults alone, the inputs that have one become constants.
    """
    contents = _defaults(graph)
    if not contents:
        return retargeted(graph)
    result = retargeted(opened(graph, contents))
    if not result.refused:
        _give_back(result.graph, graph, contents)
        return result
    result = retargeted(without_defaults(graph))
    result.note_closed(contents)
    return result


def without_defaults(graph: Graph) -> Graph:
    """A copy in which initializers that are listed as inputs are constants."""
    closed = copy_graph(graph)
    closed.all_inputs = closed.inputs
    return closed


def _give_back(made: Graph, source: Graph, contents: Mapping[str, Constant]) -> None:
    """Let inputs of what was made of an opened ``source`` have their defaults again; variables stand in its order."""
    inputs = {value.name: value for value in made.all_inputs}
    for name, data in contents.items():
        inputs[name]._replace_fields(data=data)
    made.variables += (inputs[name] for name in contents)
    places = {value.name: place for place, value in enumerate(source.variables)}
    made.variables.sort(key=lambda value: places.get(value.name, len(places)))
