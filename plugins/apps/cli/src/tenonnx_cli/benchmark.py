"""Time of a call by model, backend, provider, number of threads and batch size."""

from __future__ import annotations

import itertools
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from tenonnx import Graph, InvalidCall, OutOfTime, Program, TenonnxError, TensorType, load
from tenonnx.extend import html_of
from tenonnx.extend.checks import Tolerance
from tenonnx.tools import backends as installed_backends
from tenonnx.tools import compare, compile_graph, did_you_mean, feasible_feeds, plot_axes
from tenonnx_cli.output import human_seconds, plural

if TYPE_CHECKING:
    import os

#: Maximum number of measured calls, and number of rounds in which the settings alternate.
MOST_CALLS, ROUNDS = 10_000, 10

#: Number of warm-up calls, including the first.
WARM_UP = 2


class Ratio(NamedTuple):
    """Ratio of one setting's times to another's: median and quartiles of the rounds."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.3g} ({self.low:.3g} to {self.high:.3g})"


@dataclass(slots=True)
class Timing:
    """Call times of a model in one setting, in seconds; ``problem`` is the reason if there are none.

    ``rounds`` has the calls in the order of measurement. ``memory`` is the growth of the process during compilation and
    the first run, None if the system does not report it; ``difference`` is the largest difference from numpy.
    ``compilations`` counts compilations for new sizes. ``ratio`` compares with the fastest setting of the same batch
    size.
    """

    backend: str
    model: str = ""
    provider: str | None = None
    threads: int | None = None
    batch_size: int | None = None
    compiling: float = 0.0
    first_call: float = 0.0
    rounds: list[list[float]] = field(default_factory=list)
    difference: float = 0.0
    compilations: int | None = None
    memory: int | None = None
    ratio: Ratio | None = None
    problem: str = ""

    @property
    def calls(self) -> list[float]:
        """The seconds of all calls, sorted."""
        return sorted(itertools.chain(*self.rounds))

    def quantile(self, share: float) -> float:
        """The quantile ``share`` of the calls, in seconds."""
        calls = self.calls
        return calls[min(int(share * len(calls)), len(calls) - 1)]

    @property
    def seconds(self) -> float:
        """The median of the calls."""
        return median(self.calls)

    def relative_to(self, other: Timing) -> Ratio:
        """The ratio of this setting's times to another's, by round."""
        found = sorted(median(a) / median(b) for a, b in zip(self.rounds, other.rounds, strict=False))
        return Ratio(median(found), found[len(found) // 4], found[-1 - len(found) // 4])

    def to_dict(self) -> dict[str, Any]:
        """The setting and its times as data for JSON."""
        setting = {"provider": self.provider, "threads": self.threads, "batch_size": self.batch_size}
        report = {"file": self.model, "backend": self.backend, **{k: v for k, v in setting.items() if v is not None}}
        if self.problem:
            return {**report, "problem": self.problem}
        return {
            **report,
            "seconds": self.seconds,
            "p90": self.quantile(0.9),
            "p99": self.quantile(0.99),
            "calls": len(self.calls),
            "calls_per_second": 1 / max(self.seconds, 1e-12),
            "ratio": None if self.ratio is None else self.ratio._asdict(),
            "first_call": self.first_call,
            "compiling": self.compiling,
            "memory": self.memory,
            "difference": self.difference,
            "compilations": self.compilations,
        }


@dataclass(slots=True)
class Benchmark:
    """Times of one or more models, in the order of measurement."""

    timings: list[Timing] = field(default_factory=list)

    @property
    def measured(self) -> list[Timing]:
        """The settings that ran."""
        return [timing for timing in self.timings if not timing.problem]

    @property
    def fastest(self) -> Timing | None:
        """The setting with the smallest median; None if none ran."""
        return min(self.measured, key=lambda timing: timing.seconds, default=None)

    def title(self, timing: Timing) -> str:
        """The name of a setting, composed of what differs between settings."""
        parts = [timing.backend]
        if len({each.model for each in self.timings}) > 1:
            parts.insert(0, timing.model)
        parts += [] if timing.provider is None else [timing.provider]
        parts += [] if timing.threads is None else [plural(timing.threads, "thread")]
        parts += [] if timing.batch_size is None else [f"batch {timing.batch_size}"]
        return ", ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """All settings as data for JSON."""
        return {"backends": [timing.to_dict() for timing in self.timings]}

    def plot(self, axes: Any = None) -> Any:
        """Plot the median of each setting as a bar, with the 90th percentile; returns the axes of matplotlib."""
        axes = plot_axes(axes)
        rows, places = self.measured, range(len(self.measured))
        middle = [timing.seconds * 1e3 for timing in rows]
        above = [timing.quantile(0.9) * 1e3 - at for timing, at in zip(rows, middle, strict=True)]
        axes.barh(places, middle, xerr=[[0.0] * len(rows), above], capsize=3)
        axes.set_yticks(places, [self.title(timing) for timing in rows])
        axes.invert_yaxis()
        axes.set_xlabel("time of a call (ms): median and 90th percentile")
        axes.set_ylabel("setting")
        return axes

    def _repr_html_(self) -> str | None:
        return html_of(self)

    def __str__(self) -> str:
        best = self.fastest
        if best is None:
            return "nothing ran: " + "; ".join(timing.problem for timing in self.timings)
        said = f"fastest: {self.title(best)}, {human_seconds(best.seconds)} a call"
        others = [f"{self.title(each)} {each.ratio} times" for each in self.measured if each is not best]
        return "; ".join([said, *others])

    def __repr__(self) -> str:
        return f"Benchmark({self})"


def bench(
    *models: Graph | str | os.PathLike[str],
    titles: Sequence[str] = (),
    backends: Sequence[str] | None = None,
    providers: Sequence[str] = (),
    threads: Sequence[int] = (),
    batch_sizes: Sequence[int] = (),
    feeds: Mapping[str, Any] | None = None,
    input_shapes: Mapping[str, Sequence[int | str | None]] | None = None,
    seed: int = 0,
    seconds: float = 1.0,
) -> Benchmark:
    """Time calls of ``models``, for ``seconds`` in each setting: all combinations of the arguments.

    ``titles`` name the models in the result, by default by file or graph. ``backends`` are all installed ones by
    default. ``providers`` are execution providers of backends that have them. With ``batch_sizes``, the dynamic first
    dim of inputs takes each of these sizes. Missing inputs are drawn at random by ``seed``. Settings alternate, so that
    load on the machine affects all of them. A setting that fails is a ``Timing`` with a ``problem``. Raises
    ``InvalidCall`` for a backend that is not installed, and for batch sizes without a dynamic first dim.
    """
    known = ["numpy", *installed_backends()]
    for name in backends or ():
        if name not in known:
            do = did_you_mean(name, known)
            raise InvalidCall(f'no backend "{name}" is installed', available=", ".join(known), do=do)
    result, running = Benchmark(), []
    for place, model in enumerate(models):
        graph = model if isinstance(model, Graph) else load(model)
        name = model.name if isinstance(model, Graph) else Path(model).name
        title = titles[place] if titles else name or f"model {place + 1}"
        for size in batch_sizes or (None,):
            given, expected = _inputs(graph, feeds or {}, input_shapes or {}, seed, size)
            for timing in _settings(backends or known, providers, threads):
                timing.model, timing.batch_size = title, size
                result.timings.append(timing)
                if (program := _prepared(timing, graph, given, expected)) is not None:
                    running.append((timing, program, given))
    _measure(running, seconds)
    for timing in result.measured:
        alike = [each for each in result.measured if each.batch_size == timing.batch_size]
        timing.ratio = timing.relative_to(min(alike, key=lambda each: each.seconds))
    return result


def _settings(backends: Sequence[str], providers: Sequence[str], threads: Sequence[int]) -> Iterator[Timing]:
    """All combinations; a backend without an option for providers or threads occurs once for all of them."""
    for backend in backends:
        known = ("threads",) if backend == "numpy" else _option_names(backend)
        for provider in providers if providers and "provider" in known else (None,):
            for count in threads if threads and "threads" in known else (None,):
                yield Timing(backend, provider=provider, threads=count)


def _option_names(backend: str) -> Collection[str]:
    """The options of a backend; empty for one that fails to load, which is reported when it is timed."""
    try:
        return signature(installed_backends()[backend].load().compile).parameters
    except TenonnxError:
        return ()


def _inputs(
    graph: Graph,
    feeds: Mapping[str, Any],
    shapes: Mapping[str, Sequence[int | str | None]],
    seed: int,
    size: int | None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Feeds for a batch size, completed with random inputs, and the outputs of numpy."""
    import numpy as np

    given, wanted = dict(feeds), dict(shapes)
    if size is not None:
        free = [v for v in graph.inputs if isinstance(v.type, TensorType) and v.type.shape and _is_free(v.type.shape)]
        if not free:
            given_types = ", ".join(f"{value.name}: {value.type}" for value in graph.inputs)
            do = "free it first: tenonnx convert --dynamic-batch"
            raise InvalidCall("no input has a dynamic batch dimension", given=given_types, do=do)
        for value in free:
            dims = wanted.get(value.name, [d if isinstance(d, int) else None for d in value.tensor.shape or ()])
            wanted[value.name] = (size, *dims[1:])
            if value.name in given:
                array = np.asarray(given[value.name])
                given[value.name] = np.resize(array, (size, *array.shape[1:]))
    program = compile_graph(graph, "numpy")
    if all(value.name in given for value in graph.inputs):
        return given, program(given)
    wanted |= {name: array.shape for name, array in given.items() if hasattr(array, "shape")}
    drawn_feeds, results, _ = feasible_feeds(graph, lambda drawn: program({**drawn, **given}), seed, wanted)
    return {**drawn_feeds, **given}, results


