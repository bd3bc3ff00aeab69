"""Parts: units of work for one output file each."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from tenonnx_data.feeds import Prepared
from tenonnx_data.readers import READERS, Bad, Chunk, Slice, read
from tenonnx_score.scorer import Scorer
from tenonnx_score.summary import Summary
from tenonnx_score.writing import Writer

Item = TypeVar("Item")


class Part(NamedTuple):
    """An output file: its number, and the slices of input."""

    number: int
    slices: tuple[Slice, ...]

    @property
    def weight(self) -> int:
        return sum(piece.weight for piece in self.slices)

    @property
    def rows(self) -> int:
        """Approximate number of rows."""
        return sum(piece.rows for piece in self.slices)


def parts(slices: Iterable[Slice], rows: int, *, split: bool = True) -> Iterator[Part]:
    """Group slices, in order, into parts of ``rows`` rows, or more if a slice of text cannot be split.

    Without ``split`` parts consist of whole slices. Reading a part decodes its first row group of Parquet from the
    start, even if the part begins in the middle of it.
    """
    number, count = 0, 0
    pieces: list[Slice] = []
    for whole in slices:
        rest: Slice | None = whole
        while rest is not None:
            piece, rest = rest.cut(rows - count) if split else (rest, None)
            pieces.append(piece)
            count += piece.rows
            if count >= rows:
                yield Part(number, tuple(pieces))
                number, pieces, count = number + 1, [], 0
    if pieces:
        yield Part(number, tuple(pieces))


class Done(NamedTuple):
    """A completed part: its rows, its bad rows, the size of its file, and a summary of its columns."""

    number: int
    rows: int
    bad: int
    size: int
    first_reason: str
    summary: Summary


@dataclass(frozen=True)
class Task:
    """Task of a worker: the scorer, the format and columns of the input, and the output folder."""

    scorer: Scorer
    input_format: str
    schema: pa.Schema
    output: pa.Schema
    folder: str
    format: str
    rows: int

    def __call__(self, part: Part, news: Callable[[int], None] = lambda rows: None) -> Done:
        """Compute a part and write it with its bad rows, atomically; ``news`` is called with numbers of finished rows.

        Raises the errors of reading and of the model, and ``OutputFailed``.
        """
        writer = Writer(Path(self.folder), part.number, self.format, self.output)
        summary, rows = Summary(), 0
        first = ""
        try:
            for bad, scored in self.scored(part):
                if bad:
                    first = first or bad[0].reason
                    writer.write_bad(bad)
                if scored.num_rows:
                    summary.add(scored)
                    writer.write(scored)
                rows += scored.num_rows
                news(scored.num_rows + len(bad))
            size = writer.close()
        except BaseException:
            writer.drop()
            raise
        return Done(part.number, rows, writer.bad, size, first, summary)

    def scored(self, part: Part) -> Iterator[tuple[list[Bad], pa.RecordBatch]]:
        """The rows of a part in batches: the next one is read and prepared while one is computed."""
        for chunks, ready in ahead(self._prepared(part)):
            scored = self.scorer.compute(ready)
            bad = [each for chunk in chunks for each in chunk.bad]
            bad += [Bad(*_where(chunks, row), reason) for row, reason in sorted(scored.bad.items())]
            yield bad, scored.rows

    def _prepared(self, part: Part) -> Iterator[tuple[list[Chunk], Prepared]]:
        reader = READERS[self.input_format]
        found = (chunk for piece in joined(part.slices) for chunk in read(reader, piece, self.schema, self.rows))
        for chunks in batches(found, self.rows):
            batch = chunks[0].batch if len(chunks) == 1 else pa.concat_batches([chunk.batch for chunk in chunks])
            yield chunks, self.scorer.prepare(batch)


def joined(slices: Sequence[Slice]) -> list[Slice]:
    """Slices with adjacent ones merged, so that a file is opened once and batches are full."""
    result: list[Slice] = []
    for piece in slices:
        before = result[-1] if result else None
        if before is not None and (whole := before.with_next(piece)) is not None:
            result[-1] = whole
        else:
            result.append(piece)
    return result


def _where(chunks: Sequence[Chunk], row: int) -> tuple[str, int]:
    """The file and row of a batch's row."""
    for chunk in chunks:
        if row < chunk.batch.num_rows:
            return chunk.location(row)
        row -= chunk.batch.num_rows
    raise IndexError(row)


def batches(chunks: Iterable[Chunk], rows: int) -> Iterator[list[Chunk]]:
    """Chunks regrouped to ``rows`` rows each, except the last."""
    batch: list[Chunk] = []
    count = 0
    for chunk in chunks:
        start = 0
        if chunk.bad or not chunk.batch.num_rows:
            batch.append(Chunk(chunk.file, chunk.rows[:0], chunk.batch.slice(0, 0), chunk.bad, ()))
        while start < chunk.batch.num_rows:
            stop = min(start + rows - count, chunk.batch.num_rows)
            batch.append(chunk.sliced(start, stop))
            count += stop - start
            start = stop
            if count == rows:
                yield batch
                batch, count = [], 0
    if batch:
        yield batch


def ahead(items: Iterator[Item]) -> Iterator[Item]:
    """Iterate in a thread, one item ahead of the consumer."""
    ready: queue.Queue[tuple[str, Any]] = queue.Queue(maxsize=1)
    stopped = threading.Event()

    def put(kind: str, item: Any) -> bool:
        while not stopped.is_set():
            with suppress(queue.Full):
                ready.put((kind, item), timeout=0.1)
                return True
        return False

    def work() -> None:
        try:
            for item in items:
                if not put("item", item):
                    return
            put("end", None)
        except BaseException as error:
            put("error", error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while (got := ready.get())[0] == "item":
            yield got[1]
        if got[0] == "error":
            raise got[1]
    finally:
        stopped.set()
        thread.join()
