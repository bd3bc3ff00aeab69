"""A run: files are scored on the chosen engine, and a stopped run is resumed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from tenonnx import InvalidCall, InvalidFeed
from tenonnx_data.readers import Bad, Sources, found
from tenonnx_score.engines import Engine, engine_of
from tenonnx_score.manifest import Manifest, emptied, encoded, foreign, held, schema_of
from tenonnx_score.options import GROUP_ROWS, PART_ROWS, ScoreConfig
from tenonnx_score.parts import Done, Part, Task, parts
from tenonnx_score.scorer import Scorer
from tenonnx_score.summary import Summary
from tenonnx_score.trial import CHECKED, FILES, at_once, checked, tried

#: Options that affect the output, which must be equal to resume a run.
_OF_OUTPUT = ("columns", "keep", "outputs", "format", "part_rows", "pixels", "mean", "std", "resize")

#: Rows after which an excessive share of bad rows fails the run.
ENOUGH = 10_000


class Started(NamedTuple):
    """Start of a run: its engine, and the parts that are already complete."""

    engine: str
    backend: str
    threads: int
    batch: int
    files: int
    rows_before: int
    #: Whether outputs are bit-identical for all batch sizes.
    exact: bool


class Progress(NamedTuple):
    """Progress of a run: finished rows, share of the work, rows per second, and estimated seconds left."""

    rows: int
    share: float
    rate: float
    seconds_left: float


@dataclass
class Watch:
    """Callbacks for displaying a run; each may be called often."""

    started: Callable[[Started], None] = lambda started: None
    checked: Callable[[pa.Table, Sequence[Bad]], None] = lambda table, bad: None
    progress: Callable[[Progress], None] = lambda progress: None


@dataclass
class Scores:
    """Results of a run: output files in order, rows, bad rows, and a summary of the columns."""

    folder: Path
    files: list[Path] = field(default_factory=list)
    rows: int = 0
    bad: int = 0
    reason: str = ""
    summary: Summary = field(default_factory=Summary)
    #: parts from an earlier run, and the seconds of this one
    reused: int = 0
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return {
            "output": str(self.folder),
            "files": len(self.files),
            "rows": self.rows,
            "bad_rows": self.bad,
            "files_of_earlier_runs": self.reused,
            "seconds": round(self.seconds, 3),
            "columns": self.summary.to_dict(),
        }


def score(
    model: Any,
    input: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    config: ScoreConfig | None = None,
    *,
    watch: Watch | None = None,
    **options: Any,
) -> Scores:
    """Score files of tables, images or arrays with a model, writing Parquet or Arrow files to a folder.

    ``model`` is a path, the bytes of a file, or a graph; ``input`` paths, folders and patterns such as
    ``data/*.parquet``; ``options`` are those of ``tenonnx score``, the fields of ``ScoreConfig``. Rows keep their
    order, in ``part-000000.parquet`` and so on. Bad rows are in ``errors``. A stopped run resumes when it is called
    again.

    Raises ``InvalidCall`` for an invalid option, model, input or folder, ``InvalidFeed`` for input that cannot be read
    or has too many bad rows, and ``OutputFailed`` if the output cannot be written.
    """
    settings = _settings(config, options)
    watch = watch or Watch()
    folder = Path(output)
    patterns = [input] if isinstance(input, str | os.PathLike) else input
    if not isinstance(patterns, Sequence) or not all(isinstance(each, str | os.PathLike) for each in patterns):
        raise InvalidCall(
            "score: the input is neither a path nor a list of paths",
            given=type(input).__name__,
            do="write the rows to files, or run them batch by batch: program = graph.compile(); program(batch)",
        )
    scorer = Scorer(model, **settings.of_scorer())
    scorer.source = scorer.source.identified()
    engine = engine_of(settings.on)
    sources = found([os.fspath(pattern) for pattern in patterns], scorer.graph)
    _check_apart(sources, folder)
    sources = sources.checked(scorer.binding(sources.schema))
    with held(folder):
        return _Run(scorer, settings, engine, sources, folder, watch).run()


def _settings(config: ScoreConfig | None, options: Mapping[str, Any]) -> ScoreConfig:
    names = [each.name for each in fields(ScoreConfig)]
    if unknown := [name for name in options if name not in names]:
        raise InvalidCall("unknown options of ScoreConfig", given=", ".join(unknown), available=", ".join(names))
    base = {} if config is None else {name: getattr(config, name) for name in names}
    return ScoreConfig(**{**base, **options})


def _check_apart(sources: Sources, folder: Path) -> None:
    inside = [path for path in sources.paths if folder.absolute() in Path(path).parents]
    if inside:
        raise InvalidCall(
            "the output folder holds input", given=f"{inside[0]} is in {folder}", do="give another folder (-o)"
        )


class _Run:
    """One call of ``score``."""

    def __init__(
        self, scorer: Scorer, settings: ScoreConfig, engine: Engine, sources: Sources, folder: Path, watch: Watch
    ) -> None:
        self.scorer, self.settings, self.engine = scorer, settings, engine
        self.sources, self.folder, self.watch = sources, folder, watch
        self.start = time.monotonic()

    def run(self) -> Scores:
        """Compute the remaining parts; returns the results."""
        plan = self._plan(whole_groups=False)
        threads = self.settings.threads or self.engine.threads
        with self.engine.ready(threads) if len(plan) > 1 else nullcontext():
            return self._run_parts(plan, threads)

    def _plan(self, *, whole_groups: bool) -> Sequence[Part]:
        rows = self.settings.part_rows or PART_ROWS
        return list(parts(self.sources.slices(GROUP_ROWS if whole_groups else rows), rows, split=not whole_groups))

    def _run_parts(self, plan: Sequence[Part], threads: int) -> Scores:
        manifest = self._manifest(sum(part.rows for part in plan), threads)
        if manifest.run["whole_groups"]:
            plan = self._plan(whole_groups=True)
        output = self.scorer.schema(self.sources.schema)
        self.scorer.batch, rows = manifest.run["batch"], manifest.run["at_once"]
        task = Task(
            self.scorer, self.sources.format, self.sources.schema, output, str(self.folder), self.settings.format, rows
        )
        before = {part.number: found for part in plan if (found := manifest.completed(part)) is not None}
        if more := manifest.numbers - {part.number for part in plan}:
            raise manifest.changed(f"the input has no rows for part {min(more)}, which is written")
        manifest.rewrite()
        self.watch.started(self._started(manifest, before))
        results = dict(before)
        meter = _Meter(plan, before, self.watch)
        tolerated = _Tolerated(self.settings.max_errors, plan)
        for done in before.values():
            tolerated.count(done)
        waiting = [part for part in plan if part.number not in before]
        with closing(self.engine.run(task, waiting, meter.rows_done)) as outcomes:
            for part, done in outcomes if waiting else ():
                manifest.add(part, done)
                results[part.number] = done
                meter.part_done(part)
                tolerated.count(done)
        manifest.clean()
        return self._scores(results, before, tolerated)

    def _scores(self, results: Mapping[int, Done], before: Mapping[int, Done], tolerated: _Tolerated) -> Scores:
        scores = Scores(self.folder, reused=len(before), seconds=time.monotonic() - self.start)
        for number, done in sorted(results.items()):
            scores.files.append(self.folder / f"part-{number:06}.{self.settings.format}")
            scores.rows += done.rows
            scores.bad += done.bad
            scores.reason = scores.reason or done.first_reason
            scores.summary.merge(done.summary)
        tolerated.check(final=True)
        return scores

    def _started(self, manifest: Manifest, before: Mapping[int, Done]) -> Started:
        run = manifest.run
        rows = sum(done.rows + done.bad for done in before.values())
        return Started(
            self.engine.title,
            run["backend"],
            self.scorer.threads or 1,
            run["batch"],
            len(self.sources.paths),
            rows,
            run["exact"],
        )

    def _manifest(self, rows: int, threads: int) -> Manifest:
        """The manifest of the folder, or a new one for ``rows`` after the trial of the first rows."""
        options = {name: getattr(self.settings, name) for name in _OF_OUTPUT}
        options = {**options, "columns": {k: list(v) for k, v in self.settings.columns.items()}}
        options["keep"], options["outputs"] = (
            None if options[name] is None else list(options[name]) for name in ("keep", "outputs")
        )
        contents = {"model": self.scorer.source.expected_identity, "options": options}
        manifest = Manifest.read(self.folder) if not self.settings.overwrite else None
        if self.settings.overwrite:
            emptied(self.folder)
        if manifest is not None:
            manifest.check(contents)
            self.scorer.fields = list(schema_of(manifest.run["outputs"]))
            self.scorer.use(manifest.run["backend"], self.settings.threads or manifest.run["threads"])
            return manifest
        if strange := foreign(self.folder):
            raise InvalidCall(
                "the output folder is not empty and was not written by an earlier run",
                given=f"{self.folder} has {', '.join(strange[:5])}",
                do="give another folder (-o)",
            )
        trial = tried(self.scorer, self.sources, threads, fewer=self.settings.threads is None)
        self.engine.expect(rows * trial.row_seconds)
        if self.settings.check:
            self._check()
        assert self.scorer.fields is not None
        batch = self.settings.batch or trial.batch
        return Manifest.begin(
            self.folder,
            {
                **contents,
                "backend": trial.backend,
                "threads": self.scorer.threads,
                "batch": batch,
                "at_once": at_once(batch, trial),
                "exact": trial.exact,
                "whole_groups": self.settings.part_rows is None and trial.is_cheap,
                "outputs": encoded(pa.schema(self.scorer.fields)),
            },
        )

    def _check(self) -> None:
        table, bad = checked(self.scorer, self.sources, CHECKED, FILES)
        self.watch.checked(table, bad)
        count = table.num_rows + len(bad)
        if len(bad) > self.settings.max_errors * count:
            raise _too_many(
                len(bad), count, self.settings.max_errors, f"{bad[0].file}: {bad[0].reason}", "of the check"
            )


class _Tolerated:
    """Counts bad rows. Raises ``InvalidFeed`` if their share exceeds the allowed one."""

    def __init__(self, share: float, plan: Sequence[Part]) -> None:
        self._share, self._expected = share, sum(part.rows for part in plan)
        self._rows = self._bad = 0
        self._reason = ""

    def count(self, done: Done) -> None:
        self._rows += done.rows + done.bad
        self._bad += done.bad
        self._reason = self._reason or done.first_reason
        self.check()

    def check(self, final: bool = False) -> None:
        rows = self._rows if final else max(self._rows, self._expected, ENOUGH)
        if self._bad > self._share * rows:
            raise _too_many(self._bad, self._rows, self._share, self._reason, "so far" if not final else "in all")


def _too_many(bad: int, rows: int, share: float, reason: str, when: str) -> InvalidFeed:
    return InvalidFeed(
        f"more than {share * 100:g} % of the rows are bad",
        given=f"{bad:,} of {rows:,} {when}; the first: {reason}",
        do="see errors/ in the output folder; allow more (--max-errors SHARE), and run the command again: it goes on "
        "from there, or correct the input and start again (--overwrite)",
    )


class _Meter:
    """Progress of a run, by the bytes of completed parts and the rows that workers report."""

    def __init__(self, plan: Sequence[Part], before: Mapping[int, Done], watch: Watch) -> None:
        self._watch, self._start = watch, time.monotonic()
        todo = [part for part in plan if part.number not in before]
        self._expected = max(sum(part.rows for part in todo), 1)
        self._rows = self._of_parts = 0

    def rows_done(self, rows: int) -> None:
        self._rows += rows
        self._report_progress()

    def part_done(self, part: Part) -> None:
        self._of_parts += part.rows
        self._rows = max(self._rows, self._of_parts)
        self._report_progress()

    def _report_progress(self) -> None:
        seconds = max(time.monotonic() - self._start, 1e-6)
        share = min(self._rows / self._expected, 1.0)
        rate = self._rows / seconds
        left = (self._expected - self._rows) / rate if rate > 0 else float("inf")
        self._watch.progress(Progress(self._rows, share, rate, max(left, 0.0)))
