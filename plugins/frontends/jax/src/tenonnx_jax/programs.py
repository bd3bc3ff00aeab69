"""Programs of the JAX backend: compiled by the shapes of feeds, with variables and state on the device."""

from __future__ import annotations

import warnings
import weakref
from collections import Counter
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tenonnx.extend import Graph, InvalidCall, TenonnxError, TensorType, Value
from tenonnx.extend.backends import (
    Bindable,
    DefaultsProgram,
    FeedCheck,
    Program,
    Results,
    RunFailure,
    StateFeedCheck,
    StatefulProgram,
    compile_graph,
)
from tenonnx_jax.buckets import bucket, is_stretchable, padded
from tenonnx_jax.functions import is_array, planned
from tenonnx_jax.kernels import IN_RANGE, DataDependent
from tenonnx_jax.plan import EAGER, SMALL
from tenonnx_jax.sharding import Layouts, Sharding, batch_axes, fetched, made_mesh

#: The first KINDS shapes of feeds are compiled at once, later ones at their OFTEN-th call; until then numpy computes
#: them, since compiling for a single call is not worth it.
KINDS, OFTEN = 4, 3

#: Number of compilations in this process.
counts = Counter({"compiled": 0})


def program(graph: Graph, state: Mapping[str, str] | None, where: Any) -> Program:
    """A program on a JAX device (None for the default) or over ``Layouts``. Raises ``UnsupportedOp``."""
    if state:
        return StatefulProgram("jax", graph, state, lambda form: _Turns(form, state, where), _copied, fetched)
    return DefaultsProgram(graph, lambda form: JaxProgram(form, where))


def place(
    graph: Graph,
    state: Mapping[str, str],
    device: Any,
    devices: int | None,
    mesh: Any,
    sharding: Sharding | None,
) -> Any:
    """The device or the layouts of these options. Raises ``InvalidCall`` for unknown ones."""
    if mesh is None and devices is None:
        if sharding is not None:
            raise InvalidCall("a sharding was given without a mesh", do='mesh={"data": 2}')
        return _device(device)
    if device is not None:
        raise InvalidCall("both a device and a mesh were given", do="leave one of them out")
    layouts = Layouts(made_mesh(mesh, devices), sharding, batch_axes(graph, state))
    layouts.check(value.name for value in (*graph.all_inputs, *graph.variables))
    for value in graph.variables:
        if value.data is not None and is_array(value):
            layouts.of(value.name, np.shape(value.data.array()), exact=True)
    return layouts


def _device(name: Any) -> Any:
    if name is None or isinstance(name, jax.Device):
        return name
    try:
        platform, _, number = name.partition(":")
        if number.startswith("-"):
            raise ValueError(number)
        found = jax.devices(platform)
        return found[int(number or 0)]
    except (AttributeError, RuntimeError, ValueError, IndexError) as error:
        available = ", ".join(f"{d.platform}:{d.id}" for d in jax.devices())
        raise InvalidCall("JAX does not find the device", given=str(name), available=available) from error


def _put(where: Any, name: str, array: Any) -> Any:
    return where.put(name, array) if isinstance(where, Layouts) else jax.device_put(array, where)


def _copied(array: Any) -> Any:
    """Copy of the caller's array."""
    with jax.enable_x64(True):
        return jnp.array(array)


