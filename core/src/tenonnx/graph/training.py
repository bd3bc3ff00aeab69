"""Training state and parameter roles of a graph."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from tenonnx.graph.constants import Constant
from tenonnx.graph.methods import Shown

#: Between the name of a variable and what a file calls that which an optimizer keeps of it.
_MARK = "__"

#: The entry of the settings that lists the names of variables that are trained.
PARAMETERS = "parameters"


@dataclass(frozen=True)
class Role(Shown):
    """Role of a variable in training, as declared by the maker of the graph.

    ``kind`` is ``"parameter"``, ``"frozen"`` for a parameter that is to stay as it is, or ``"buffer"`` for what no
    gradient is to change. Of a parameter, ``fixed_rows`` along the first axis stay as they are. ``permutation`` tells
    how the contents lie: with these axes of those that the maker of the graph has under this name; None as there.
    ``made_of`` are the variables of the maker that the contents were computed from, where they are no single one of
    these: what was read or tuned elsewhere under this name is something else. The kind is empty where only that is
    known. ``name`` is the variable whose place a constant is to take, until it has.
    """

    kind: str
    fixed_rows: tuple[int, ...] = ()
    permutation: tuple[int, ...] | None = None
    made_of: tuple[str, ...] = ()
    name: str = ""


@dataclass(frozen=True)
class TrainingState:
    """The state of an optimizer between two runs.

    ``tensors`` are moments, counters and the like, by the name that they have as initializers of a file: of a variable
    ``w`` they are called ``w__...``. ``settings`` is everything else, as JSON can hold it; ``parameters`` among them
    lists variables by name. What they mean is known to the package that trains.
    """

    tensors: Mapping[str, Constant] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def renamed(self, old: str, new: str, variables: Collection[str]) -> TrainingState:
        """The state where the variable ``old``, one of ``variables``, is called ``new``."""
        tensors = {
            new + name.removeprefix(old) if kept_of(name, variables) == old else name: data
            for name, data in self.tensors.items()
        }
        settings = dict(self.settings)
        if isinstance(names := settings.get(PARAMETERS), list):
            settings[PARAMETERS] = [new if name == old else name for name in names]
        return TrainingState(tensors, settings)


def kept_of(name: str, variables: Collection[str]) -> str | None:
    """Of which variable a tensor of that name is state: the longest whose name it begins with, None for no variable."""
    parts = name.split(_MARK)
    heads = (_MARK.join(parts[:count]) for count in range(len(parts) - 1, 0, -1))
    return next((head for head in heads if head in variables), None)


def is_called_as_state(name: str) -> bool:
    """Whether a variable is called as state of another is, or as that of all, such as the number of steps."""
    return any(name.split(_MARK)[1:])
