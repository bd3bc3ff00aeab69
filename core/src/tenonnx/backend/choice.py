"""Which of several backends is the fastest for a graph: measured once on each machine, and remembered."""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np

from tenonnx import limits
from tenonnx.backend.state import MovingState
from tenonnx.backend.strangers import CheckedProgram, differing
from tenonnx.errors import PluginError, TenonnxError
from tenonnx.graph.graph import Graph, Value
from tenonnx.graph.program import Bindable, Program

#: Of so many graphs the figures are kept.
REMEMBERED = 1000

#: Seconds and calls, at most, by which a backend is measured; the first call does not count.
SECONDS, CALLS = 0.3, 5

#: So many calls a training is taken to make. Where they take longer than the seconds in which a large library is
#: imported and a graph compiled by it, backends of such libraries take part.
EXPECTED_CALLS, IMPORT_SECONDS = 1000, 5.0


def measured(program: Program, feeds: Mapping[str, Any], seconds: float = SECONDS, calls: int = CALLS) -> float:
    """The median seconds of a call of a program that has run: at least one, then as many as fit into ``seconds``."""
    found: list[float] = []
    while not found or (len(found) < calls and sum(found) < seconds):
        start = time.perf_counter()
        program(feeds)
        found.append(time.perf_counter() - start)
    return float(np.median(found))


