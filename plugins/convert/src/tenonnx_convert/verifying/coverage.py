"""Additional runs of a verification, for branches, loop trip counts and dims that the first run did not cover."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tenonnx import limits
from tenonnx.errors import OutOfTime, TenonnxError
from tenonnx.graph.program import Program
from tenonnx.graph.symbolic import symbols_of
from tenonnx.graph.types import TensorType
from tenonnx_convert.verifying.compare_outputs import Judge
from tenonnx_convert.verifying.compare_run import Compared, compare_run
from tenonnx_convert.verifying.divergence import as_taken_by
from tenonnx_convert.verifying.regions import (
    SEVERAL,
    Entries,
    NodeRegion,
    Path,
    RegionCoverage,
    by_itself,
    inputs_that_decide,
    paired_regions,
)
from tenonnx_convert.verifying.verification import Run, Verification
from tenonnx_run.compiling import compile_graph

#: Budget of all additional runs in multiples of the first; cost of a run that the original rejects, and of observing
#: regions.
MOST, REFUSED, OBSERVED = 9.0, 0.25, 0.25

#: Additional runs may always take this many seconds.
SECONDS = 2.0

#: Number of further sizes of a dim.
_SIZES = 2

#: Maximum length of the original's error message, in characters.
_SHOWN = 120

_NO_RUNS_LEFT = "ten times the cost of one run were used up"


@dataclass(slots=True)
class DrawnInputs:
    """Source of random inputs: ``draw(sizes)`` returns feeds for these sizes of dims.

    Dims in ``searched`` have sizes at which the model was found to run; sizes in ``excluded`` are excluded.
    """

    sizes: Mapping[str, int]
    draw: Callable[[Mapping[str, int]], dict[str, Any]]
    searched: Collection[str] = ()
    excluded: Mapping[str, int] = field(default_factory=dict)

    def dims(self, *, apart: bool) -> dict[str, list[str]]:
        """Dims by label, each with the symbols that share it: unknown dims share one for each axis.

        Unless ``apart``, dims of equal size that were searched share a label, since they may depend on each other.
        """
        found: dict[str, list[str]] = {}
        for name, size in self.sizes.items():
            label = f"axis {name.rpartition(' ')[2]}" if name.startswith("?") else name
            if name in self.searched and not apart:
                label = next((e for e, names in found.items() if self._is_searched(names[0], size)), label)
            found.setdefault(label, []).append(name)
        return {"=".join(names) if names[0] == label else label: names for label, names in found.items()}

    def _is_searched(self, name: str, size: int) -> bool:
        return name in self.searched and self.sizes[name] == size


class Coverage:
    """The runs of a verification after the first one, compared by ``judge``.

    ``random_inputs`` is None if the user gave inputs. ``program`` is the original on the reference backend.
    ``described`` says what the first run was fed, ``started`` is its start time.
    """

    def __init__(
        self,
        judge: Judge,
        other: Compared,
        program: Program,
        found: Verification,
        drawn: DrawnInputs | None,
        described: str,
        started: float,
    ) -> None:
        self.judge, self.other, self.program, self.verification, self.random_inputs = (
            judge,
            other,
            program,
            found,
            drawn,
        )
        self._remaining_runs, self._longest = MOST, time.monotonic() - started
        self._ends = time.monotonic() + max(SECONDS, MOST * self._longest)
        self._refused: dict[str, str] = {}
        self._sizes: dict[str, dict[int, None]] = {}
        self._ours = RegionCoverage(judge.graph)
        self._theirs: RegionCoverage | None = self._ours if other.graph is judge.graph else None
        self._captured_at: dict[Path, tuple[str, Mapping[str, Any]]] = {}
        if self._ours.problem:
            found.note(f"which branches ran is unknown: {self._ours.problem}")
        self._dims = {} if drawn is None else drawn.dims(apart=not judge.itself)
        sizes = {} if drawn is None else {label: drawn.sizes[names[0]] for label, names in self._dims.items()}
        found.runs.append(Run(described, tuple(self._covered("", judge.feeds, sizes))))

    def run(self) -> Verification:
        """Run what the first run missed, up to the first difference, and note what no run covers."""
        for further in (self._set_inputs, self._resize_dims, self._empty_loops, self._run_branches):
            if self.verification.equal:
                further()
        if self.verification.equal:
            self._say_what_is_missing()
        return self.verification

    # ----- runs of the whole model ------------------------------------------------------------------------------------

    def _is_affordable(self, cost: float) -> bool:
        now, end = time.monotonic(), limits.end()
        in_time = now < self._ends and (end is None or now + 2 * self._longest < end)
        return self._remaining_runs >= cost and in_time

    def _compare(self, name: str, feeds: Mapping[str, Any], sizes: Mapping[str, int]) -> bool:
        """Compare one additional run; returns whether the original accepted its inputs."""
        started = time.monotonic()
        try:
            expected = self.program(feeds)
            taken = compare_run(self.judge.of_run(feeds, expected), self.other, self.verification, name)
        except OutOfTime:
            raise
        except TenonnxError as error:
            self._remaining_runs -= REFUSED
            self._refused[name] = error.what
            return False
        self._remaining_runs -= 1
        self._longest = max(self._longest, time.monotonic() - started)
        if not taken:
            return False
        self.verification.runs.append(Run(name, tuple(self._covered(name, feeds, sizes))))
        return True

    def _covered(self, name: str, feeds: Mapping[str, Any], sizes: Mapping[str, int]) -> Iterator[str]:
        """Coverage that a run adds to the earlier runs."""
        for label, size in sizes.items():
            if size not in self._sizes.setdefault(label, {}):
                self._sizes[label][size] = None
                yield f"{label}={size}"
        if self._ours.regions:
            self._remaining_runs -= OBSERVED if name else 0.0
            entries, covers = self._ours.observe(feeds)
            for path in entries.captured.keys() - self._captured_at.keys():
                self._captured_at[path] = name, feeds
            yield from covers

    # ----- inputs that decide -----------------------------------------------------------------------------------------

    def _set_inputs(self) -> None:
        """Set the booleans and counts on which regions depend, one at a time, if they are graph inputs."""
        if self.random_inputs is None:
            return
        for region in self._ours.regions:
            if not self._ours.missing(region) or not self._is_affordable(1):
                continue
            inputs = sorted(inputs_that_decide(self._ours.graph, region), key=lambda value: value.name)
            for value in inputs:
                at, feeds = self._captured_at.get(region.path, ("", self.judge.feeds))
                for contents in _other_contents(feeds.get(value.name), region, self._ours.missing(region)):
                    if not self._ours.missing(region) or not self._is_affordable(1):
                        break
                    name = ", ".join(filter(None, (at, f"{value.name}={contents.reshape(-1)[0]}")))
                    self._compare(name, {**feeds, value.name: contents}, {})

    # ----- sizes ------------------------------------------------------------------------------------------------------

    def _resize_dims(self) -> None:
        """Draw new inputs with each dim at 1 and at another size, with the other dims unchanged."""
        if self.random_inputs is None:
            return
        for _ in range(_SIZES):
            for label in self._dims:
                if self.verification.equal:
                    self._resize(label)

    def _resize(self, label: str, candidates: Sequence[int] = ()) -> None:
        """Compare at one further size of a dim, the first that the original accepts."""
        assert self.random_inputs is not None
        names = self._dims[label]
        first = self.random_inputs.sizes[names[0]]
        for size in candidates or (1, first + 1, 2 * first, 3 * first):
            name = f"{label}={size}"
            avoided = any(self.random_inputs.excluded.get(each) == size for each in names)
            if avoided or size in self._sizes.get(label, {}) or name in self._refused:
                continue
            for sizes in _resized(self.random_inputs.sizes, names, size):
                if not self._is_affordable(1):
                    return
                try:
                    feeds = self.random_inputs.draw(sizes)
                except TenonnxError as error:
                    self._refused[name] = error.what
                    continue
                if self._compare(name, feeds, {label: size}):
                    self._refused.pop(name, None)
                    return

    def _empty_loops(self) -> None:
        """Set dims to 0 on which loops depend that ran in every run."""
        if self.random_inputs is None:
            return
        for region in self._ours.regions:
            if region.is_branch or 0 not in self._ours.missing(region):
                continue
            inputs = inputs_that_decide(self._ours.graph, region)
            wanted = {name for value in inputs for name in _symbols(value.type)}
            for label, names in self._dims.items():
                if wanted.intersection(names) and 0 in self._ours.missing(region):
                    self._resize(label, (0,))

    # ----- separate runs of branches ----------------------------------------------------------------------------------

    def _run_branches(self) -> None:
        """Run branches that no inputs reached, each as a separate graph of its captures."""
        if self.other.file is not None or not any(region.is_branch for region in self._ours.never_entered()):
            return  # a file cannot be run partially
        if self._theirs is None:
            self._theirs = RegionCoverage(self.other.graph)
        pairs = paired_regions(self._ours.graph, self._theirs.graph)
        total = max(1, sum(1 for _ in self._ours.graph.walk()))
        for region in self._ours.regions:
            if not region.is_branch or not self._ours.missing(region) or not self.verification.equal:
                continue
            cost = sum(1 for _ in region.graph.walk()) / total
            if not self._is_affordable(cost):
                self.verification.never_ran[region.title] = _NO_RUNS_LEFT
                continue
            self._remaining_runs -= cost
            try:
                self._run_branch(region, pairs.get(region.path), self._theirs)
            except OutOfTime:
                raise
            except TenonnxError as error:
                why = f"no inputs reach it, and by itself it does not run: {error.what}"
                self.verification.never_ran[region.title] = why

    def _run_branch(self, region: NodeRegion, twin: NodeRegion | None, theirs: RegionCoverage) -> None:
        captured = self._ours.entries.captured.get(region.path)
        if captured is None or twin is None:
            why = "its node never ran" if captured is None else "the other model has no such branch"
            self.verification.never_ran[region.title] = why
            return
        graph, feeds = by_itself(region, self._ours.graph, captured)
        other, other_feeds = graph, feeds
        if theirs is not self._ours:
            if twin.path not in theirs.entries.captured:
                theirs.observe(as_taken_by(theirs.graph, self._captured_at[region.path][1]))
            contents = theirs.entries.captured.get(twin.path)
            if contents is None:
                self.verification.never_ran[region.title] = "its node never ran in the other model"
                return
            other, other_feeds = by_itself(twin, theirs.graph, contents, like=region)
        judge = replace(
            self.judge.of_run(feeds, compile_graph(graph, self.judge.reference)(feeds)),
            graph=graph,
            rules=replace(self.judge.rules, numbers=True),
            programs={},
        )
        found = Verification(self.judge.reference)
        names = [value.name for value in graph.outputs]
        compare_run(judge, Compared(other, self.other.backends, names), found, feeds=other_feeds)
        name = f"{region.title} by itself"
        wrong = [str(output) for output in found.outputs if not output.equal]
        self.verification.problems += [f"{name}: {problem}" for problem in (*found.problems, *wrong)]
        covers = self._ours.enter(Entries(trips={(): {1}}), region.path)
        covers += self._ours.enter(RegionCoverage(graph).observe(feeds)[0], region.path)
        if theirs is not self._ours:
            theirs.enter(RegionCoverage(other).observe(other_feeds)[0], twin.path)
        self.verification.runs.append(Run(name, tuple(covers), found.grade))

    # ----- what is missing --------------------------------------------------------------------------------------------

    def _say_what_is_missing(self) -> None:
        unreached = self._ours.never_entered()
        for region in unreached:
            self.verification.never_ran.setdefault(region.title, "no inputs reach it")
        for region in self._ours.regions:
            if (missing := self._ours.missing(region)) and region not in unreached:
                trips = " and ".join("several" if n == SEVERAL else str(n) for n in sorted(missing))
                self.verification.note(f"{region.title} did not run with {trips} trips")
        if self.random_inputs is None:
            return
        short = [label for label in self._dims if len(self._sizes.get(label, ())) <= _SIZES]
        for label in short:
            sizes = " and ".join(map(str, self._sizes.get(label, ())))
            refused = [f"{name}: {why[:_SHOWN]}" for name, why in self._refused.items() if name.startswith(f"{label}=")]
            why = f"the original refuses {'; '.join(refused)}" if refused else _NO_RUNS_LEFT
            self.verification.note(f"{label} had the sizes {sizes} alone: {why}")


def _other_contents(contents: Any, region: NodeRegion, missing: set[int]) -> Iterator[np.ndarray[Any, Any]]:
    """Other contents for an input that determines a region: missing booleans and trip counts."""
    if not isinstance(contents, np.ndarray) or not contents.size:
        return
    if contents.dtype == np.bool_:
        for value in (True, False):
            if not (contents == value).all():
                yield np.full_like(contents, value)
    elif contents.dtype.kind in "iu" and contents.size == 1 and not region.is_branch:
        for count in sorted(missing):
            if contents.reshape(-1)[0] != count:
                yield np.full_like(contents, count)


def _resized(sizes: Mapping[str, int], names: Sequence[str], size: int) -> Iterator[dict[str, int]]:
    """The sizes with some names changed: first with all others unchanged, then with sums that contain them adjusted."""
    first = sizes[names[0]]
    alone = {**sizes, **dict.fromkeys(names, size)}
    yield alone
    sums = {
        total: alone[names[0]] + rest
        for total, known in sizes.items()
        for part, rest in sizes.items()
        if total not in names and part not in (*names, total) and known == first + rest
    }
    if sums:
        yield {**alone, **sums}


def _symbols(kind: Any) -> set[str]:
    shape = kind.shape if isinstance(kind, TensorType) else None
    return {name for dim in shape or () if dim is not None for name in symbols_of(dim)}
