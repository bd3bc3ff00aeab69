"""Calls that the runtime refuses although it took the graph: numpy computes them, or says which node is wrong."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from tenonnx.extend import FallbackWarning, TenonnxError
from tenonnx.extend.backends import compile_graph
from tenonnx_onnxruntime.session import RunFailure

if TYPE_CHECKING:
    from tenonnx.extend import Graph
    from tenonnx.extend.backends import Program

#: A graph with more bytes of variables is not computed twice: an error is due at once there.
LARGEST_RESCUED = 1 << 28


class RescuedProgram:
    """A program of the runtime whose refused calls numpy computes, with one ``FallbackWarning`` for all of them."""

    backend = "onnxruntime"

    def __init__(self, program: Program, graph: Graph, state: Mapping[str, str] | None) -> None:
        self._program = program
        self._graph = graph
        self._names = state
        self._numpy: Program | None = None

    @property
    def state(self) -> MutableMapping[str, Any]:
        return self._program.state

    def __call__(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return self._program(feeds)
        except RunFailure as failure:
            return self._rescue(feeds, failure)

    def _rescue(self, feeds: Mapping[str, Any], failure: RunFailure) -> dict[str, Any]:
        if sum(v.data.nbytes for v in self._graph.variables if v.data is not None) > LARGEST_RESCUED:
            raise failure
        try:
            numpy = self._numpy or compile_graph(self._graph, "numpy", state=self._names)
            numpy.state.update(self.state)
            results = numpy(feeds)
        except TenonnxError as error:
            raise error from failure
        if self._numpy is None:  # before anything changes, as a warning may be made an error
            warnings.warn(FallbackWarning(f"numpy computes what onnxruntime refuses: {failure}"), stacklevel=3)
        self._numpy = numpy
        self.state.update(numpy.state)
        return results
