"""Verification against JAX itself: at the sizes of the examples, and at others where dims vary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from tenonnx.extend import Graph, TenonnxError
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
from tenonnx_jax.examples import Examples
from tenonnx_jax.sources import Source
from tenonnx_jax.types import Parts, parts_of


def verify_against(source: Source, examples: Examples, graph: Graph, allowed: Allowed = BY_TABLE) -> Verification:
    """Compare ``graph`` with ``source`` on the fastest backend, at the sizes of the examples, at 1, and beyond."""
    found = Verification("JAX")
    found.problems += [f"onnx.checker: {problem}" for problem in structure_problems(graph)]
    if found.problems:
        return found
    program = graph.compile()
    terms, coarse = accumulation(graph), coarse_inside(graph)
    for sizes in sizes_to_compare(examples.sizes):
        where = program.backend + "".join(f", {dim}={size}" for dim, size in sizes.items())
        arrays = examples.resized(sizes)
        try:
            expected = outputs_of(source, examples, arrays)
        except Exception as error:
            said = str(error).split("\n")[0]
            found.notes.append(f"not compared ({where}): JAX does not take that: {type(error).__name__}: {said}")
            continue
        feeds = {v.name: array_of(a) for v, a in zip(graph.inputs, arrays, strict=True)}
        try:
            actual = program(feeds)
        except TenonnxError as error:
            found.problems.append(f"{where}: {error}")
            continue
        for value, array in zip(graph.outputs, expected, strict=True):
            difference = compare(
                actual[value.name], array, accumulation=terms, tolerance=allowed.around(array, terms, coarse)
            )
            found.outputs.append(OutputDifference(value.name, where, difference))
    return found


def outputs_of(source: Source, examples: Examples, arrays: Any) -> list[Any]:
    """What JAX gives, as arrays of the graph's outputs."""

    def compute(given: Any) -> list[Any]:  # compiled as a whole: one operation after another takes many times as long
        arguments, keywords = examples.arguments(given)
        return jax.tree_util.tree_leaves(source(*arguments, **keywords))

    return [
        array_of(leaf)
        for leaf in jax.jit(compute)([a if hasattr(a, "devices") else jax.numpy.asarray(a) for a in arrays])
    ]


def array_of(array: Any) -> Any:
    """An array as the graph has it: parts along a last axis, and the element types that JAX computes with."""
    if not hasattr(array, "dtype"):
        array = jax.numpy.asarray(array)
    held = parts_of(array)
    if isinstance(held, Parts):
        return np.stack(list(held), -1)
    return held.astype(jax.dtypes.canonicalize_dtype(held.dtype))


def sizes_to_compare(given: Mapping[str, int]) -> list[dict[str, int]]:
    """The sizes of the examples, and for each dim 1 and one more than two times as many; all of them at 1."""
    alone = [{dim: other} for dim, size in given.items() for other in dict.fromkeys((1, 2 * size + 1))]
    return [{}, *alone, *([dict.fromkeys(given, 1)] if len(given) > 1 else [])]
