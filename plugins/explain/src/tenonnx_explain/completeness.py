"""Completeness check: attributions have to sum to the difference of outputs that they explain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenonnx import Graph
from tenonnx.tools import compile_graph
from tenonnx_cli.tools import complete

_SUFFIX = "/delta"


@dataclass(frozen=True)
class Completeness:
    """The largest ``error`` of a row's sum of attributions, and the largest sum ``size`` of their absolute values."""

    error: float
    size: float

    @property
    def share(self) -> float:
        """The error relative to the size; NaN if an attribution is not finite."""
        return self.error / max(self.size, float(np.finfo(np.float32).tiny))


def completeness(graph: Graph, feeds: Mapping[str, Any], seed: int, backend: str = "auto") -> Completeness | None:
    """Completeness on ``feeds``, with random data for other inputs; None for methods without an output ``/delta``."""
    deltas = [value.name for value in graph.outputs if value.name.endswith(_SUFFIX)]
    if not deltas:
        return None
    shown = [value.name for value in graph.outputs if value.name.endswith("/attribution")]
    results = complete(graph, compile_graph(graph, backend), feeds, seed, {})[1]
    sizes = [np.abs(results[name]).reshape(len(results[name]), -1).sum(axis=1).max(initial=0) for name in shown]
    return Completeness(max(float(np.abs(results[name]).max(initial=0)) for name in deltas), float(sum(sizes)))