class Contest(Bindable):
    """Programs of one graph, of which the fastest on the first feeds stays; ``decided`` is told the seconds of each.

    All begin from the same state, and the state that was measured on is forgotten. A program that fails leaves the
    contest; where all fail, the error is that of the first. ``failed`` is told of what a program must not raise, and of
    one that does not give ``outputs``. ``strangers`` must give what ``reference`` gives; it takes the place of those
    that do not, where nobody else is left. Under a deadline the first that is right runs, and nothing is decided.
    """

    def __init__(
        self,
        programs: Mapping[str, Program],
        outputs: Sequence[str],
        decided: Callable[[Mapping[str, float]], None],
        failed: Callable[[str, BaseException], TenonnxError],
        strangers: Mapping[str, CheckedProgram] | None = None,
        reference: Callable[[], Program] | None = None,
        later: Callable[[], Mapping[str, Program]] | None = None,
    ) -> None:
        self._later = later
        self._programs, self._outputs, self._decided, self._failed = dict(programs), outputs, decided, failed
        self._strangers, self._make_reference = strangers or {}, reference
        self._is_open = True
        self._lock = threading.Lock()
        self._state = MovingState(lambda: self._first.state)

    @property
    def state(self) -> MutableMapping[str, Any]:
        return self._state

    @property
    def _first(self) -> Program:
        return next(iter(self._programs.values()))

    @property
    def backend(self) -> str:
        return self._first.backend

    def __call__(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        if self._is_open and (limits.end() is None or next(iter(self._programs)) in self._strangers):
            with self._lock:
                if self._is_open:
                    self._decide(feeds)
        return self._first(feeds)

    def _decide(self, feeds: Mapping[str, Any]) -> None:
        state = dict(self.state)
        seconds: dict[str, float] = {}
        failure: TenonnxError | None = None
        held = {name: _locked(contents) for name, contents in feeds.items()} if isinstance(feeds, Mapping) else feeds
        reference, expected = self._expected(held, state)
        for name, program in self._contestants(seconds):
            program.state.update(state)
            try:
                found = program(held)  # the first call costs more
                if sorted(found) != sorted(self._outputs):
                    raise TypeError(f"it gives the outputs {sorted(found)}, and the graph has {sorted(self._outputs)}")
                if name in self._strangers and expected is not None and (problem := differing(found, expected)):
                    raise self._strangers[name].wrong(problem)
                if limits.end() is None:
                    seconds[name] = measured(program, held)
                else:
                    seconds[name] = 0.0
                    break
            except PluginError as error:
                self._failed(name, error)
                failure = failure or error
            except TenonnxError as error:
                failure = error if failure is None or isinstance(failure, PluginError) else failure
            except (Exception, SystemExit) as error:
                told = self._failed(name, error)
                failure = failure or told
            finally:
                program.state.update(state)
        if not seconds:
            assert failure is not None
            if reference is None or not isinstance(failure, PluginError):
                raise failure
            self._programs = {"numpy": reference}
        else:
            best = min(seconds, key=lambda name: seconds[name])
            self._programs = {best: self._programs[best]}
            if limits.end() is None:
                self._decided(seconds)
        self._is_open = False

    def _contestants(self, seconds: Mapping[str, float]) -> Iterator[tuple[str, Program]]:
        """The programs, and those that are made later where it is known by then how long the others take."""
        yield from self._programs.items()
        if self._later is None or limits.end() is not None:
            return
        if min(seconds.values(), default=math.inf) * EXPECTED_CALLS > IMPORT_SECONDS:
            made = self._later()
            self._programs = {**self._programs, **made}
            yield from made.items()

    def _expected(
        self, feeds: Mapping[str, Any], state: Mapping[str, Any]
    ) -> tuple[Program | None, Mapping[str, Any] | None]:
        """The program that strangers are held against and what it gives, which is nothing where it refuses."""
        if not self._strangers or self._make_reference is None:
            return None, None
        try:
            reference = self._make_reference()
            reference.state.update(state)
            expected = reference(feeds)
            reference.state.update(state)
        except TenonnxError:
            return None, None
        return reference, expected


def _locked(contents: Any) -> Any:
    """Contents that a program cannot change for the next one."""
    if isinstance(contents, np.ndarray):
        contents = contents.view()
        contents.flags.writeable = False
    return contents


# ----- what is remembered ---------------------------------------------------------------------------------------------


def recalled(graph: Graph, versions: Mapping[str, str], **how: Any) -> dict[str, float]:
    """The seconds of backends that were measured on this machine in these ``versions``, none where they were not."""
    return _read().get(_key(graph, versions, how), {})


def remember(seconds: Mapping[str, float], graph: Graph, versions: Mapping[str, str], **how: Any) -> None:
    """Keep the seconds of each backend. Where the cache cannot be written, they are measured again."""
    path = cache()
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = _read()
        kept.pop(key := _key(graph, versions, how), None)
        kept[key] = dict(seconds)
        with NamedTemporaryFile("w", dir=path.parent, suffix=".json", delete=False, encoding="utf-8") as file:
            json.dump(dict(list(kept.items())[-REMEMBERED:]), file)
        Path(file.name).replace(path)


def cache() -> Path:
    """Where figures are kept: ``tenonnx/backends.json`` in ``XDG_CACHE_HOME``, or in ``.cache`` of the home."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "tenonnx" / "backends.json"


def _read() -> dict[str, dict[str, float]]:
    """What is kept, without what is no figure."""
    try:
        found = json.loads(cache().read_text("utf-8"))
    except (OSError, ValueError, RuntimeError):  # the last where there is no home
        return {}
    entries = found.items() if isinstance(found, dict) else ()
    return {
        key: entry
        for key, entry in entries
        if isinstance(entry, dict) and all(isinstance(seconds, float) for seconds in entry.values())
    }


def _key(graph: Graph, versions: Mapping[str, str], how: Mapping[str, Any]) -> str:
    """Names the machine, the backends, what is asked of them, and the graph, but not the contents of its variables."""
    import hashlib  # which only the choice of a backend needs

    machine = platform.node(), platform.machine(), os.cpu_count()
    parts = (
        repr(("held against numpy", machine, sorted(versions.items()), sorted(how.items(), key=str))),
        *_described(graph),
    )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _described(graph: Graph) -> Iterator[str]:
    numbers: dict[Value | None, int | None] = {None: None}
    for value in (*graph.all_inputs, *graph.variables):
        numbers.setdefault(value, len(numbers))
        yield f"{value.name}: {value.type}"
    for node in graph.nodes:
        inputs = [numbers.setdefault(value, len(numbers)) for value in (*node.inputs, *node.captures)]
        types = [None if value is None else str(value.type) for value in (*node.inputs, *node.outputs)]
        for output in node.outputs:
            numbers.setdefault(output, len(numbers))
        yield repr((node.domain, node.op_type, node.version, inputs, types))
        for name, attribute in sorted(node.attributes.items()):
            if isinstance(attribute, Graph):
                yield from _described(attribute)
            else:
                yield f"{name}={getattr(attribute, 'type', attribute)!r}"  # a tensor by its type
    yield repr([numbers.get(value) for value in graph.outputs])
