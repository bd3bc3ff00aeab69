"""Sessions of onnxruntime as programs: feeds in, arrays out, and state kept by the runtime."""

from __future__ import annotations

import copy
import threading
import time
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime
from onnxruntime import InferenceSession
from onnxruntime.capi import onnxruntime_pybind11_state as runtime

from tenonnx import limits
from tenonnx.extend import DType, OptionalType, SequenceType, TensorType, Type, UnsupportedOp
from tenonnx.extend.backends import Bindable, FeedCheck, Results, StateFeedCheck, StatefulProgram
from tenonnx_onnxruntime.element_types import dtype_of, is_extended
from tenonnx_onnxruntime.failures import run_failure
from tenonnx_onnxruntime.places import Place
from tenonnx_onnxruntime.values import Array, from_runtime, to_runtime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, MutableMapping

    from tenonnx.extend import Graph

#: Exceptions of the runtime for models and feeds; the available classes depend on its version.
RUNTIME_ERRORS = tuple(
    value for value in vars(runtime).values() if isinstance(value, type) and issubclass(value, Exception)
)

#: Ops whose kernels crash on an empty batch.
ENDED_BY_NONE = frozenset({"GRU"})

_RUN_ERRORS = (*RUNTIME_ERRORS, RuntimeError, TypeError, ValueError)


@contextmanager
def _run_options() -> Iterator[onnxruntime.RunOptions | None]:
    """RunOptions that end a run at its deadline, None without one. Raises ``LimitExceeded`` if it is exceeded."""
    end = limits.end()
    if end is None:
        yield None
        return
    options = onnxruntime.RunOptions()
    timer = threading.Timer(max(end - time.monotonic(), 0), setattr, (options, "terminate", True))
    timer.daemon = True
    timer.start()
    try:
        yield options
    except RUNTIME_ERRORS as error:
        if options.terminate:
            raise limits.out_of_time() from error
        raise
    finally:
        timer.cancel()


