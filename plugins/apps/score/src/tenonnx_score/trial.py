"""Trial on the first rows: the backend, the batch size, and independence of rows."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tenonnx import InvalidFeed, InvalidModel
from tenonnx_data.readers import READERS, Bad, Chunk, Sources, read
from tenonnx_score.options import GROUP_ROWS
from tenonnx_score.parts import batches
from tenonnx_score.scorer import Scored, Scorer
from tenonnx_score.summary import leaves

#: Smallest and largest batch size, the growth factor between them, and the size if outputs depend on it.
LEAST, MOST, GROWTH, FIXED = 64, 1 << 14, 4, 1024

#: Speedup that justifies a larger batch size; the number of timed calls, and their time limit in seconds.
PAYS, CALLS, LONGEST = 1.05, 3, 0.5

#: A model is cheap if ``GROUP_ROWS`` rows take less than these seconds. It has one thread, unless more are faster by
#: this factor.
CHEAP_SECONDS, FASTER = 5.0, 1.4

#: Maximum bytes of the rows that are read, prepared and written together.
LARGEST = 16 << 20

#: Time limit of the trial in seconds, without the first call.
SECONDS = 3.0

#: Share of numbers and labels that may change with other rows in the batch by more than rounding, at decision
#: boundaries.
AT_AN_EDGE = 0.05


#: Rows of ``--check``, and the number of files that they are taken from.
CHECKED, FILES = 100, 10


class Trial(NamedTuple):
    """Results of a trial. ``exact`` is whether results are independent of the batch size, ``row_bytes`` the memory of a
    row during scoring, and ``row_seconds`` its time."""

    backend: str
    batch: int
    exact: bool
    row_bytes: int
    row_seconds: float

    @property
    def is_cheap(self) -> bool:
        """Whether threads, and reading rows again, may cost more than the model."""
        return self.row_seconds * GROUP_ROWS < CHEAP_SECONDS


def first_rows(sources: Sources, paths: Iterable[str], rows: int) -> Iterator[Chunk]:
    """At most ``rows`` first rows of each of these files."""
    reader = READERS[sources.format]
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
    """About ``rows`` rows from the beginnings of up to ``files`` files."""
    paths = sources.paths[:: max(len(sources.paths) // files, 1)][:files]
    return first_rows(sources, paths, -(-rows // len(paths)))


def tried(scorer: Scorer, sources: Sources, threads: int | None, *, fewer: bool = False) -> Trial:
    """Score the first rows in growing batches, as long as that pays off; the scorer then knows its output columns.

    With ``fewer`` a cheap model may get one thread instead of ``threads``.
    Raises ``InvalidFeed`` if all are bad, and ``InvalidModel`` if results of a row depend on other rows.
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
    trial = _grown(scorer, rows, backend)
    if not (fewer and trial.is_cheap and (threads or 1) > 1):
        return trial
    scorer.use(backend, 1)
    single = _grown(scorer, rows, backend)
    if single.row_seconds < trial.row_seconds * FASTER:
        return single
    scorer.use(backend, threads)
    return trial


class _Rows:
    """The first rows, read on demand."""

    def __init__(self, sources: Sources) -> None:
        self._schema = sources.schema
        self._chunks = first_rows(sources, sources.paths, MOST)
        self._batches: list[pa.RecordBatch] = []
        self.bad: list[Bad] = []
        self.count = 0

    def first(self, count: int) -> pa.RecordBatch:
        """At most ``count`` rows."""
        while self.count < count and (chunk := next(self._chunks, None)) is not None:
            self._batches.append(chunk.batch)
            self.bad += chunk.bad
            self.count += chunk.batch.num_rows
        return pa.concat_batches(self._batches).slice(0, count) if self._batches else self._schema.empty_table()


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
    """Number of rows per step: whole batches, since reading, preparing and writing have fixed costs."""
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
    """The seconds of the fastest of some calls, their results, and the memory of a row.

    With one thread this is CPU time, which other load on the machine does not affect.
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
    """Whether results of the first rows are bit-identical in both batches. Raises ``InvalidModel`` if they differ."""
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
        origins = [chunk.location(row) for chunk in chunks for row in range(chunk.batch.num_rows)]
        bad += [Bad(*origins[row], reason) for row, reason in sorted(scored.bad.items())]
        tables.append(pa.Table.from_batches([scored.rows]))
    return pa.concat_tables(tables), bad
