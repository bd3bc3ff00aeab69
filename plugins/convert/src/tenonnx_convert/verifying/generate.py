"""Random inputs for a graph, by the types of its inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tenonnx.errors import InvalidFeed
from tenonnx.graph.dtypes import DType
from tenonnx.graph.graph import Graph, Value
from tenonnx.graph.symbolic import Dim, evaluate, symbol, symbols_of
from tenonnx.graph.types import MapType, OptionalType, SequenceType, TensorType, Type
from tenonnx.op.graph_inference import infer

#: Advice for inputs that cannot be generated.
ADVICE = (
    "give the inputs (feeds=, --input name=file.npy), or their shapes (input_shapes=, --input-shapes name:1,3,224,224)"
)

#: Maximum number of elements of a generated input.
LARGEST = 1 << 28

#: Length of generated sequences and maps.
_LENGTH = 2

#: Number of different sizes of symbols, from 2 upwards; further symbols reuse them, so that inputs stay small.
_SIZES = 7

#: The size of each symbol.
Sizes = Mapping[str, int]

InputShapes = Mapping[str, Sequence[int | str | None]]


def generate_feeds(
    graph: Graph, seed: int = 0, input_shapes: InputShapes | None = None, sizes: Sizes | None = None
) -> dict[str, Any]:
    """Random contents for every required input, reproducible by ``seed``.

    A symbol has the same size everywhere, given by ``sizes`` or chosen. ``input_shapes`` fix dims of inputs, or express
    them by other symbols (``total`` by ``"past + sequence"``). Floats are normal with variance 1. Integers are 0 or 1,
    and 1 in inputs named as masks, since models count mask entries. Raises ``InvalidFeed`` for an input of unknown type
    or rank, and for one that is too large.
    """
    inputs = _narrowed(graph, input_shapes)
    known = {**_usual_sizes(inputs), **(sizes or {})}
    random = np.random.default_rng(seed)
    return {value.name: _contents(value, value.type, known, random) for value in inputs}


def usual_sizes(graph: Graph, input_shapes: InputShapes | None = None) -> dict[str, int]:
    """The default sizes of symbols and of unknown dims of inputs."""
    return _usual_sizes(_narrowed(graph, input_shapes))


def _usual_sizes(inputs: Sequence[Value]) -> dict[str, int]:
    """Small sizes, different for each symbol; unknown dims share one for each axis, often a batch."""
    sizes: dict[str, int] = {}
    axes: dict[str, int] = {}
    for value in inputs:
        for name in _symbols(value.type, value.name):
            if not name.startswith("?"):
                sizes.setdefault(name, 2 + (len(sizes) + len(axes)) % _SIZES)
            else:
                axis = name.rpartition(" ")[2]
                sizes[name] = axes.setdefault(axis, 2 + (len(sizes) + len(axes)) % _SIZES)
    for name in sizes:
        parts = [size for part, size in sizes.items() if "total" not in part and ("past" in part or "seq" in part)]
        if "total" in name and len(parts) == 2:  # in decoders with a cache, the number of cached and new tokens
            sizes[name] = sum(parts)
    return sizes


def _narrowed(graph: Graph, input_shapes: InputShapes | None) -> list[Value]:
    """Copies of the inputs with types narrowed by ``input_shapes``; the graph is unchanged."""
    stand_in = Graph(graph.name)
    stand_in.all_inputs = [Value(v.name, v.type, data=v.data) for v in graph.all_inputs]
    infer(stand_in, input_shapes)
    return stand_in.inputs


def _symbols(kind: Type | None, of: str) -> list[str]:
    match kind:
        case TensorType(shape=tuple(shape)):
            return [name for dim in _named(shape, of) for name in sorted(symbols_of(dim))]
        case SequenceType() | OptionalType():
            return _symbols(kind.element, of)
        case MapType():
            return _symbols(kind.value, of)
    return []


def _named(shape: Sequence[Dim], of: str) -> list[Dim]:
    """The dims, with symbols for unknown ones, named after input and axis."""
    return [symbol(f"? {of} {axis}") if dim is None else dim for axis, dim in enumerate(shape)]


def _contents(value: Value, kind: Type | None, sizes: Mapping[str, int], random: np.random.Generator) -> Any:
    match kind:
        case TensorType(shape=tuple()):
            return _tensor(value.name, kind.dtype, _shape(value, kind, sizes), random)
        case SequenceType():
            return [_contents(value, kind.element, sizes, random) for _ in range(_LENGTH)]
        case OptionalType():
            return _contents(value, kind.element, sizes, random)
        case MapType():
            keys = range(_LENGTH) if kind.key.is_integer else map(str, range(_LENGTH))
            return {key: _contents(value, kind.value, sizes, random) for key in keys}
    raise InvalidFeed(
        f'contents of input "{value.name}" cannot be drawn at random: its dtype or rank is not known',
        given=str(value.type or "no type"),
        do=ADVICE,
    )


def _shape(value: Value, kind: TensorType, sizes: Mapping[str, int]) -> tuple[int, ...]:
    assert kind.shape is not None
    try:
        shape = tuple(evaluate(dim, sizes) for dim in _named(kind.shape, value.name))
        problem = "" if all(size >= 0 for size in shape) else "a dim is negative"
    except ValueError as error:
        shape, problem = (), str(error)
    if math.prod(max(size, 1) for size in shape) > LARGEST:  # numpy counts empty dims like this, too
        problem = f"it would have {math.prod(shape):,} elements"
    if problem:
        given = ", ".join(f"{name}={size}" for name, size in sizes.items())
        raise InvalidFeed(
            f'contents of input "{value.name}" cannot be drawn at random: {problem}',
            given=f"{kind}; {given}",
            do=ADVICE,
        )
    return shape


def _tensor(name: str, dtype: DType, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray[Any, Any]:
    if dtype is DType.float8e8m0:  # only powers of two
        return np.exp2(random.integers(-2, 3, shape).astype(np.float32)).astype(dtype.numpy)
    if dtype.is_float:
        return random.standard_normal(shape, np.float32).astype(dtype.numpy)
    if dtype.is_complex:
        return (random.standard_normal(shape) + 1j * random.standard_normal(shape)).astype(dtype.numpy)
    array = np.ones(shape, np.int64) if "mask" in name.lower() else random.integers(0, 2, shape)
    if dtype is not DType.string:
        return array.astype(dtype.numpy)
    return np.asarray(np.array(["0", "1"], object)[array], object)  # indexing shares the two string objects