def _is_free(shape: Sequence[Any]) -> bool:
    return not isinstance(shape[0], int)


def _prepared(timing: Timing, graph: Graph, feeds: Mapping[str, Any], expected: Mapping[str, Any]) -> Program | None:
    """The program of a setting after its first calls; None if it fails, with the problem recorded."""
    before, memory = _compilations(timing.backend), _reset_peak()
    try:
        start = time.perf_counter()
        program = compile_graph(graph, timing.backend, strict=True, **_options(timing))
        timing.compiling = time.perf_counter() - start
        start = time.perf_counter()
        results = program(feeds)
        timing.first_call = time.perf_counter() - start
        for _ in range(WARM_UP - 1):
            program(feeds)
        timing.problem = _difference(graph, results, expected)
        timing.difference = max((compare(results[o], expected[o]).absolute for o in expected), default=0.0)
    except OutOfTime:
        raise
    except TenonnxError as error:
        timing.problem = str(error)
    except (Exception, SystemExit) as error:
        if timing.backend == "numpy":
            raise
        timing.problem = str(installed_backends()[timing.backend].failure("cannot run a graph", error))
    if timing.problem:
        return None
    after = _compilations(timing.backend)
    timing.compilations = None if before is None or after is None else after - before
    peak = _peak()
    timing.memory = None if memory is None or peak is None else max(peak - memory, 0)
    return program


