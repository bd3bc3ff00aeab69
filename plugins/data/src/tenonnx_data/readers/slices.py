"""Slices of input files, and the rows and errors of reading one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tenonnx import InvalidFeed

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa


class Slice(NamedTuple):
    """A piece of a file, or files of a folder: from ``start`` to ``stop``, in rows or bytes as its reader counts.

    ``row`` is the number of its first row within the file, ``rows`` how many there are as far as is known before they
    are read, ``weight`` its share of the work, in bytes.
    """

    path: str
    start: int
    stop: int
    row: int
    rows: int
    weight: int
    names: tuple[str, ...] = ()

    def cut(self, rows: int) -> tuple[Slice, Slice | None]:
        """The first rows and the others, None where there are none, or where the slice does not count rows."""
        if self.rows <= rows or not self._counts_rows:
            return self, None
        at, weight = self.start + rows, self.weight * rows // self.rows
        first = self._replace(stop=at, rows=rows, weight=weight)
        return first, self._replace(start=at, row=self.row + rows, rows=self.rows - rows, weight=self.weight - weight)

    @property
    def _counts_rows(self) -> bool:
        return self.stop - self.start == self.rows and not self.names

    def with_next(self, other: Slice) -> Slice | None:
        """Both slices as one, None where the other does not follow, or either does not count rows."""
        if other.path != self.path or other.start != self.stop or not (self._counts_rows and other._counts_rows):
            return None
        return self._replace(stop=other.stop, rows=self.rows + other.rows, weight=self.weight + other.weight)


class Bad(NamedTuple):
    """A row that cannot be scored: where it is, why, and its text where it is one of a text file."""

    file: str
    row: int
    reason: str
    text: str | None = None


class Chunk(NamedTuple):
    """Rows of a file, their numbers in it, and the rows between them that could not be read.

    Of files that are a row each, ``files`` are their names.
    """

    file: str
    rows: np.ndarray[Any, Any]
    batch: pa.RecordBatch
    bad: Sequence[Bad] = ()
    files: Sequence[str] | None = None

    def where(self, index: int) -> tuple[str, int]:
        return (self.file, int(self.rows[index])) if self.files is None else (self.files[index], 0)

    def sliced(self, start: int, stop: int) -> Chunk:
        files = None if self.files is None else self.files[start:stop]
        return Chunk(self.file, self.rows[start:stop], self.batch.slice(start, stop - start), (), files)


class Reader(Protocol):
    """Files of one kind."""

    def schema(self, path: str) -> pa.Schema:
        """The columns of a file. Raises ``InvalidFeed`` where it cannot be read."""
        ...

    def slices(self, path: str, rows: int) -> Iterator[Slice]:
        """The pieces of a file, in order, each of about so many rows at most."""
        ...

    def read(self, piece: Slice, schema: pa.Schema, rows: int) -> Iterator[Chunk]:
        """The columns of ``schema``, in chunks of about so many rows."""
        ...


def unreadable(path: str, kind: str, error: BaseException) -> InvalidFeed:
    """The error for a file that is none of its kind."""
    given = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return InvalidFeed(
        f'cannot read "{path}" as {kind}',
        given=" ".join(given.split())[:300],
        do="replace the file, or leave it out, and run the command again: what was written stays",
    )
