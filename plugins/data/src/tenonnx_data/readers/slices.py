"""Slices of input files, with the rows and errors of reading one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tenonnx import InvalidFeed

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa


class Slice(NamedTuple):
    """A part of a file, or files of a folder: from ``start`` to ``stop``, in rows or bytes depending on the reader.

    ``row`` is the number of its first row within the file, ``rows`` the number of rows as far as it is known in
    advance, ``weight`` its share of the work, in bytes.
    """

    path: str
    start: int
    stop: int
    row: int
    rows: int
    weight: int
    names: tuple[str, ...] = ()

    def cut(self, rows: int) -> tuple[Slice, Slice | None]:
        """The first rows, and the rest; None if there is none, or if the slice does not count rows."""
        if self.rows <= rows or not self._counts_rows:
            return self, None
        at, weight = self.start + rows, self.weight * rows // self.rows
        first = self._replace(stop=at, rows=rows, weight=weight)
        return first, self._replace(start=at, row=self.row + rows, rows=self.rows - rows, weight=self.weight - weight)

    @property
    def _counts_rows(self) -> bool:
        return self.stop - self.start == self.rows and not self.names

    def with_next(self, other: Slice) -> Slice | None:
        """Merge with the following slice; None if ``other`` does not follow, or either does not count rows."""
        if other.path != self.path or other.start != self.stop or not (self._counts_rows and other._counts_rows):
            return None
        return self._replace(stop=other.stop, rows=self.rows + other.rows, weight=self.weight + other.weight)


class Bad(NamedTuple):
    """A row that cannot be scored: its location, the reason, and its text if it is from a text file."""

    file: str
    row: int
    reason: str
    text: str | None = None


class Chunk(NamedTuple):
    """Rows of a file, their numbers in it, and unreadable rows between them.

    For files with one row each, ``files`` are their names.
    """

    file: str
    rows: np.ndarray[Any, Any]
    batch: pa.RecordBatch
    bad: Sequence[Bad] = ()
    files: Sequence[str] | None = None

    def location(self, index: int) -> tuple[str, int]:
        return (self.file, int(self.rows[index])) if self.files is None else (self.files[index], 0)

    def sliced(self, start: int, stop: int) -> Chunk:
        files = None if self.files is None else self.files[start:stop]
        return Chunk(self.file, self.rows[start:stop], self.batch.slice(start, stop - start), (), files)


class Reader(Protocol):
    """Reader of one file format."""

    def schema(self, path: str) -> pa.Schema:
        """The columns of a file. Raises ``InvalidFeed`` if it cannot be read."""
        ...

    def slices(self, path: str, rows: int) -> Iterator[Slice]:
        """The slices of a file, in order, each of at most about ``rows`` rows."""
        ...

    def read(self, piece: Slice, schema: pa.Schema, rows: int) -> Iterator[Chunk]:
        """The columns of ``schema``, in chunks of about ``rows`` rows."""
        ...


def unreadable(path: str, kind: str, error: BaseException) -> InvalidFeed:
    """The error for a file that is not of the expected format."""
    given = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return InvalidFeed(
        f'cannot read "{path}" as {kind}',
        given=" ".join(given.split())[:300],
        do="replace the file, or leave it out, and run the command again: what was written stays",
    )
