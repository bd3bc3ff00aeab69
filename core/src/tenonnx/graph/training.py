"""Optimizer state and parameter roles of a graph."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from tenonnx.graph.constants import Constant
from tenonnx.graph.methods import Shown

#: Separates the name of a variable from that of its optimizer state in files.
_MARK = "__"

#: Key of the settings that lists the trainable variables.
PARAMETERS = "parameters"


@dataclass(frozen=True)
class Role(Shown):
    """Role of a variable in training, as declared by the tool that built the graph.

    ``kind`` is ``"parameter"``, ``"frozen"`` for a parameter that is not trained, or ``"buffer"`` for a constant
    without gradient. ``fixed_rows`` are rows of a parameter, along the first axis, that are not trained.
    ``permutation`` maps the layout to that of the source: the contents have these axes of the source's tensor of this
    name; None if equal. ``made_of`` are the source's variables from which the contents were computed, if they are not a
    single one; then contents saved elsewhere under this name do not fit. The kind is empty if only ``made_of`` is
    known. ``name`` is the variable that a constant is going to replace.
    """

    kind: str
    fixed_rows: tuple[int, ...] = ()
    permutation: tuple[int, ...] | None = None
    made_of: tuple[str, ...] = ()
    name: str = ""


@dataclass(frozen=True)
class TrainingState:
    """Optimizer state, saved to resume training.

    ``tensors`` are moments, counters and the like, by the names of their initializers in a file: those of a variable
    ``w`` are called ``w__...``. ``settings`` is everything else, as JSON data; its entry ``parameters`` lists variables
    by name. The package that trains defines their meaning.
    """

    tensors: Mapping[str, Constant] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def renamed(self, old: str, new: str, variables: Collection[str]) -> TrainingState:
        """The state after renaming the variable ``old``, one of ``variables``, to ``new``."""
        tensors = {
            new + name.removeprefix(old) if kept_of(name, variables) == old else name: data
            for name, data in self.tensors.items()
        }
        settings = dict(self.settings)
        if isinstance(names := settings.get(PARAMETERS), list):
            settings[PARAMETERS] = [new if name == old else name for name in names]
        return TrainingState(tensors, settings)


def kept_of(name: str, variables: Collection[str]) -> str | None:
    """The variable whose optimizer state has that name: the longest matching prefix, or None."""
    parts = name.split(_MARK)
    heads = (_MARK.join(parts[:count]) for count in range(len(parts) - 1, 0, -1))
    return next((head for head in heads if head in variables), None)


def is_called_as_state(name: str) -> bool:
    """Whether a name is that of optimizer state, of one variable or of all (such as the number of steps)."""
    return any(name.split(_MARK)[1:])
