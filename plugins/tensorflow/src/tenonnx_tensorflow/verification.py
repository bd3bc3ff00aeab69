"""Verification against TensorFlow itself: at the sizes of the examples, and at others where dims vary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tenonnx.extend import DType, Graph, TenonnxError, TensorType
from tenonnx.extend.checks import (
    BY_TABLE,
    Allowed,
    OutputDifference,
    Verification,
    accumulation,
    coarse_inside,
    compare,
    structure_problems,
)

#: Sizes that a dim without examples is tried at.
_SIZES = (2, 1, 5)


def verify_against(
    run: Any, graph: Graph, allowed: Allowed = BY_TABLE, examples: Mapping[str, Any] | None = None
) -> Verification:
    """Compare ``graph`` with ``run``, the original as a function of arrays by name, on the fastest backend."""
    found = Verification("TensorFlow")
    found.problems += [f"onnx.checker: {problem}" for problem in structure_problems(graph)]
    if found.problems:
        return found
    program = graph.compile()
    terms, coarse = accumulation(graph), coarse_inside(graph)
    for sizes in sizes_to_compare(graph):
        feeds = examples if examples and not sizes else drawn(graph, sizes)
        if feeds is None:
            continue
        where = program.backend + "".join(f", {dim}={size}" for dim, size in sizes.items())
        try:
            expected = run(feeds)
        except Exception as error:
            said = str(error).split("\n")[0][:200]
            found.notes.append(f"not compared ({where}): TensorFlow does not take that: {type(error).__name__}: {said}")
            continue
        if expected and not any(np.size(array) for array in expected):
            found.notes.append(f"not compared ({where}): there is nothing to compare")
            continue
        try:
            actual = program({name: array_of(array) for name, array in feeds.items()})
        except TenonnxError as error:
            found.problems.append(f"{where}: {error}")
            continue
        for value, array in zip(graph.outputs, expected, strict=False):
            held = array_of(array)
            difference = compare(
                actual[value.name], held, accumulation=terms, tolerance=allowed.around(held, terms, coarse)
            )
            found.outputs.append(OutputDifference(value.name, where, difference))
    return found


def array_of(array: Any) -> Any:
    """An array as the graph has it: parts of complex numbers along a last axis, text as ``str``."""
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


def sizes_to_compare(graph: Graph) -> Sequence[dict[str, int]]:
    """The sizes of the examples, all dims at a few sizes, and each alone at another."""
    names = dims_of(graph)
    if not names:
        return [{}]
    first, *others = _SIZES
    together = [dict.fromkeys(names, size) for size in _SIZES]
    alone = [{**dict.fromkeys(names, first), name: others[-1] + 1} for name in names] if len(names) > 1 else []
    return [*together, *alone]


def drawn(graph: Graph, sizes: Mapping[str, int]) -> dict[str, Any] | None:
    """Random feeds of these sizes."""
    random = np.random.default_rng(0)
    feeds: dict[str, Any] = {}
    for value in graph.inputs:
        kind = value.type
        if not isinstance(kind, TensorType) or kind.shape is None:
            return None
        shape = [dim if isinstance(dim, int) else sizes.get(str(dim), _SIZES[0]) for dim in kind.shape]
        if kind.dtype is DType.string:
            feeds[value.name] = random.choice(np.asarray(["a", "b", "c"], object), shape).astype(object)
        elif kind.dtype is DType.bool:
            feeds[value.name] = random.integers(0, 2, shape).astype(bool)
        elif kind.dtype.numpy.kind in "iu":
            feeds[value.name] = random.integers(0, 3, shape).astype(kind.dtype.numpy)
        else:
            feeds[value.name] = random.normal(size=shape).astype(kind.dtype.numpy)
    return feeds
