"""Verification against JAX itself: at the sizes of the examples, and at others where dims vary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from tenonnx.extend import Graph
from tenonnx.extend.checks import coarse_inside
from tenonnx.extend.frontends import BY_TABLE, Allowed, Verification
from tenonnx_frontends import SourceCall, sizes_to_compare, verify_calls
from tenonnx_jax.examples import Examples
from tenonnx_jax.sources import Source
from tenonnx_jax.types import Parts, parts_of


def verify_against(source: Source, examples: Examples, graph: Graph, allowed: Allowed = BY_TABLE) -> Verification:
    """Compare ``graph`` with ``source`` on the fastest backend, at the sizes of the examples, at 1, and beyond."""
    calls = (_call(source, examples, graph, sizes) for sizes in sizes_to_compare(examples.sizes))
    return verify_calls("JAX", graph, calls, allowed, coarse_inside(graph))


def _call(source: Source, examples: Examples, graph: Graph, sizes: Mapping[str, int]) -> SourceCall:
    arrays = examples.resized(sizes)
    return SourceCall(
        lambda: {v.name: array_of(a) for v, a in zip(graph.inputs, arrays, strict=True)},
        lambda: outputs_of(source, examples, arrays),
        ", ".join(f"{dim}={size}" for dim, size in sizes.items()),
    )


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
