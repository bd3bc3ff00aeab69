"""Sessions of onnxruntime as programs: feeds in, arrays out, and state that stays on the runtime's side."""

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

#: What the runtime raises of its own, about a model or about what it is fed with; versions differ in what there is.
RUNTIME_ERRORS = tuple(
    value for value in vars(runtime).values() if isinstance(value, type) and issubclass(value, Exception)
)

#: Ops whose kernels end the process on a batch of none.
ENDED_BY_NONE = frozenset({"GRU"})

_RUN_ERRORS = (*RUNTIME_ERRORS, RuntimeError, TypeError, ValueError)


@contextmanager
def _in_time() -> Iterator[onnxruntime.RunOptions | None]:
    """Options of a run that ends at its deadline, None where it has none. Raises ``LimitExceeded`` then."""
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
    """A session without state, whose inputs with a default cannot be fed. Several threads may call it."""

    backend = "onnxruntime"

    def __init__(
        self, graph: Graph, session: InferenceSession, is_plain: bool = False, place: Place | None = None
    ) -> None:
        #: Whether a session with the options that are the default gives the same.
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
        # Functions, not methods: a program that holds itself would keep its session until garbage is collected.
        self._run: Callable[[RuntimeProgram, Mapping[str, Any], Any], list[Any]] = RuntimeProgram._run_arrays
        if any(is_extended(dtype_of(output.type)) for output in session.get_outputs()):
            _refuse_values(graph, session)
            self._dtypes = {v.name: v.tensor.dtype for v in graph.inputs}
            self._run = RuntimeProgram._run_values
        elif self._extended:
            self._run = RuntimeProgram._run_mixed
        self._place = place or Place()
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
                with _in_time() as options:
                    results = self._run(self, given, options)
        except _RUN_ERRORS as error:
            raise run_failure(error, given) from error
        found = dict(zip(self._outputs, results, strict=True))
        if not self._may_give_none and any(each is None for each in results):
            unwritten = next(name for name, each in found.items() if each is None)
            raise run_failure(ValueError(f"its kernel leaves output {unwritten} unwritten"), given)
        for name in self._passed:  # old runtimes give an input that is an output where the caller has it
            found[name] = copy.copy(found[name])
        return found

    def bind(self, feeds: Mapping[str, Any]) -> Callable[[], dict[str, Any]]:
        """Tensors of the runtime stand for the arrays, so that a call neither looks at them nor copies them."""
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
        """The runtime knows no arrays of ``ml_dtypes``, but takes its own tensors in their place."""
        values = {name: to_runtime(given[name], dtype) for name, dtype in self._extended.items()}
        return self._session.run(self._outputs, {**given, **values}, options)  # type: ignore[no-any-return]

    def _run_values(self, given: Mapping[str, Any], options: Any) -> list[Any]:
        values = {name: to_runtime(array, self._dtypes[name]) for name, array in given.items()}
        results = self._session.run_with_ort_values(self._outputs, values, options)
        return [from_runtime(value) for value in results]

    def _run_bound(self, given: Mapping[str, Any], options: Any) -> list[Any]:
        """Feeds are copied to the device of the provider once, and outputs from there."""
        binding = self._binding(given)
        self._session.run_with_iobinding(binding, options)
        return [from_runtime(value) for value in binding.get_outputs_as_ortvaluevector()]

    def _binding(self, given: Mapping[str, Any]) -> Any:
        """Numeric feeds as tensors where the session computes, and outputs that each run allocates."""
        binding = self._session.io_binding()
        for name, array in given.items():
            binding.bind_ortvalue_input(name, self._place.put(array, DType.of(array.dtype)))
        for name in self._outputs:
            binding.bind_output(name)
        return binding


def stateful_program(
    graph: Graph, state: Mapping[str, str], make: Callable[[Graph], InferenceSession], place: Place
) -> StatefulProgram:
    """A program whose state never leaves the runtime. ``make`` gives a session of a graph."""

    def held(array: Any) -> Any:
        return place.put(array.copy(order="C"), DType.of(array.dtype))

    return StatefulProgram(
        "onnxruntime", graph, state, lambda each: _Turns(each, state, make(each), place), held, _shown
    )


class _Turns:
    """A session with two sides that take turns.

    Each binds the state that the other wrote to the inputs, and buffers of its own to the outputs that replace it. So a
    call that fails has written only there. Outputs of a shape that is not static are allocated in each call.
    """

    def __init__(self, graph: Graph, state: Mapping[str, str], session: InferenceSession, place: Place) -> None:
        _refuse_values(graph, session)
        self._session = session
        self._check = StateFeedCheck(graph, state)
        self._dtypes = {v.name: v.tensor.dtype for v in graph.inputs}
        self._outputs = [o.name for o in session.get_outputs()]
        kept = list(dict.fromkeys(state.values()))
        others = [name for name in self._outputs if name not in kept]
        self._sides = [_Side(graph, session, others, kept, state, place) for _ in range(2)]
        self._turn = 0

    def __call__(self, held: Mapping[str, Any], feeds: Mapping[str, Any]) -> Results:
        given = self._check(feeds)
        side = self._sides[self._turn]
        side.bind(held)
        for name, array in given.items():
            side.feed(name, to_runtime(array, self._dtypes[name]))
        results = Results(self._outputs, _shown)
        try:
            side.run(self._session, results)
        except _RUN_ERRORS as error:
            raise run_failure(error, given) from error
        self._turn = 1 - self._turn
        return results


