"""Adapter of JAX for the conformance kit: its name, and running and differentiating graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tenonnx.extend import Graph, NotRepresentable

#: A function from cotangents of the outputs, None for those without, to gradients.
Pullback = Callable[[Sequence[Any]], list[Any]]

runtime = "jax"

#: Description of a converted graph.
form = "a function of JAX"


def run(graph: Graph, feeds: Mapping[str, Any], wrt: Sequence[str]) -> tuple[list[Any], Pullback]:
    """The outputs of a graph for feeds, compiled unless a shape is data-dependent, and the pullback to ``wrt``."""
    import jax

    from tenonnx_jax.functions import function

    called = function(graph)

    def computed(given: Mapping[str, Any]) -> list[Any]:
        return list(called({}, {**feeds, **given}).values())

    chosen = {name: feeds[name] for name in wrt}
    with jax.enable_x64(True):
        if wrt:
            outputs, back = jax.vjp(computed, chosen)
        else:
            try:
                outputs = jax.jit(computed)(feeds)
            except NotRepresentable:
                outputs = computed({})

    def pullback(cotangents: Sequence[Any]) -> list[Any]:
        with jax.enable_x64(True):
            whole = [_zeros(y, jax.dtypes.float0) if c is None else c for y, c in zip(outputs, cotangents, strict=True)]
            return [np.asarray(each) for each in back(whole)[0].values()]

    return list(jax.tree.map(np.asarray, outputs)), pullback


def _zeros(output: Any, of_integers: Any) -> Any:
    return np.zeros(output.shape, output.dtype if np.issubdtype(output.dtype, np.inexact) else of_integers)
