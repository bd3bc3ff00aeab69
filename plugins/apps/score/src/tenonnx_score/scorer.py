"""A model as a picklable function from record batches to record batches."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tenonnx import Graph, InvalidCall, InvalidFeed, Program, UnsupportedOp
from tenonnx_data.binding import Binding, bind
from tenonnx_data.columns import Reasons, columns_of
from tenonnx_data.encoded import Pixels
from tenonnx_data.feeds import Group, Prepared, kept_field, prepared
from tenonnx_score.model import Asked, Source, check_names, opened, program_of
from tenonnx_score.results import check_rows, column_of, fields_of


class Scored(NamedTuple):
    """Results of a batch: the valid rows in order, with kept columns before the outputs; and the bad rows."""

    rows: pa.RecordBatch
    bad: Reasons


class Scorer:
    """A model as a function from Arrow record batches to record batches.

    ``model`` is a path, the bytes of a file, or a graph. A pickled scorer contains the path or these bytes and its
    options; each process opens the model on first use. ``columns`` maps inputs to their columns: one column of single
    values or lists, or many as a matrix; by default the column of the same name. ``keep`` are columns to copy to the
    result, before the ``outputs``. The program has ``threads`` threads of ``backend``, with its ``options``; ``batch``
    rows are fed at a time, None for all at once. ``pixels``, ``mean``, ``std`` and ``resize`` are for columns of image
    files, see ``ScoreConfig``.

    Raises ``InvalidCall`` for anything but a model, and the errors of ``load`` on first use.
    """

    def __init__(
        self,
        model: Any,
        *,
        columns: Mapping[str, Sequence[str]] | None = None,
        keep: Collection[str] | None = None,
        outputs: Collection[str] | None = None,
        backend: str = "auto",
        threads: int | None = None,
        batch: int | None = None,
        options: Mapping[str, Any] | None = None,
        pixels: str | None = None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        resize: str | None = None,
    ) -> None:
        self.source = Source.of(model)
        self.columns = {name: tuple(names) for name, names in (columns or {}).items()}
        self.keep, self.outputs = tuple(keep or ()), None if outputs is None else tuple(outputs)
        self.backend, self.threads, self.batch, self.options = backend, threads, batch, dict(options or {})
        self.pixels = Pixels.of(pixels, mean, std, resize)
        #: columns of the outputs, known after the first rows were scored
        self.fields: list[pa.Field] | None = None
        self._close()

    def _close(self) -> None:
        self._graph: Graph | None = None
        self._asked: list[Asked] = []
        self._program: Program | None = None
        self._bound: tuple[pa.Schema, Binding] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._close()

    @property
    def graph(self) -> Graph:
        """The graph of the requested outputs."""
        if self._graph is None:
            self._graph, self._asked = opened(self.source, self.outputs)
        return self._graph

    @property
    def program(self) -> Program:
        """The compiled graph in this process."""
        if self._program is None:
            self._program = program_of(self.graph, self.backend, self.threads, self.options)
        return self._program

    def keeping(self, columns: Collection[str]) -> Scorer:
        """A copy of this scorer that keeps these columns."""
        other = copy.copy(self)
        other.keep, other._bound = tuple(columns), None
        return other

    def use(self, backend: str, threads: int | None) -> None:
        """Run on this backend from now on, with this many threads."""
        if (backend, threads) != (self.backend, self.threads):
            self.backend, self.threads, self._program = backend, threads, None

    def binding(self, schema: pa.Schema) -> Binding:
        """Columns of a table for each input. Raises ``InvalidCall`` if some are missing or unsuitable."""
        if self._bound is None or not self._bound[0].equals(schema, check_metadata=True):
            found = bind(self.graph, columns_of(schema), self.columns, self.keep)
            check_names([*self.keep, *(each.name for each in self._asked)])
            self._bound = schema, found
        return self._bound[1]

    def prepare(self, batch: pa.RecordBatch) -> Prepared:
        """Convert a batch to feeds; another thread may do so while a batch is computed."""
        return prepared(self.binding(batch.schema), batch, self.pixels)

    def compute(self, ready: Prepared) -> Scored:
        """The outputs of a prepared batch; rows that the model rejects are added to the bad ones."""
        bad = dict(ready.bad)
        calls = [each for group in ready.groups for each in self._run(group, bad)]
        schema = pa.schema([*self._kept_fields(), *(self.fields or ())])
        if not calls:
            return Scored(pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema), bad)
        order = np.concatenate([rows for rows, _ in calls])
        columns = calls[0][1]
        if len(calls) > 1:
            columns = [pa.concat_arrays([found[k] for _, found in calls]) for k in range(len(calls[0][1]))]
            if (np.diff(order) < 0).any():
                places = pa.array(np.argsort(order, kind="stable"))
                columns, order = [column.take(places) for column in columns], np.sort(order)
        kept = (
            ready.kept_columns
            if len(order) == ready.rows
            else [column.take(pa.array(order)) for column in ready.kept_columns]
        )
        return Scored(pa.RecordBatch.from_arrays([*kept, *columns], schema=schema), bad)

    def __call__(self, batch: Any) -> Any:
        """The outputs of a record batch or table, one row for each. Raises ``InvalidFeed`` for a bad row."""
        if isinstance(batch, pa.Table):
            parts = [self._of_batch(each) for each in batch.combine_chunks().to_batches()]
            return pa.Table.from_batches(parts, None if parts else pa.schema(self.fields or []))
        if not isinstance(batch, pa.RecordBatch):
            raise InvalidCall("Scorer: the rows are not a record batch or a table of Arrow", given=type(batch).__name__)
        return self._of_batch(batch)

    def _of_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        # not by calling itself: Ray Data runs calls of a class in one thread, which would deadlock
        found = []
        for start in range(0, batch.num_rows, self.batch or max(batch.num_rows, 1)):
            scored = self.compute(self.prepare(batch.slice(start, self.batch)))
            for row, reason in sorted(scored.bad.items()):
                raise InvalidFeed(
                    "the model does not take some rows",
                    given=f"row {start + row}: {reason}",
                    do="correct or drop it; tenonnx.score writes such rows aside",
                )
            found.append(scored.rows)
        if not found:
            return self.compute(self.prepare(batch)).rows
        return found[0] if len(found) == 1 else pa.concat_batches(found)

    def schema(self, schema: pa.Schema) -> pa.Schema:
        """The schema of results for a table of ``schema``. Raises ``InvalidCall`` before the first rows were scored."""
        if self.fields is None:
            raise InvalidCall("the types of outputs are not known before rows are scored", do="score a batch first")
        return pa.schema([*(kept_field(schema.field(name)) for name in self.keep), *self.fields])

    # ----- what a batch takes -----------------------------------------------------------------------------------------

    def _run(self, group: Group, bad: Reasons) -> Iterator[tuple[Any, list[Any]]]:
        """Yield rows and their columns, call by call; rows that the model rejects are recorded in ``bad``."""
        assert self._bound is not None
        size = self._bound[1].rows
        step = size or self.batch or max(len(group.rows), 1)
        calls: list[tuple[Any, dict[str, Any]]] = []
        for start in range(0, len(group.rows), step):
            part = slice(start, start + step)
            calls += self._call(group.rows[part], {name: a[part] for name, a in group.feeds.items()}, size, bad)
        for rows, outputs in _together(calls):
            yield rows, self._columns(outputs)

    def _call(
        self, rows: Any, feeds: dict[str, Any], size: int | None, bad: Reasons
    ) -> Iterator[tuple[Any, dict[str, Any]]]:
        given, count, program = feeds, len(rows), self.program
        if size is not None and count < size:  # pad to the model's fixed batch size with copies of the last row
            places = np.minimum(np.arange(size), count - 1)
            given = {name: array[places] for name, array in feeds.items()}
        try:
            outputs = program(given)
        except (InvalidCall, UnsupportedOp) as error:
            if count == 1:
                bad[int(rows[0])] = " ".join(str(error).split())[:500]
                return
            for half in (slice(count // 2), slice(count // 2, count)):
                yield from self._call(rows[half], {name: a[half] for name, a in feeds.items()}, size, bad)
            return
        check_rows(self._asked, outputs, size or count)
        yield rows, {name: contents[:count] for name, contents in outputs.items()}

    def _columns(self, outputs: Mapping[str, Any]) -> list[Any]:
        if self.fields is None:
            assert self._bound is not None
            self.fields = fields_of(self.graph, self._asked, self._bound[1], outputs)
        pairs = zip(self._asked, self.fields, strict=True)
        return [column_of(each, field, outputs[each.computed]) for each, field in pairs]

    def _kept_fields(self) -> list[pa.Field]:
        assert self._bound is not None
        return [kept_field(self._bound[0].field(name)) for name in self.keep]


def _together(calls: list[tuple[Any, dict[str, Any]]]) -> list[tuple[Any, dict[str, Any]]]:
    """Merge the outputs of calls if their arrays have equal dtypes and row shapes: long columns are cheaper."""
    kinds = [
        [(a.dtype, a.shape[1:]) if isinstance(a, np.ndarray) else None for a in outputs.values()]
        for _, outputs in calls
    ]
    if len(calls) < 2 or None in kinds[0] or any(kind != kinds[0] for kind in kinds):
        return calls
    outputs = {name: np.concatenate([found[name] for _, found in calls]) for name in calls[0][1]}
    return [(np.concatenate([rows for rows, _ in calls]), outputs)]