class _Compiled:
    """A plan as a function that JAX compiles for each shape of feeds, with variables as arguments."""

    def __init__(self, graph: Graph, where: Any, state: Mapping[str, str] | None = None) -> None:
        arrays = {v.name: v.data for v in graph.variables if v.data is not None and is_array(v) and _size(v) > SMALL}
        arrays = {name: data for name, data in arrays.items() if name not in (state or {})}
        self.plan = planned(graph, list(arrays))
        self.names = [value.name for value in self.plan.graph.inputs]
        self.compiled, self.eager = 0, not all(map(is_array, self.plan.graph.inputs))
        self._compiled_shapes: set[Any] = set()
        self._traces: dict[Any, Any] = {}
        with jax.enable_x64(True):
            self._variables = [_put(where, name, np.array(data.array())) for name, data in arrays.items()]
        self._state_inputs = {output: name for name, output in (state or {}).items()}
        self._jit = jax.jit(self._traced, donate_argnums=0)
        self._device = where

    def _traced(self, state: Mapping[str, Any], given: Mapping[str, Any], variables: Sequence[Any]) -> tuple[Any, Any]:
        """The outputs, and whether all indices are in range; None if there are none."""
        self.compiled += 1
        counts["compiled"] += 1
        noted: list[Any] = []
        token = IN_RANGE.set(noted)
        try:
            found = self.plan([*(state[n] if n in state else given[n] for n in self.names), *variables])
        finally:
            IN_RANGE.reset(token)
        try:
            found = jax.tree_util.tree_map(jnp.asarray, found)
        except TypeError as error:
            raise DataDependent("values that are not arrays are computed by numpy", given=str(error)) from error
        placed = [self._placed(value.name, each) for value, each in zip(self.plan.graph.outputs, found, strict=True)]
        return placed, jnp.stack(noted).all() if noted else None

    def _placed(self, output: str, array: Any) -> Any:
        """State for the next call, in the same layout as in this one."""
        if not isinstance(self._device, Layouts) or output not in self._state_inputs:
            return array
        return jax.lax.with_sharding_constraint(array, self._device.of(self._state_inputs[output], array.shape))

    def __call__(self, state: Mapping[str, Any], given: Mapping[str, Any]) -> list[Any]:
        with jax.enable_x64(True), jax.default_device(None if isinstance(self._device, Layouts) else self._device):
            if isinstance(self._device, Layouts):
                state, given = ({n: _put(self._device, n, a) for n, a in arrays.items()} for arrays in (state, given))
            if not self.eager:
                try:
                    return self._called(state, given)
                except DataDependent:
                    self.eager = True
            token = EAGER.set(True)
            try:
                arrays = [_on_device(state[n] if n in state else given[n]) for n in self.names]
                return self.plan([*arrays, *self._variables])
            finally:
                EAGER.reset(token)

    def _called(self, state: Mapping[str, Any], given: Mapping[str, Any]) -> list[Any]:
        kind = self.shapes_of(given)
        if isinstance(self._device, Layouts):  # pending copies must not wait for threads of the call
            jax.block_until_ready((state, given))
        if kind in self._compiled_shapes:
            found, in_range = self._jit(state, given, self._variables)
        else:
            with warnings.catch_warnings():  # JAX warns of donated buffers that match no output
                warnings.filterwarnings("ignore", message="Some donated buffers were not usable")
                found, in_range = self._jit(state, given, self._variables)
            self._compiled_shapes.add(kind)
        if in_range is not None and not fetched(in_range):
            raise RunFailure(
                "an index is out of the range of its axis",
                do='run it on backend="numpy", which names the node',
            )
        return list(found)

    def trace(self, kind: Any) -> Any:
        """The traced function for feeds of these shapes; None if tracing fails."""
        if kind not in self._traces:
            shapes = dict(kind)
            arrays = [(shapes[v.name], v.dtype.numpy) for v in self.plan.graph.inputs]
            arrays += [(array.shape, array.dtype) for array in self._variables]
            try:
                with jax.enable_x64(True):
                    structures = [jax.ShapeDtypeStruct(*each) for each in arrays]
                    self._traces[kind] = jax.make_jaxpr(lambda *arrays: self.plan(arrays))(*structures)
            except (TenonnxError, TypeError):
                self._traces[kind] = None
        return self._traces[kind]

    def shapes_of(self, given: Mapping[str, Any]) -> Any:
        return tuple((name, np.shape(array)) for name, array in given.items())

    def is_compiled(self, kind: Any) -> bool:
        return kind in self._compiled_shapes

    def is_worth_compiling(self, kind: Any, times: int) -> bool:
        return self.eager or kind in self._compiled_shapes or len(self._compiled_shapes) < KINDS or times >= OFTEN


def _size(value: Value) -> int:
    return int(np.prod([int(n) for n in value.shape]))  # type: ignore[arg-type]


def _on_device(contents: Any) -> Any:
    if isinstance(contents, np.ndarray) and contents.dtype.kind not in "OUS":
        return jnp.asarray(contents)
    return contents


def _to_caller(contents: Any) -> Any:
    """Contents with arrays copied to the caller."""
    return jax.tree_util.tree_map(lambda a: fetched(a) if isinstance(a, jax.Array) else a, contents)


