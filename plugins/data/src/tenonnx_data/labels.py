"""String labels as class numbers, by the class names in the model's metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np

from tenonnx.extend import DType, Graph, InvalidFeed
from tenonnx.tools import listing
from tenonnx_data.table import Array, Table

#: Metadata key of a model for class names: a JSON object from label columns to lists.
KEY = "tenonnx.classes"


class ClassNames:
    """The class names that a graph stores for each column of labels, in the order of class numbers."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def stored(self) -> Mapping[str, Sequence[str]]:
        """All names by column. Raises ``InvalidFeed`` for invalid metadata."""
        text = self._graph.metadata.get(KEY, "{}")
        try:
            result = json.loads(text)
            if not all(isinstance(name, str) for names in result.values() for name in names):
                raise ValueError(text)
        except (ValueError, AttributeError, TypeError, RecursionError) as error:
            raise InvalidFeed(f'the metadata entry "{KEY}" of the model is damaged', given=text[:80]) from error
        return result  # type: ignore[no-any-return]

    def of(self, column: str) -> Sequence[str] | None:
        """The names for a column; for an unknown column those of the only known one."""
        classes = self.stored()
        return classes.get(column, next(iter(classes.values())) if len(classes) == 1 else None)

    def keep(self, column: str, names: Sequence[str]) -> None:
        self._graph.metadata[KEY] = json.dumps({**self.stored(), column: list(names)}, ensure_ascii=False)

    def keep_all(self, other: Graph) -> None:
        """Copy the names that another graph stores."""
        for column, names in ClassNames(other).stored().items():
            self.keep(column, names)


def read_labels(table: Table, name: str, graph: Graph, count: int | None = None) -> Array:
    """A column of labels as class numbers.

    Strings are numbered by the metadata of ``graph``, or else in alphabetical order, which is then stored there. Raises
    ``InvalidFeed`` for a class that the model does not know, with its row, and if the model has another ``count`` of
    classes without names.
    """
    classes = ClassNames(graph)
    known = classes.of(name)
    if not table.is_text(name):
        if (names := table.classes(name)) is None:
            return table.column(name, DType.int64)
        if known is None:
            classes.keep(name, names)
        elif list(names) != list(known):
            raise InvalidFeed(
                f'"{name}" of {table.path} has other classes than the model',
                given=listing(names),
                available=listing(known),
            )
        return table.column(name, DType.int64)
    texts = np.asarray(table.column(name, DType.string))
    if known is None:
        known = sorted(set(texts.ravel().tolist()) - {""})
        if count not in (None, len(known)):
            raise InvalidFeed(
                f'"{name}" of {table.path} has {len(known)} classes, and the model {count}',
                given=listing(known) or "no labels",
                do="give the number of each class, from 0 on, as the model counts them",
            )
        classes.keep(name, known)
    numbers = {text: number for number, text in enumerate(known)}
    unknown = next((text for text in texts.ravel().tolist() if text not in numbers), None)
    if unknown is not None:
        raise _unknown(table, name, texts, unknown, known)
    return np.array([numbers[text] for text in texts.ravel().tolist()], np.int64).reshape(texts.shape)


def _unknown(table: Table, name: str, texts: Array, text: str, known: Sequence[str]) -> InvalidFeed:
    row = int(np.argwhere(texts == text)[0][0])
    what = f'label "{text}" is not a class of the model' if text else "a label is missing"
    return InvalidFeed(
        what,
        given=f'column "{name}" in {table.location(row)}',
        available=listing(known),
        do="correct the label, or leave the row out",
    )
