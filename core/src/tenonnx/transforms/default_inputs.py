"""Inputs with a default: initializers that are also graph inputs, so that a call may override them."""

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
    """A copy of ``graph`` in which the named inputs have no default, so that no transform reads its contents.

    The graph itself if there are none.
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
    """Contents of the inputs with a default, by name; in older files all initializers are listed as inputs."""
    if graph.ir_version is not None and graph.ir_version < OPTIONAL_INPUTS_IR:
        return {}
    return {value.name: value.data for value in graph.all_inputs if value.data is not None}


def leaving_defaults(transform: Transform) -> Transform:
    """Decorate a transform to ignore the defaults of inputs, as calls may override them.

    If it fails without them, the inputs concerned become constants.
    """

    @functools.wraps(transform)
    def transformed(graph: Graph, *arguments: Any, **keywords: Any) -> Graph:
        contents = _defaults(graph)
        if not contents:
            return transform(graph, *arguments, **keywords)
        try:
            result = transform(opened(graph, contents), *arguments, **keywords)
        except TenonnxError:
            return transform(without_defaults(graph), *arguments, **keywords)
        _restore_defaults(result, graph, contents)
        return result

    return cast("Transform", transformed)


def sparing_defaults(graph: Graph, retargeted: Callable[[Graph], Retargeted]) -> Retargeted:
    """Result of ``retargeted`` on ``graph`` without reading defaults, as calls may override them.

    If a node can only be expressed with its default, the inputs with a default become constants.
    """
    contents = _defaults(graph)
    if not contents:
        return retargeted(graph)
    result = retargeted(opened(graph, contents))
    if not result.refused:
        _restore_defaults(result.graph, graph, contents)
        return result
    result = retargeted(without_defaults(graph))
    result.note_closed(contents)
    return result


def without_defaults(graph: Graph) -> Graph:
    """A copy in which initializers are no longer listed as inputs."""
    closed = copy_graph(graph)
    closed.all_inputs = closed.inputs
    return closed


def _restore_defaults(result: Graph, source: Graph, contents: Mapping[str, Constant]) -> None:
    """Restore the defaults of inputs in the result of a transform, in the order of variables in ``source``."""
    inputs = {value.name: value for value in result.all_inputs}
    for name, data in contents.items():
        inputs[name]._replace_fields(data=data)
    result.variables += (inputs[name] for name in contents)
    places = {value.name: place for place, value in enumerate(source.variables)}
    result.variables.sort(key=lambda value: places.get(value.name, len(places)))
