"""Verification against JAX: at the sizes of the examples, and at other sizes of dynamic dims."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from tenonnx.extend import Graph
from tenonnx.extend.checks import coarse_inside
from tenonnx.extend.frontends import BY_TABLE, Allowed, Verification
from tenonnx_frontends import SizedCalls, sizes_to_compare, verify_calls
from tenonnx_jax.examples import Examples
from tenonnx_jax.sources import Source
from tenonnx_jax.types import Parts, parts_of


def verify_against(source: Source, examples: Examples, graph: Graph, allowed: Allowed = BY_TABLE) -> Verification:
    """Compare ``graph`` with ``source`` on the fastest backend, at the sizes of the examples, at 1, and beyond.

    Sizes that ``source`` rejects are noted, and larger ones compared instead. A dim for which it accepts a single size
    is a problem.
    """

    def call(sizes: Mapping[str, int]) -> tuple[Mapping[str, Any], Callable[[], list[Any]]]:
        arrays = examples.resized(sizes)
        feeds = {value.name: array_of(array) for value, array in zip(graph.inputs, arrays, strict=True)}
        return feeds, lambda: _full(outputs_of(source, examples, arrays), arrays)

    calls, given = SizedCalls(call), examples.sizes
    wanted = [{**given, **changed} for changed in sizes_to_compare(given)]
    result = verify_calls("JAX", graph, calls.calls_at(wanted), allowed, coarse_inside(graph))
    result.problems += [problem for name in given if (problem := calls.why_fixed(name, "JAX"))]
    return result


def _full(outputs: list[Any], arrays: Any) -> list[Any]:
    """Reject a size below a window, for which JAX returns empty results and ONNX is undefined."""
    if any(array.size == 0 for array in outputs) and all(np.size(array) for array in arrays):
        raise ValueError("outputs have no elements at this size")
    return outputs


def outputs_of(source: Source, examples: Examples, arrays: Any) -> list[Any]:
    """Results of JAX, as arrays of the graph's outputs."""

    def compute(given: Any) -> list[Any]:  # compiled, since running operations one by one is many times slower
        arguments, keywords = examples.arguments(given)
        return jax.tree_util.tree_leaves(source(*arguments, **keywords))

    return [
        array_of(leaf)
        for leaf in jax.jit(compute)([a if hasattr(a, "devices") else jax.numpy.asarray(a) for a in arrays])
    ]


def array_of(array: Any) -> Any:
    """An array in the graph's form: parts along a last axis, and the element types of JAX."""
    if not hasattr(array, "dtype"):
        array = jax.numpy.asarray(array)
    parts = parts_of(array)
    if isinstance(parts, Parts):
        return np.stack(list(parts), -1)
    return parts.astype(jax.dtypes.canonicalize_dtype(parts.dtype))
