"""Trial on the first rows: the backend, the batch size, and whether rows are independent."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tenonnx import InvalidFeed, InvalidModel
from tenonnx_data.readers import READERS, Bad, Chunk, Sources, read
from tenonnx_score.parts import batches
from tenonnx_score.scorer import Scored, Scorer
from tenonnx_score.summary import leaves

#: Rows of the smallest and of the largest batch, by how many times one is larger than the one before, and rows of one
#: whose size changes what rows give.
LEAST, MOST, GROWTH, FIXED = 64, 1 << 14, 4, 1024

#: The smallest batch is taken that no larger one beats by so much; each is timed so often, and nobody waits longer.
PAYS, CALLS, LONGEST = 1.05, 3, 0.5

#: Bytes of the rows that are read, prepared and written together, at most.
LARGEST = 16 << 20

#: Seconds of the trial, at most, without the first call.
SECONDS = 3.0

#: Which share of numbers, and of labels, the rows beside them may change, by more than rounding: some are at an edge.
AT_AN_EDGE = 0.05


#: Rows of ``--check``, and from the beginnings of how many files.
CHECKED, FILES = 100, 10


class Trial(NamedTuple):
    """Findings of a trial. ``exact`` says whether results are independent of the batch size, ``row_bytes``
    how many bytes a row takes while it is scored, and ``row_seconds`` how long that takes."""

    backend: str
    batch: int
    exact: bool
    row_bytes: int
    row_seconds: float


def first_rows(sources: Sources, paths: Iterable[str], rows: int) -> Iterator[Chunk]:
    """The first rows of each of these files, at most so many."""
    reader = READERS[sources.kind]
    for path in paths:
        left = rows
        for piece in reader.slices(path, rows):
            for chunk in read(reader, piece, sources.schema, rows):
                yield chunk.sliced(0, left)._replace(bad=chunk.bad)
                left -= chunk.batch.num_rows
                if left <= 0:
                    break
            if left <= 0:
                break


def sample(sources: Sources, rows: int, files: int) -> Iterator[Chunk]:
    """So many rows from the beginnings of up to so many files."""
    paths = sources.paths[:: max(len(sources.paths) // files, 1)][:files]
    return first_rows(sources, paths, -(-rows // len(paths)))


def tried(scorer: Scorer, sources: Sources, threads: int | None) -> Trial:
    """Score first rows with a scorer, in batches that grow as long as that pays; it then knows its outputs.

    Raises ``InvalidFeed`` where all are bad, and ``InvalidModel`` where rows change what other rows give.
    """
    rows = _Rows(sources)
    first, bad = _first(scorer, rows)
    if not first.rows.num_rows:
        reasons = [*(each.reason for each in bad), *first.bad.values()]
        raise InvalidFeed(
            "the model rejected all of the first rows",
            given=f"{rows.count:,} rows; {reasons[0] if reasons else 'the input has no rows'}",
            do="correct the input, or say which columns make which input (--columns)",
        )
    backend = scorer.program.backend
    scorer.use(backend, threads)
    fixed = scorer.binding(sources.schema).rows
    if fixed is not None:
        batch = rows.first(LEAST)
        seconds, _, row_bytes = _measured(scorer, batch)
        return Trial(backend, max(fixed, LEAST // fixed * fixed), True, row_bytes, seconds / batch.num_rows)
    return _grown(scorer, rows, backend)


class _Rows:
    """The first rows, read as far as they are asked for."""

    def __init__(self, sources: Sources) -> None:
        self._schema = sources.schema
        self._chunks = first_rows(sources, sources.paths, MOST)
        self._held: list[pa.RecordBatch] = []
        self.bad: list[Bad] = []
        self.count = 0

    def first(self, count: int) -> pa.RecordBatch:
        """So many rows, or as many as there are."""
        while self.count < count and (chunk := next(self._chunks, None)) is not None:
            self._held.append(chunk.batch)
            self.bad += chunk.bad
            self.count += chunk.batch.num_rows
        return pa.concat_batches(self._held).slice(0, count) if self._held else self._schema.empty_table()


def _first(scorer: Scorer, rows: _Rows) -> tuple[Scored, Sequence[Bad]]:
    """Results of the first rows that are not all bad."""
    count = LEAST
    while True:
        batch = rows.first(count)
        if not batch.num_rows:
            return Scored(pa.RecordBatch.from_arrays([], names=[]), {}), rows.bad
        scored = scorer.compute(scorer.prepare(batch))
        if scored.rows.num_rows or rows.count < count or count >= MOST:
            return scored, rows.bad
        count *= GROWTH


def at_once(batch: int, trial: Trial) -> int:
    """Number of rows per step: whole batches, as reading, preparing and writing have a fixed cost each."""
    most = min(MOST, LARGEST // trial.row_bytes, int(LONGEST / max(trial.row_seconds, 1e-9)))
    return batch * max(most // batch, 1)


def _grown(scorer: Scorer, rows: _Rows, backend: str) -> Trial:
    end = time.monotonic() + SECONDS
    size, row_bytes = LEAST, 1
    rates: dict[int, float] = {}
    least: Scored | None = None
    while True:
        batch = rows.first(size)
        seconds, scored, row_bytes = _measured(scorer, batch)
        if least is None:
            least = scored
        elif not _same_rows(least.rows, scored.rows):
            fits = max(LARGEST // row_bytes, 1)
            fixed = min(FIXED, 1 << (fits.bit_length() - 1))
            return Trial(backend, fixed, False, row_bytes, seconds / batch.num_rows)
        rates[size] = batch.num_rows / max(seconds, 1e-9)
        size *= GROWTH
        ends = size > MOST or batch.num_rows * GROWTH < size or size * row_bytes > LARGEST
        if ends or seconds * GROWTH > LONGEST or time.monotonic() > end:
            break
    fastest = max(rates.values())
    best = next(size for size, rate in rates.items() if rate * PAYS >= fastest)
    return Trial(backend, best, True, row_bytes, 1 / fastest)


def _measured(scorer: Scorer, batch: pa.RecordBatch) -> tuple[float, Scored, int]:
    """The seconds of the fastest of some calls, what they give, and the bytes that a row takes meanwhile.

    With one thread they are those of the processor, which other work on the machine does not change.
    """
    clock = time.process_time if scorer.threads == 1 else time.perf_counter
    found = []
    for _ in range(CALLS):
        start = clock()
        ready = scorer.prepare(batch)
        scored = scorer.compute(ready)
        found.append(clock() - start)
        if sum(found) > LONGEST:
            break
    fed = sum(array.nbytes for group in ready.groups for array in group.feeds.values())
    return min(found), scored, max((batch.nbytes + fed + scored.rows.nbytes) // max(batch.num_rows, 1), 1)


def _same_rows(few: pa.RecordBatch, many: pa.RecordBatch) -> bool:
    """Whether the first rows of many are the few, bit by bit. Raises ``InvalidModel`` where they are others."""
    same = True
    for name, column, other in zip(few.schema.names, few.columns, many.slice(0, few.num_rows).columns, strict=True):
        for (_, one), (_, two) in zip(leaves(name, column), leaves(name, other), strict=True):
            if one.equals(two):
                continue
            a, b = (each.to_numpy(zero_copy_only=False) for each in (one, two))
            if a.shape == b.shape and a.dtype.kind == "f":
                if np.array_equal(a.view(f"u{a.dtype.itemsize}"), b.view(f"u{b.dtype.itemsize}")):
                    continue
                scale = float(np.nanmax(np.abs(a[np.isfinite(a)]), initial=0.0))
                differs = ~np.isclose(a, b, rtol=1e-3, atol=1e-5 * scale, equal_nan=True)
            else:
                differs = a != b if a.shape == b.shape else np.ones(1, bool)
            if np.mean(differs) > AT_AN_EDGE:
                raise InvalidModel(
                    "results of a row depend on other rows of its batch",
                    given=f'output "{name}" of the first {few.num_rows} rows changes when more are scored with them',
                    do="make rows independent: no BatchNormalization in training mode, no means over the batch",
                )
            same = False
    return same


def checked(scorer: Scorer, sources: Sources, rows: int, files: int) -> tuple[pa.Table, list[Bad]]:
    """Results of rows from the beginnings of files, and the bad ones among them."""
    tables, bad = [], []
    for chunks in batches(sample(sources, rows, files), rows):
        batch = pa.concat_batches([chunk.batch for chunk in chunks])
        scored = scorer.compute(scorer.prepare(batch))
        bad += [each for chunk in chunks for each in chunk.bad]
        origins = [chunk.where(row) for chunk in chunks for row in range(chunk.batch.num_rows)]
        bad += [Bad(*origins[row], reason) for row, reason in sorted(scored.bad.items())]
        tables.append(pa.Table.from_batches([scored.rows]))
    return pa.concat_tables(tables), bad
