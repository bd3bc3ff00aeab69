"""Verification against the original: at the sizes of the examples, and at other sizes of dynamic dims."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tenonnx.extend import DType, Graph, LimitExceeded, TensorType, Value, limits
from tenonnx.extend.checks import BY_TABLE, DRAWN, Allowed, Tolerance, Verification, coarse_inside, drawn_outputs
from tenonnx_frontends import SizedCalls, not_verified, one_line, resized, sizes_of, verify_calls
from tenonnx_frontends import sizes_to_compare as sizes_around

#: The original: a function from arrays by input name to outputs.
Runner = Callable[[Mapping[str, Any]], Sequence[Any]]

#: Sizes at which dims are tried without examples.
_SIZES = (2, 1, 5)


def verify_against(
    source: str,
    run: Runner,
    graph: Graph,
    allowed: Allowed = BY_TABLE,
    examples: Mapping[str, Any] | None = None,
    coarse: Tolerance | None = None,
    steps: int = 0,
    freed: Sequence[str] = (),
) -> Verification:
    """Compare ``graph`` with ``run``, the original of ``source``; outputs that it does not return are not compared.

    Further outputs are contents of variables after the call and are not compared; neither are random outputs. It is a
    problem if the source accepts only one size of a dim in ``freed``.
    """
    inner = coarse_inside(graph) if coarse is None else coarse
    variables = {f"{value.name}_next" for value in graph.variables}
    added = {value.name: "what a variable holds after the call" for value in graph.outputs if value.name in variables}

    sizes = list(sizes_to_compare(graph, examples))
    try:
        for each in () if examples else sizes:
            for value in graph.inputs:
                limits.check_elements(_shape(value, each), f'input "{value.name}"')
    except LimitExceeded as error:  # no random input is generated
        return not_verified(source, one_line(error), graph)

    def call(sizes: Mapping[str, int]) -> tuple[Mapping[str, Any], Callable[[], list[Any]]]:
        feeds = _resized(graph, examples, sizes) if examples else drawn(graph, sizes)

        def expected() -> list[Any]:
            results = [array_of(array) for array in run(feeds)]
            if results and not any(array.size for array in results):
                raise ValueError("it gives no elements")
            return [*results, *(None for _ in added)]

        return {name: array_of(array) for name, array in feeds.items()}, expected

    calls = SizedCalls(call)
    unverified = dict.fromkeys(drawn_outputs(graph), DRAWN) | added
    result = verify_calls(source, graph, calls.calls_at(sizes), allowed, inner, unverified, steps)
    result.problems += [problem for name in freed if (problem := calls.why_fixed(name, source))]
    return result


def _resized(graph: Graph, examples: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Any]:
    """Examples at other sizes. Random numbers replace constant floats, which would hide differences."""
    random = drawn(graph, sizes)
    feeds = {}
    for value in graph.inputs:
        array, dims = examples[value.name], getattr(value.type, "shape", None) or ()
        wanted = {k: dim if isinstance(dim, int) else sizes.get(str(dim)) for k, dim in enumerate(dims[: array.ndim])}
        axes = {k: size for k, size in wanted.items() if size is not None and size != array.shape[k]}
        is_plain = axes and array.dtype.kind == "f" and array.size > 1 and (array == array.flat[0]).all()
        feeds[value.name] = random[value.name] if is_plain else resized(array, axes) if axes else array
    return feeds


def array_of(array: Any) -> Any:
    """Convert an array of TensorFlow to the graph's form: complex numbers as a last axis of 2, strings as ``str``."""
    array = np.asarray(array)
    if array.dtype.kind == "c":
        return np.stack([array.real, array.imag], -1)
    if array.dtype.kind in "OS":
        return np.vectorize(lambda t: t.decode() if isinstance(t, bytes) else t, otypes=[object])(array).astype(object)
    return array


def dims_of(graph: Graph) -> list[str]:
    found: dict[str, None] = {}
    for value in graph.inputs:
        if isinstance(value.type, TensorType) and value.type.shape is not None:
            found.update({str(dim): None for dim in value.type.shape if not isinstance(dim, int) and dim is not None})
    return list(found)


def sizes_to_compare(graph: Graph, examples: Mapping[str, Any] | None = None) -> Iterator[dict[str, int]]:
    """The sizes of the examples for static dims; else all dims at a few sizes, and each one at another size.

    With examples, only single dims vary, since sizes of inputs may depend on each other.
    """
    names = dims_of(graph)
    if not names:
        yield {}
        return
    if examples:
        axes = {
            v.name: {k: str(dim) for k, dim in enumerate(v.type.shape or ()) if not isinstance(dim, int)}
            for v in graph.inputs
            if isinstance(v.type, TensorType)
        }
        given = sizes_of(axes, {name: np.shape(array) for name, array in examples.items()})
        yield from ({**given, **changed} for changed in sizes_around(given))
        return
    first, *others = _SIZES
    for size in _SIZES:
        yield dict.fromkeys(names, size)
    for name in names if len(names) > 1 else ():
        yield {**dict.fromkeys(names, first), name: others[-1] + 1}


def drawn(graph: Graph, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Random feeds of these sizes; floats in [0, 1) where they are cast to short integers."""
    random = np.random.default_rng(0)
    feeds: dict[str, Any] = {}
    narrows = _narrows(graph)
    for value in graph.inputs:
        kind = value.type
        assert isinstance(kind, TensorType)
        shape = _shape(value, sizes)
        if kind.dtype is DType.string:
            feeds[value.name] = random.choice(np.asarray(["a", "b", "c"], object), shape).astype(object)
        elif kind.dtype is DType.bool:
            feeds[value.name] = random.integers(0, 2, shape).astype(bool)
        elif (
            kind.dtype.numpy.kind in "iu" and kind.dtype.numpy.itemsize < 4
        ):  # quantized values and pixels; other integers may be indices
            most = np.iinfo(kind.dtype.numpy)
            feeds[value.name] = random.integers(most.min, most.max, shape, endpoint=True).astype(kind.dtype.numpy)
        elif kind.dtype.numpy.kind in "iu":
            feeds[value.name] = random.integers(0, 3, shape).astype(kind.dtype.numpy)
        else:
            numbers = random.random(shape) if narrows else random.normal(size=shape)
            feeds[value.name] = numbers.astype(kind.dtype.numpy)
    return feeds


def _shape(value: Value, sizes: Mapping[str, int]) -> list[int]:
    dims = value.type.shape or () if isinstance(value.type, TensorType) else ()
    return [dim if isinstance(dim, int) else sizes.get(str(dim), _SIZES[0]) for dim in dims]


def _narrows(graph: Graph) -> bool:
    """Whether floats are cast to integers that may overflow, where TensorFlow's kernels differ."""
    return any(
        node.op_type == "Cast" and _is(node.inputs[0], "f") and _is(node.outputs[0], "iu", 2) for node in graph.walk()
    )


def _is(value: Any, kinds: str, size: int = 8) -> bool:
    if value is None or not isinstance(value.type, TensorType) or value.dtype is DType.string:
        return False
    return value.dtype.numpy.kind in kinds and value.dtype.numpy.itemsize <= size
