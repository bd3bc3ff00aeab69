"""Early stopping, with the best weights restored."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tenonnx.extend import Graph, InvalidCall

#: Parts of names of metrics where larger is better.
_LARGER = ("accuracy", "top_", "f1", "roc_auc")


@dataclass(frozen=True)
class Patience:
    """End a training after ``epochs`` epochs in which ``monitor`` did not improve by more than ``min_delta``.

    The graph goes back to the best epoch.

    ``monitor`` is a name of a result of ``fit``, by default ``validation_loss``, or ``loss`` without validation data.
    ``larger`` is whether larger is better, by default for accuracy, top-k, F1 and ROC AUC.
    """

    epochs: int = 1
    monitor: str | None = None
    min_delta: float = 0.0
    larger: bool | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.epochs, int) and self.epochs > 0):
            raise InvalidCall("patience is not a number of epochs", given=repr(self.epochs))


def monitored(measured: Mapping[str, float], monitor: str | None) -> tuple[str, float]:
    """Name and number of the monitored result: by default the loss, of validation data if there are some."""
    name = monitor or ("validation_loss" if "validation_loss" in measured else "loss")
    if name not in measured:
        raise InvalidCall(f'"{name}" is monitored, but not measured', available=", ".join(measured), do="monitor=...")
    return name, measured[name]


def better(name: str, number: float, best: float | None, *, larger: bool | None = None, min_delta: float = 0.0) -> bool:
    """Whether a number is better than the best so far, by more than ``min_delta``."""
    if best is None or math.isnan(best):
        return True
    if larger is None:
        larger = any(word in name for word in _LARGER)
    return number > best + min_delta if larger else number < best - min_delta


@dataclass
class Best:
    """The best epoch so far: its results, and the contents and training state of its graph."""

    patience: Patience
    score: float | None = None
    waited: int = 0
    _contents: Mapping[str, Any] = field(default_factory=dict)
    _state: Any = None

    def is_exhausted(self, measured: Mapping[str, float], graph: Graph) -> bool:
        """Record an epoch that left ``graph`` as it is; returns whether patience is exhausted."""
        name, number = monitored(measured, self.patience.monitor)
        if better(name, number, self.score, larger=self.patience.larger, min_delta=self.patience.min_delta):
            self.score, self.waited = number, 0
            self._contents = {value.name: value.data for value in graph.variables}
            self._state = graph.training_state
        else:
            self.waited += 1
        return self.waited >= self.patience.epochs

    def restore(self, graph: Graph) -> bool:
        """Restore ``graph`` to the best epoch; returns whether that was not the last one."""
        if not self.waited:
            return False
        graph.assign({name: data.array() for name, data in self._contents.items() if data is not None})
        graph.training_state = self._state
        return True
