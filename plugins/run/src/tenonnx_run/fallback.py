"""Fallback to numpy when a backend rejects a graph or a call."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

from tenonnx.errors import FallbackWarning, InvalidCall, PluginError, TenonnxError
from tenonnx.graph.graph import Graph
from tenonnx.graph.program import Program
from tenonnx.transforms.summary import weight_bytes
from tenonnx_run.wrapped import WrappedProgram

#: Above this many bytes of variables numpy does not take over, and the error is raised at once.
LARGEST_FALLBACK = 1 << 28


class RunFailure(InvalidCall):
    """A runtime failed to execute a call."""


class FallbackProgram(WrappedProgram):
    """A program that reruns failed calls on numpy, with one ``FallbackWarning`` for all of them."""

    def __init__(self, program: Program, graph: Graph, state: Mapping[str, str] | None) -> None:
        super().__init__(program)
        self._graph = graph
        self._names = state
        self._numpy: Program | None = None

    def __call__(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return self._program(feeds)
        except (RunFailure, PluginError) as failure:
            return self._fall_back(feeds, failure)

    def bind(self, feeds: Mapping[str, Any]) -> Callable[[], dict[str, Any]]:
        call = self._program.bind(feeds)

        def call_or_fall_back() -> dict[str, Any]:
            try:
                return call()
            except (RunFailure, PluginError) as failure:
                return self._fall_back(feeds, failure)

        return call_or_fall_back

    def _fall_back(self, feeds: Mapping[str, Any], failure: TenonnxError) -> dict[str, Any]:
        if weight_bytes(self._graph) > LARGEST_FALLBACK:
            raise failure
        try:
            numpy = self._numpy or _on_numpy(self._graph, self._names)
            numpy.state.update(self.state)
            results = numpy(feeds)
        except TenonnxError as error:
            raise error from failure
        if self._numpy is None:  # before any change, as a warning filter may raise an error
            warnings.warn(FallbackWarning(f"numpy computes what {self.backend} refuses: {failure}"), stacklevel=3)
        self._numpy = numpy
        self.state.update(numpy.state)
        return results


def fall_back(graph: Graph, reason: TenonnxError, state: Mapping[str, str] | None = None) -> Program:
    """Compile ``graph`` for numpy, with a ``FallbackWarning`` that says why no faster backend runs it."""
    try:
        program = _on_numpy(graph, state)
    except TenonnxError as error:
        raise error from reason
    warnings.warn(FallbackWarning(f"numpy runs the graph: {reason}"), stacklevel=3)
    return program


def _on_numpy(graph: Graph, state: Mapping[str, str] | None) -> Program:
    from tenonnx_run.numpy import backend  # imported lazily, as few graphs need it

    return backend.compile(graph, state=state)
