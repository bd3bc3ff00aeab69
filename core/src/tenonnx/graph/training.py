"""What a graph carries so that its training can go on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tenonnx.graph.values import Constant


@dataclass(frozen=True)
class TrainingState:
    """The state of an optimizer between two runs.

    ``tensors`` are moments, counters and the like, by the name that they have as initializers of a file. ``settings``
    is everything else, as JSON can hold it. What they mean is known to the package that trains.
    """

    tensors: Mapping[str, Constant] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
