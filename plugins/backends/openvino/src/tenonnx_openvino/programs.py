"""Infer requests of OpenVINO as programs: feeds in, arrays out, and state kept by the runtime."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import openvino

from tenonnx import limits
from tenonnx.extend import DType, Value
from tenonnx.extend.backends import Bindable, FeedCheck, Results, RunFailure, StateFeedCheck, StatefulProgram
from tenonnx_openvino.conversion import TYPES, shortened

if TYPE_CHECKING:
    from tenonnx.extend import Graph

Array = np.ndarray[Any, Any]
Compile = Callable[["Graph"], openvino.CompiledModel]

_NARROW = np.iinfo(np.int32)


class Request:
    """An infer request for one thread. Feeds are copied into its tensors, results are copied out."""

    def __init__(self, graph: Graph, model: openvino.CompiledModel) -> None:
        self.request = model.create_infer_request()
        read = {name for port in model.inputs for name in port.names}
        self._inputs = {value.name: value for value in graph.inputs if value.name in read}
        self._outputs = {value.name: (k, value.dtype.numpy) for k, value in enumerate(graph.outputs)}
        self._ranks = {value.name: value.rank for value in graph.outputs}

    def feed(self, name: str, array: Array) -> None:
        """Write an input, unless no node reads it."""
        if name not in self._inputs:
            return
        _check_width(self._inputs[name], array)
        tensor = self.request.get_tensor(name)
        if tuple(tensor.shape) != array.shape:
            tensor.shape = array.shape
        array_of(tensor, array.dtype)[...] = array

    def run(self) -> None:
        """Run the request. Raises ``LimitExceeded`` at the deadline, ``RunFailure`` if OpenVINO fails."""
        end = limits.end()
        try:
            if end is None:
                self.request.infer(share_outputs=True)
                return
            self.request.start_async()
            if self.request.wait_for(max(int(1000 * (end - time.monotonic())), 0)):
                return
            self.request.cancel()
            self.request.wait()
        except RuntimeError as error:
            if end is not None and end <= time.monotonic():
                raise limits.out_of_time() from error
            raise RunFailure(
                f"OpenVINO cannot compute the graph from these inputs: {shortened(error)}",
                given=", ".join(f"{v.name}: {self.request.get_tensor(v.name).shape}" for v in self._inputs.values()),
                do='run it on numpy (backend="numpy", --backend numpy) to see what is wrong with them',
            ) from error
        raise limits.out_of_time()

    def tensor(self, name: str) -> openvino.Tensor:
        """The tensor of an output, which the next run overwrites."""
        return self.request.get_output_tensor(self._outputs[name][0])

    def output(self, name: str) -> Array:
        result = array_of(self.tensor(name), self._outputs[name][1]).copy()
        rank = self._ranks[name]
        # OpenVINO may confuse [] with [1].
        return result.reshape((1,) * rank) if result.size == 1 and rank is not None else result


def array_of(tensor: openvino.Tensor, dtype: Any) -> Array:
    """The memory of a tensor as an array; types that numpy lacks are returned as others of the same size."""
    return tensor.data.view(dtype)  # type: ignore[no-any-return]


def _check_width(value: Value, array: Array) -> None:
    """Raise ``RunFailure`` for integers that exceed 32 bits."""
    if value.dtype is DType.int64 and array.size and not _NARROW.min <= array.min() <= array.max() <= _NARROW.max:
        raise RunFailure(
            f'the feed of "{value.name}" does not fit in 32 bits, in which OpenVINO computes int64',
            given=f"numbers from {array.min()} to {array.max()}",
            do="use another backend",
        )


class OpenVinoProgram(Bindable):
    """A compiled model without state. Thread-safe: concurrent calls use separate requests."""

    backend = "openvino"

    def __init__(self, graph: Graph, model: openvino.CompiledModel) -> None:
        self.state: MutableMapping[str, Any] = {}
        self._graph, self._model = graph, model
        self._check = FeedCheck(graph.inputs)
        self._outputs = [value.name for value in graph.outputs]
        self._free: list[Request] = []

    def __call__(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        arrays = self._check(feeds)
        try:
            request = self._free.pop()
        except IndexError:
            request = Request(self._graph, self._model)
        try:
            for value, array in zip(self._check.all_inputs, arrays, strict=True):
                request.feed(value.name, array)
            request.run()
            return {name: request.output(name) for name in self._outputs}
        finally:
            self._free.append(request)


def stateful_program(graph: Graph, state: Mapping[str, str], compile: Compile) -> StatefulProgram:
    """A program that keeps state in OpenVINO tensors. ``compile`` compiles a graph."""
    return StatefulProgram(
        "openvino", graph, state, lambda each: _DoubleBuffered(each, state, compile(each)), _held, _as_array
    )


class _DoubleBuffered:
    """Two requests used alternately (double buffering): each reads the state written by the other.

    A call that fails thus leaves the current state intact.
    """

    def __init__(self, graph: Graph, state: Mapping[str, str], model: openvino.CompiledModel) -> None:
        self._state = dict(state)
        self._check = StateFeedCheck(graph, state)
        kept = list(dict.fromkeys(state.values()))
        self._other_outputs = [value.name for value in graph.outputs if value.name not in kept]
        self._outputs = [value.name for value in graph.outputs]
        self._sides = [_BufferedRequest(graph, model, kept) for _ in range(2)]

    def __call__(self, state: Mapping[str, Any], feeds: Mapping[str, Any]) -> Results:
        given = self._check(feeds)
        side = self._sides[0]
        side.let_go()
        for name in self._state:
            side.bind(name, _held(given.pop(name)) if name in given else state[name])
        for name, array in given.items():
            side.feed(name, array)
        side.run()
        self._sides.reverse()
        results = Results(self._outputs, _as_array)
        for name in self._other_outputs:
            results[name] = side.output(name)
        kept = side.state_tensors()
        results.keep(kept, {name: kept[output] for name, output in self._state.items()})
        side.last_results = weakref.ref(results)
        return results


class _BufferedRequest(Request):
    """A request with its own tensors for the outputs ``state_tensors``, if their shapes are static."""

    def __init__(self, graph: Graph, model: openvino.CompiledModel, kept: list[str]) -> None:
        super().__init__(graph, model)
        self.last_results: weakref.ref[Results] | None = None
        self._state_tensors: dict[str, openvino.Tensor | None] = dict.fromkeys(kept)
        self._bound: dict[str, openvino.Tensor] = {}
        for name in kept:
            port = model.output(self._outputs[name][0])
            if port.partial_shape.is_static:
                self._state_tensors[name] = openvino.Tensor(port.element_type, port.shape)
                self.request.set_output_tensor(self._outputs[name][0], self._state_tensors[name])

    def bind(self, name: str, contents: _Held) -> None:
        """Bind an input to a tensor, unless it is bound already."""
        if name in self._inputs and self._bound.get(name) is not contents.tensor:
            self.request.set_tensor(name, contents.tensor)
            self._bound[name] = contents.tensor

    def let_go(self) -> None:
        """Copy earlier results that still share this side's tensors."""
        if self.last_results is not None and (earlier := self.last_results()) is not None:
            earlier.take()

    def state_tensors(self) -> dict[str, _Held]:
        found = {name: self.tensor(name) if tensor is None else tensor for name, tensor in self._state_tensors.items()}
        return {name: _Held(tensor, self._outputs[name][1]) for name, tensor in found.items()}


class _Held(NamedTuple):
    """Contents in an OpenVINO tensor, and their numpy element type."""

    tensor: openvino.Tensor
    dtype: Any


def _held(array: Array) -> _Held:
    tensor = openvino.Tensor(TYPES[DType.of(array.dtype)], list(array.shape))
    array_of(tensor, array.dtype)[...] = array
    return _Held(tensor, array.dtype)


def _as_array(contents: _Held) -> Array:
    return array_of(*contents).copy()