def _options(timing: Timing) -> dict[str, Any]:
    """The options of the backend for a setting."""
    given = {"provider": timing.provider, "threads": timing.threads}
    return {name: value for name, value in given.items() if value is not None}


def _measure(running: Sequence[tuple[Timing, Program, Mapping[str, Any]]], seconds: float) -> None:
    """Time calls in rounds, until each setting had its ``seconds`` or ``MOST_CALLS`` calls."""
    spent = dict.fromkeys(range(len(running)), 0.0)
    for _ in range(ROUNDS):
        for place, (timing, program, feeds) in enumerate(running):
            if spent[place] >= seconds:
                continue
            calls: list[float] = []
            while not calls or (sum(calls) < seconds / ROUNDS and len(calls) < MOST_CALLS // ROUNDS):
                start = time.perf_counter()
                program(feeds)
                calls.append(time.perf_counter() - start)
            timing.rounds.append(calls)
            spent[place] += sum(calls)


def _difference(graph: Graph, results: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    """Difference of outputs from numpy's beyond rounding, as text; empty if there is none, or if outputs are random."""
    if not all(getattr(node.op, "pure", False) for node in graph.walk()):
        return ""
    allowed = Tolerance(1e-2, 1e-2, "backends may compute in lower precision")
    found = ((name, compare(results[name], expected[name], tolerance=allowed)) for name in expected)
    return next(
        (f'output "{name}" differs from that of numpy: {each.reason}' for name, each in found if not each.equal), ""
    )


def _compilations(name: str) -> int | None:
    """Number of compilations for input sizes so far; None for backends that do not count them."""
    count = None if name == "numpy" else getattr(installed_backends()[name].load(), "compilations", None)
    return None if count is None else int(count())


def _reset_peak() -> int | None:
    """Reset the peak memory of the process; returns the current memory, None if the system does not report it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return None
    return _status("VmRSS")


def _peak() -> int | None:
    return _status("VmHWM")


def _status(name: str) -> int | None:
    """Bytes of an entry of the process's status on Linux."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), None)