class _Side:
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
        self._others = others
        self._binding = session.io_binding()
        self._bound: dict[str, Any] | None = None
        self._shown: weakref.ref[Results] | None = None
        inputs = {v.name: v.type for v in graph.all_inputs}
        types = {output: inputs[name] for name, output in state.items()}  # what replaces an input is of its type
        self._buffers = {name: buffer for name in kept if (buffer := _buffer(types[name], place)) is not None}
        self._loose = [name for name in kept if name not in self._buffers]
        self._place = place
        self._bind_outputs()
        for name, buffer in self._buffers.items():
            self._binding.bind_ortvalue_output(name, buffer)
        self._replaced = {name: self._buffers.get(output) for name, output in state.items()}

    def _bind_outputs(self) -> None:
        """Let the runtime make what has no buffer here: for the caller with the processor, states on the device."""
        for name in self._others:
            self._binding.bind_output(name)
        for name in self._loose:
            self._binding.bind_output(name, *self._place)

    def bind(self, held: Mapping[str, Any]) -> None:
        """Let the inputs read the state where they do not read it already."""
        if held != self._bound:
            bound = self._bound or {}
            for name, value in held.items():
                if bound.get(name) is not value:
                    self._binding.bind_ortvalue_input(name, value)
            self._bound = dict(held)

    def feed(self, name: str, value: Any) -> None:
        self._binding.bind_ortvalue_input(name, value)
        if name in self._state:
            self._bound = None

    def run(self, session: InferenceSession, results: Results) -> None:
        """Fill ``results``. Earlier ones that still refer to the buffers of this side take copies first."""
        if self._shown is not None and (earlier := self._shown()) is not None:
            earlier.take()
        self._bind_outputs()  # else the runtime would write into what it gave the last time
        with _in_time() as options:
            session.run_with_iobinding(self._binding, options)
        kept, replaced = self._buffers, self._replaced
        found = self._binding.get_outputs_as_ortvaluevector()
        for position, name in enumerate(self._others):
            results[name] = from_runtime(found[position])
        if self._loose:
            first = len(self._others)
            kept = kept | {name: onnxruntime.OrtValue(found[first + k]) for k, name in enumerate(self._loose)}
            replaced = {name: kept[output] for name, output in self._state.items()}
        results.keep(kept, replaced)
        self._shown = weakref.ref(results)


def _buffer(kind: Type | None, place: Place) -> Any:
    """A tensor of the runtime of a static type, else None."""
    if not isinstance(kind, TensorType) or kind.shape is None:
        return None
    shape = [dim for dim in kind.shape if isinstance(dim, int)]
    if len(shape) < len(kind.shape):
        return None
    return place.empty(shape, kind.dtype)


def _shown(value: Any) -> Array:
    return from_runtime(value).copy()


def _is_shared(feed: Any, given: Any) -> bool:
    """Whether a tensor of the runtime can lie where the caller's array does."""
    if given is not feed or not isinstance(given, np.ndarray) or given.dtype.hasobject:
        return False
    dtype = DType.of(given.dtype)
    return given.flags.c_contiguous and dtype.bits >= 8 and not is_extended(dtype)


def _is_plain(kind: str) -> bool:
    """Whether the runtime gives what it calls so as an array of numpy's own types."""
    return _is_of_numbers(kind) and not is_extended(dtype_of(kind))


def _is_of_numbers(kind: str) -> bool:
    """Whether what the runtime calls so is a tensor of numbers."""
    return kind.startswith("tensor(") and kind != "tensor(string)"


def _has_extended(kind: Type | None) -> bool:
    if isinstance(kind, SequenceType | OptionalType) and _has_extended(kind.element):
        raise UnsupportedOp(f"onnxruntime cannot be fed with {kind}")
    return isinstance(kind, TensorType) and is_extended(kind.dtype)


def _refuse_values(graph: Graph, session: InferenceSession) -> None:
    """Raise ``UnsupportedOp`` unless all inputs and outputs are tensors that the runtime has apart from numpy."""
    if kinds := _without_values(graph, session):
        raise UnsupportedOp(
            "onnxruntime cannot run a graph that has inputs or outputs other than numeric tensors, together with state "
            "or with tensors of types that numpy lacks",
            given=", ".join(dict.fromkeys(kinds)),
        )


def _without_values(graph: Graph, session: InferenceSession) -> list[str]:
    """The types of inputs and outputs of which the runtime has no tensors apart from numpy."""
    kinds = [str(v.type) for v in graph.all_inputs if not _is_numeric(v.type)]
    return kinds + [o.type for o in session.get_outputs() if not _is_of_numbers(o.type)]


def _is_numeric(kind: Type | None) -> bool:
    return isinstance(kind, TensorType) and kind.dtype is not DType.string
