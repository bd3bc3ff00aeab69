"""Tables: columns of a file that is read as a whole, as feeds of a model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tenonnx.extend import DType, Graph, InvalidCall
from tenonnx_data.binding import Binding, Bound, Field, bind, in_dims

Array = np.ndarray[Any, Any]

#: Opens a path for reading, such as ``-`` for standard input.
Opener = Callable[[str], BinaryIO]


def opened_file(path: str) -> BinaryIO:
    """Open a file for reading. Raises ``InvalidCall`` for a folder, a pipe or a device, which would block."""
    if Path(path).exists() and not Path(path).is_file():
        raise InvalidCall(f'cannot read "{path}": a folder, a pipe or a device')
    return Path(path).open("rb")


class Table:
    """Named columns with equal numbers of rows. ``path`` names the source in messages."""

    path: str
    fields: Sequence[Field]
    noun = "column"

    @property
    def names(self) -> list[str]:
        return [field.name for field in self.fields]

    def select(self, binding: Binding) -> None:
        """Restrict reading to the columns of a binding."""

    def column(self, name: str, dtype: DType) -> Array:
        """A column as an array of ``dtype``. Raises ``InvalidCall`` naming the row that does not fit."""
        raise NotImplementedError

    def is_text(self, name: str) -> bool:
        """Whether a column has non-numeric text."""
        raise NotImplementedError

    def classes(self, name: str) -> Sequence[str] | None:
        """The class names for a column of class numbers, if the source has them."""
        return None

    def location(self, row: int) -> str:
        """The location of a row, counted from 0, for messages."""
        return f"row {row} of {self.path}"

    def feeds(self, graph: Graph, columns: Mapping[str, Sequence[str]], others: Collection[str]) -> dict[str, Array]:
        """The inputs of ``graph`` by name, from ``columns`` or matched by ``bind``, which ignores ``others``."""
        binding = bind(graph, self.fields, columns, others, self.path, self.noun)
        self.select(binding)
        return {bound.name: self._input(bound) for bound in binding.inputs}

    def _input(self, bound: Bound) -> Array:
        parts = [self.column(name, bound.dtype) for name in bound.columns]
        return np.stack(parts, axis=1) if bound.is_concatenated else in_dims(parts[0], bound)