class JaxProgram(Bindable):
    """A program for a graph without state. Thread-safe. ``compiled`` is the number of compilations.

    Feeds of a new size are padded to the size of a bucket, and the results cut, where padding does not change other
    rows (``buckets.py``).
    """

    backend = "jax"

    def __init__(self, graph: Graph, where: Any) -> None:
        self._graph = graph
        self.state: MutableMapping[str, Any] = {}
        self._outputs = [value.name for value in graph.outputs]
        self._check = FeedCheck(graph.inputs)
        self._inputs = [value.name for value in graph.inputs]
        self._run = _Compiled(graph, where)
        self._times: Counter[Any] = Counter()
        self._buckets: dict[Any, Any] = {}
        kinds = [(v.name, v.type.shape if isinstance(v.type, TensorType) else None) for v in graph.inputs]
        self._dims = [(name, shape) for name, shape in kinds if shape is not None]
        self._numpy: Program | None = None

    @property
    def compiled(self) -> int:
        return self._run.compiled

    @property
    def eager(self) -> bool:
        """Whether nodes run one by one, because of data-dependent shapes."""
        return self._run.eager

    def __call__(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        given = dict(zip(self._inputs, self._check(feeds), strict=True))
        kind = () if self._run.eager else self._run.shapes_of(given)
        wider = kind
        if kind and self._times and not self._run.is_compiled(kind):
            wider = self._buckets.get(kind) or self._buckets.setdefault(kind, self._bucket(kind))
        if wider != kind:
            shapes = [each.shape for each in self._run.trace(kind).out_avals]
            given = {name: padded(given[name], shape) for name, shape in wider}
            found = self._run({}, given)
            found = [each[tuple(map(slice, shape))] for each, shape in zip(found, shapes, strict=True)]
            return {name: _to_caller(each) for name, each in zip(self._outputs, found, strict=True)}
        self._times[kind] += 1
        if not self._run.is_worth_compiling(kind, self._times[kind]):
            self._numpy = self._numpy or compile_graph(self._graph, "numpy")
            return self._numpy(feeds)
        found = self._run({}, given)
        return {name: _to_caller(each) for name, each in zip(self._outputs, found, strict=True)}

    def _bucket(self, kind: Any) -> Any:
        """The shapes of a bucket for feeds of these shapes; unchanged if there is none."""
        for some in self._symbols(), self._symbols()[:1]:  # all dynamic dims, or else only the first, the batch
            if not some:
                continue
            wider = tuple(
                (name, tuple(bucket(n) if str(d) in some else n for n, d in zip(shape, dims, strict=True)))
                for (name, shape), (_, dims) in zip(kind, self._dims, strict=True)
            )
            if wider == kind or any(0 in shape for _, shape in kind):
                continue
            one, other = self._run.trace(kind), self._run.trace(wider)
            if one is not None and other is not None and is_stretchable(one, other):
                return wider
        return kind

    def _symbols(self) -> list[str]:
        """Names of dynamic dims of inputs."""
        dims = [dim for _, shape in self._dims for dim in shape]
        names = dict.fromkeys(str(dim) for dim in dims if dim is not None and not isinstance(dim, int))
        return [name for name in names if name.isidentifier()] if len(self._dims) == len(self._inputs) else []


class _Turns:
    """A program for a graph with state, whose buffers are donated to the next state."""

    def __init__(self, graph: Graph, state: Mapping[str, str], where: Any) -> None:
        self._state = dict(state)
        self._outputs = [value.name for value in graph.outputs]
        self._check = StateFeedCheck(graph, state)
        self._run = _Compiled(graph, where, state)
        self._last: weakref.ref[Results] | None = None

    def __call__(self, state_arrays: Mapping[str, Any], feeds: Mapping[str, Any]) -> Results:
        given = self._check(feeds)
        last = self._last() if self._last is not None else None
        if last is not None:
            last.take()  # before its buffers are overwritten
        state = {name: array for name, array in state_arrays.items() if name in self._state and name not in given}
        found = dict(zip(self._outputs, self._run(state, given), strict=True))
        kept = {output: found.pop(output) for output in set(self._state.values())}
        results = Results(self._outputs, fetched)
        results.update({name: _to_caller(each) for name, each in found.items()})
        results.keep(kept, {name: kept[output] for name, output in self._state.items()})
        self._last = weakref.ref(results)
        return results
