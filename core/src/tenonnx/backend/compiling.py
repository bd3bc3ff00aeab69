"""Making a graph ready to run, on the backend that is asked for or on the fastest."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import nullcontext
from numbers import Real
from typing import Any

from tenonnx import limits
from tenonnx.backend.base import Backend, backends
from tenonnx.backend.choice import Contest, recalled, remember
from tenonnx.backend.numpy import backend as numpy_backend
from tenonnx.backend.rescue import RescuedProgram
from tenonnx.backend.state import check_state
from tenonnx.backend.strangers import CheckedProgram, is_comparable
from tenonnx.backend.wrapped import WrappedProgram
from tenonnx.errors import (
    FallbackWarning,
    InvalidCall,
    NotRepresentable,
    PluginError,
    PluginWarning,
    TenonnxError,
    UnsupportedOp,
)
from tenonnx.graph.definitions import in_registry_of_graph
from tenonnx.graph.garbage import uncollected
from tenonnx.graph.graph import Graph, Value
from tenonnx.graph.order import check_whole
from tenonnx.graph.program import Program
from tenonnx.op.op import Op
from tenonnx.registry.discovery import Plugin, check_takes, cure
from tenonnx.registry.hints import provider
from tenonnx.transforms.decompose import refuse_opaque
from tenonnx.transforms.extract import extract
from tenonnx.transforms.rewrite import copy_graph
from tenonnx.transforms.summary import weight_bytes

#: Graphs with more bytes of variables run on the first backend that takes them.
LARGEST_COMPARED = 1 << 30


class TimedProgram(WrappedProgram):
    """A program whose calls end within so many seconds, or raise ``LimitExceeded``."""

    def __init__(self, program: Program, deadline: float) -> None:
        super().__init__(program)
        self._deadline = deadline

    def __call__(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        with limits.within(self._deadline):
            return self._program(feeds)


@in_registry_of_graph
def compile_graph(
    graph: Graph, backend: str = "auto", *, strict: bool = False, deadline: float | None = None, **options: Any
) -> Program:
    """Make ``graph`` ready to run.

    ``auto`` is the fastest installed backend that can run it, numpy where there is none; one that fails otherwise is
    named in a ``PluginWarning``. Where several can, the first call measures them (``choice.py``), and the figures are
    kept for this graph on this machine.

    ``state={input: output}`` names inputs that live in the program and are replaced by an output after each call;
    further options are the backend's own. A backend that cannot run the graph, or refuses a call, gives way to numpy
    with a ``FallbackWarning``, or raises when ``strict``. Each call must end within ``deadline`` seconds, or raises
    ``LimitExceeded`` once the op at work is done. Raises ``InvalidCall`` for a backend or option that there is not,
    ``UnsupportedOp`` for a graph that cannot run. Ops that no package provides run on a backend that has kernels of
    them (``takes_opaque``), which then has nothing to give way to.
    """
    if deadline is None:
        return _compiled(graph, backend, strict, options)
    if not isinstance(deadline, Real) or not deadline > 0:
        raise InvalidCall("deadline must be a positive number of seconds", given=repr(deadline)[:80])
    return TimedProgram(_compiled(graph, backend, strict, options), float(deadline))


def run(
    graph: Graph, feeds: Mapping[str, Any], backend: str = "auto", *, outputs: Sequence[str | Value] | str | None = None
) -> dict[str, Any]:
    """The outputs of a graph, or other values of it, see ``Graph.run``."""
    if outputs is None:
        return compile_graph(graph, backend)(feeds)
    several = [outputs] if isinstance(outputs, str | Value) else outputs
    names = [graph.find(value).name for value in several]
    part = extract(graph, None, names)
    unneeded = {v.name for v in graph.all_inputs} - {v.name for v in part.all_inputs}
    given = {name: array for name, array in feeds.items() if name not in unneeded}
    found = compile_graph(part, backend)(given)
    return {name: found[name] for name in names}


@uncollected()
def _compiled(graph: Graph, backend: str, strict: bool, options: dict[str, Any]) -> Program:
    check_whole(graph)
    is_opaque = any(not isinstance(node.op, Op) for node in graph.walk())
    if backend == "auto":
        return _fastest(graph, is_opaque, strict, options)
    if backend == "numpy":
        refuse_opaque(graph, "run")
        return numpy_backend.compile(graph, **options)
    installed = backends()
    if backend not in installed:
        package = provider("tenonnx.backends", backend)
        raise InvalidCall(
            f'no backend "{backend}" is installed',
            available=", ".join(["numpy", *installed]),
            do=cure([package]) if package else "choose one of these",
        )
    module = installed[backend].load()
    if is_opaque and not _takes_opaque(module):
        refuse_opaque(graph, f"run on {backend}")
    try:
        return _program_of(installed[backend], module, graph, strict or is_opaque, options)
    except TenonnxError:
        raise
    except (Exception, SystemExit) as error:
        raise installed[backend].failure("cannot compile a graph", error) from error


def _fastest(graph: Graph, is_opaque: bool, strict: bool, options: dict[str, Any]) -> Program:
    """What ``auto`` is: the last of what fails is the reason why it is numpy."""
    if options.get("state"):
        check_state(graph, options["state"])
    failures: list[TenonnxError] = []
    loaded = [found for found in _loaded(failures) if not is_opaque or _takes_opaque(found[1])]
    versions = {plugin.name: plugin.source for plugin, _ in loaded}
    seconds = recalled(graph, versions, **options) if len(loaded) > 1 else {}
    is_large = weight_bytes(graph) > LARGEST_COMPARED
    loaded.sort(
        key=lambda found: (
            seconds.get(found[0].name, math.inf),
            is_large and not found[0].is_ours,
            -found[1].speed,
        )
    )
    programs = _programs(graph, loaded, options, failures, one=bool(seconds) or is_large)
    if programs:
        decided = functools.partial(remember, graph=graph, versions=versions, **options)
        outputs = [value.name for value in graph.outputs]
        unproven = {
            name: program
            for name, program in programs.items()
            if isinstance(program, CheckedProgram) and name not in seconds
        }
        program, *others = programs.values()
        if others or unproven:
            reference = functools.partial(numpy_backend.compile, graph, state=options.get("state"))
            program = Contest(
                programs, outputs, decided, _passed_over, unproven, reference if is_comparable(graph) else None
            )
        return program if strict or is_opaque else RescuedProgram(program, graph, options.get("state"))
    if is_opaque:
        refuse_opaque(graph, "run")
    if not failures:
        return numpy_backend.compile(graph, **options)
    if strict:
        raise failures[-1]
    return fall_back(graph, failures[-1], options.get("state"))


def _loaded(failures: list[TenonnxError]) -> list[tuple[Plugin, Backend]]:
    """The installed backends; those that cannot be imported are named in a warning."""
    found: list[tuple[Plugin, Backend]] = []
    for plugin in backends().values():
        try:
            found.append((plugin, plugin.load()))
        except PluginError as error:
            failures.append(_told(error))
    return found


def _programs(
    graph: Graph,
    loaded: Sequence[tuple[Plugin, Backend]],
    options: Mapping[str, Any],
    failures: list[TenonnxError],
    *,
    one: bool,
) -> dict[str, Program]:
    """What backends make of the graph, by name; of the first that can, if ``one`` is enough.

    A stranger gets a copy, so that the next one finds the graph as it was.
    """
    programs: dict[str, Program] = {}
    for plugin, module in loaded:
        try:
            own = graph if plugin.is_ours else copy_graph(graph)
            programs[plugin.name] = _program_of(plugin, module, own, True, options)
        except (UnsupportedOp, NotRepresentable) as error:
            failures.append(error)
        except (Exception, SystemExit) as error:
            if isinstance(error, InvalidCall) and set(options) - {"state"}:
                raise  # what was asked of it is not what it takes
            failures.append(_told(plugin.failure("failed to compile a graph and is skipped", error)))
        if programs and one:
            break
    return programs


def _takes_opaque(backend: Backend) -> bool:
    """Whether a backend may have kernels of ops that no package gives a meaning to."""
    return bool(getattr(backend, "takes_opaque", False))


def _program_of(plugin: Plugin, backend: Backend, graph: Graph, strict: bool, options: Mapping[str, Any]) -> Program:
    what = f"the backend {plugin.name} must take these options"
    check_takes(what, backend.compile, graph, strict=strict, **options)
    with nullcontext() if plugin.is_ours else plugin.guarded("compiling by"):
        program = backend.compile(graph, strict=strict, **options)
    if not callable(program):
        raise TypeError(f"compile returned {type(program).__name__}, which cannot be called")
    if not isinstance(program.state, MutableMapping) or not isinstance(program.backend, str):
        raise TypeError(f"compile returned a {type(program).__name__} whose state or backend is of another type")
    return program if plugin.is_ours else CheckedProgram(program, graph, plugin)


def _passed_over(backend: str, error: BaseException) -> PluginError:
    if isinstance(error, PluginError):  # which names it
        return _told(error)
    return _told(backends()[backend].failure("failed to run a graph and is skipped", error))


def _told(error: PluginError) -> PluginError:
    warnings.warn(PluginWarning(str(error)), stacklevel=3)
    return error


def fall_back(graph: Graph, reason: TenonnxError, state: Mapping[str, str] | None = None) -> Program:
    """``graph`` on numpy, with a ``FallbackWarning`` that says why no faster backend runs it."""
    try:
        program = numpy_backend.compile(graph, state=state)
    except TenonnxError as error:
        raise error from reason
    warnings.warn(FallbackWarning(f"numpy runs the graph: {reason}"), stacklevel=3)
    return program
