"""Tree ensembles that are lowered to ops of ai.onnx, recognized by their tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tenonnx.extend import Graph, Value

Array = np.ndarray[Any, Any]

#: X, the value of the scores, features, thresholds, following, votes, roots, lowered.
Found = tuple[Value, Value, Array, Array, Array, Array, int, int]


def lowered_ensembles(graph: Graph) -> Iterator[Found]:
    """Ensembles whose rows walk through tables of slots by GatherElements, step after step."""
    return iter(())