class RuntimeProgram(Bindable):
    """A session without state, in which inputs with default values cannot be fed. Thread-safe."""

    backend = "onnxruntime"

    def __init__(
        self, graph: Graph, session: InferenceSession, is_plain: bool = False, place: Place | None = None
    ) -> None:
        #: Whether a session with default options computes the same.
        self.is_plain = is_plain
        self.state: MutableMapping[str, Any] = {}
        self._check = FeedCheck(graph.inputs)
        self._names = [v.name for v in graph.inputs]
        self._outputs = [o.name for o in session.get_outputs()]
        self._passed = [name for name in self._outputs if name in self._names]
        self._may_give_none = any(isinstance(o.type, OptionalType) for o in graph.outputs)
        self._session = session
        self._takes_none = not any(node.op_type in ENDED_BY_NONE for node in graph.walk())
        self._extended = {v.name: v.tensor.dtype for v in graph.inputs if _has_extended(v.type)}
        # Functions instead of methods: a reference cycle would keep the session until garbage collection.
        self._run: Callable[[RuntimeProgram, Mapping[str, Any], Any], list[Any]] = RuntimeProgram._run_arrays
        if any(is_extended(dtype_of(output.type)) for output in session.get_outputs()):
            _refuse_values(graph, session)
            self._dtypes = {v.name: v.tensor.dtype for v in graph.inputs}
            self._run = RuntimeProgram._run_values
        elif self._extended:
            self._run = RuntimeProgram._run_mixed
        self._device = place or Place()
        if place is not None and not _without_values(graph, session):
            self._run = RuntimeProgram._run_bound

    def __call__(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        given = feeds if self._check.passes(feeds) else dict(zip(self._names, self._check(feeds), strict=True))
        if not self._takes_none and any(isinstance(each, np.ndarray) and not each.size for each in given.values()):
            raise run_failure(ValueError("an empty input would end the process"), given)
        try:
            if limits.end() is None:
                results = self._run(self, given, None)
            else:
                with _run_options() as options:
                    results = self._run(self, given, options)
        except _RUN_ERRORS as error:
            raise run_failure(error, given) from error
        result = dict(zip(self._outputs, results, strict=True))
        if not self._may_give_none and any(each is None for each in results):
            unwritten = next(name for name, each in result.items() if each is None)
            raise run_failure(ValueError(f"its kernel leaves output {unwritten} unwritten"), given)
        for name in self._passed:  # old runtimes return an input that is also an output without copying
            result[name] = copy.copy(result[name])
        return result

    def bind(self, feeds: Mapping[str, Any]) -> Callable[[], dict[str, Any]]:
        """Convert the arrays to OrtValues once, so that calls neither check nor copy them."""
        given = dict(zip(self._names, self._check(feeds), strict=True))
        kinds = [each.type for each in self._session.get_outputs()]
        if (
            not self._takes_none
            or self._passed
            or not all(_is_shared(feeds[n], given[n]) for n in given)
            or not all(map(_is_plain, kinds))
        ):
            return super().bind(feeds)
        binding = self._binding(given)

        def call() -> dict[str, Any]:
            if limits.end() is not None:
                return self(feeds)
            try:
                self._session.run_with_iobinding(binding)
            except _RUN_ERRORS as error:
                raise run_failure(error, given) from error
            return dict(zip(self._outputs, binding.copy_outputs_to_cpu(), strict=True))

        return call

    def _run_arrays(self, given: Mapping[str, Any], options: Any) -> list[Any]:
        return self._session.run(self._outputs, given, options)  # type: ignore[no-any-return]

    def _run_mixed(self, given: Mapping[str, Any], options: Any) -> list[Any]:
        """Run with ``ml_dtypes`` arrays as OrtValues, since the runtime does not accept such arrays."""
        values = {name: to_runtime(given[name], dtype) for name, dtype in self._extended.items()}
        return self._session.run(self._outputs, {**given, **values}, options)  # type: ignore[no-any-return]

    def _run_values(self, given: Mapping[str, Any], options: Any) -> list[Any]:
        values = {name: to_runtime(array, self._dtypes[name]) for name, array in given.items()}
        results = self._session.run_with_ort_values(self._outputs, values, options)
        return [from_runtime(value) for value in results]

    def _run_bound(self, given: Mapping[str, Any], options: Any) -> list[Any]:
        """Run with feeds copied to the provider's device, and outputs copied back."""
        binding = self._binding(given)
        self._session.run_with_iobinding(binding, options)
        return [from_runtime(value) for value in binding.get_outputs_as_ortvaluevector()]

    def _binding(self, given: Mapping[str, Any]) -> Any:
        """Numeric feeds as OrtValues on the session's device, and outputs that each run allocates."""
        binding = self._session.io_binding()
        for name, array in given.items():
            binding.bind_ortvalue_input(name, self._device.put(array, DType.of(array.dtype)))
        for name in self._outputs:
            binding.bind_output(name)
        return binding


def stateful_program(
    graph: Graph, state: Mapping[str, str], make: Callable[[Graph], InferenceSession], place: Place
) -> StatefulProgram:
    """A program whose state stays in the runtime. ``make`` opens a session of a graph."""

    def held(array: Any) -> Any:
        return place.put(array.copy(order="C"), DType.of(array.dtype))

    return StatefulProgram(
        "onnxruntime", graph, state, lambda each: _DoubleBuffered(each, state, make(each), place), held, _as_array
    )


class _DoubleBuffered:
    """A session with two sets of bindings (double buffering).

    Each set binds the state written by the other to the inputs, and its own buffers to the outputs that replace it. A
    call that fails thus leaves the current state intact. Outputs with dynamic shapes are allocated in each call.
    """

    def __init__(self, graph: Graph, state: Mapping[str, str], session: InferenceSession, place: Place) -> None:
        _refuse_values(graph, session)
        self._session = session
        self._check = StateFeedCheck(graph, state)
        self._dtypes = {v.name: v.tensor.dtype for v in graph.inputs}
        self._outputs = [o.name for o in session.get_outputs()]
        kept = list(dict.fromkeys(state.values()))
        others = [name for name in self._outputs if name not in kept]
        self._sides = [_Bindings(graph, session, others, kept, state, place) for _ in range(2)]
        self._turn = 0

    def __call__(self, state: Mapping[str, Any], feeds: Mapping[str, Any]) -> Results:
        given = self._check(feeds)
        side = self._sides[self._turn]
        side.bind(state)
        for name, array in given.items():
            side.feed(name, to_runtime(array, self._dtypes[name]))
        results = Results(self._outputs, _as_array)
        try:
            side.run(self._session, results)
        except _RUN_ERRORS as error:
            raise run_failure(error, given) from error
        self._turn = 1 - self._turn
        return results


class _Bindings:
    """One of the two sets of bindings."""

    def __init__(
        self,
        graph: Graph,
        session: InferenceSession,
        others: list[str],
        kept: list[str],
        state: Mapping[str, str],
        place: Place,
    ) -> None:
        self._state = dict(state)
        self._other_outputs = others
        self._binding = session.io_binding()
        self._bound: dict[str, Any] | None = None
        self._last_results: weakref.ref[Results] | None = None
        inputs = {v.name: v.type for v in graph.all_inputs}
        types = {output: inputs[name] for name, output in state.items()}  # it has the type of the input
        self._buffers = {name: buffer for name in kept if (buffer := _buffer(types[name], place)) is not None}
        self._loose = [name for name in kept if name not in self._buffers]
        self._device = place
        self._bind_outputs()
        for name, buffer in self._buffers.items():
            self._binding.bind_ortvalue_output(name, buffer)
        self._replaced = {name: self._buffers.get(output) for name, output in state.items()}

    def _bind_outputs(self) -> None:
        """Let the runtime allocate outputs without buffer: results on the CPU, states on the device."""
        for name in self._other_outputs:
            self._binding.bind_output(name)
        for name in self._loose:
            self._binding.bind_output(name, *self._device)

    def bind(self, state: Mapping[str, Any]) -> None:
        """Bind the inputs to the state, unless they are bound to it already."""
        if state != self._bound:
            bound = self._bound or {}
            for name, value in state.items():
                if bound.get(name) is not value:
                    self._binding.bind_ortvalue_input(name, value)
            self._bound = dict(state)

    def feed(self, name: str, value: Any) -> None:
        self._binding.bind_ortvalue_input(name, value)
        if name in self._state:
            self._bound = None

    def run(self, session: InferenceSession, results: Results) -> None:
        """Run and fill ``results``. Earlier results that share this side's buffers are copied first."""
        if self._last_results is not None and (earlier := self._last_results()) is not None:
            earlier.take()
        self._bind_outputs()  # otherwise the runtime would overwrite its previous results
        with _run_options() as options:
            session.run_with_iobinding(self._binding, options)
        kept, replaced = self._buffers, self._replaced
        found = self._binding.get_outputs_as_ortvaluevector()
        for position, name in enumerate(self._other_outputs):
            results[name] = from_runtime(found[position])
        if self._loose:
            first = len(self._other_outputs)
            kept = kept | {name: onnxruntime.OrtValue(found[first + k]) for k, name in enumerate(self._loose)}
            replaced = {name: kept[output] for name, output in self._state.items()}
        results.keep(kept, replaced)
        self._last_results = weakref.ref(results)


def _buffer(kind: Type | None, place: Place) -> Any:
    """An OrtValue for a static type, else None."""
    if not isinstance(kind, TensorType) or kind.shape is None:
        return None
    shape = [dim for dim in kind.shape if isinstance(dim, int)]
    if len(shape) < len(kind.shape):
        return None
    return place.empty(shape, kind.dtype)


def _as_array(value: Any) -> Array:
    return from_runtime(value).copy()


def _is_shared(feed: Any, given: Any) -> bool:
    """Whether an OrtValue can share the memory of the caller's array."""
    if given is not feed or not isinstance(given, np.ndarray) or given.dtype.hasobject:
        return False
    dtype = DType.of(given.dtype)
    return given.flags.c_contiguous and dtype.bits >= 8 and not is_extended(dtype)


def _is_plain(kind: str) -> bool:
    """Whether the runtime returns a type (in its notation) as an array of a native numpy dtype."""
    return _is_of_numbers(kind) and not is_extended(dtype_of(kind))


def _is_of_numbers(kind: str) -> bool:
    """Whether a type in the runtime's notation is a numeric tensor."""
    return kind.startswith("tensor(") and kind != "tensor(string)"


def _has_extended(kind: Type | None) -> bool:
    if isinstance(kind, SequenceType | OptionalType) and _has_extended(kind.element):
        raise UnsupportedOp(f"onnxruntime cannot be fed with {kind}")
    return isinstance(kind, TensorType) and is_extended(kind.dtype)


def _refuse_values(graph: Graph, session: InferenceSession) -> None:
    """Raise ``UnsupportedOp`` unless all inputs and outputs are tensors that OrtValues support."""
    if kinds := _without_values(graph, session):
        raise UnsupportedOp(
            "onnxruntime cannot run a graph that has inputs or outputs other than numeric tensors, together with state "
            "or with tensors of types that numpy lacks",
            given=", ".join(dict.fromkeys(kinds)),
        )


def _without_values(graph: Graph, session: InferenceSession) -> list[str]:
    """Types of inputs and outputs that OrtValues do not support."""
    kinds = [str(v.type) for v in graph.all_inputs if not _is_numeric(v.type)]
    return kinds + [o.type for o in session.get_outputs() if not _is_of_numbers(o.type)]


def _is_numeric(kind: Type | None) -> bool:
    return isinstance(kind, TensorType) and kind.dtype is not DType.string
