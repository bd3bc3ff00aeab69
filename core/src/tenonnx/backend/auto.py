"""The fastest installed backend for a graph, numpy where none runs it."""

from __future__ import annotations

import functools
import math
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from tenonnx.backend.base import Backend, backends
from tenonnx.backend.choice import Contest, recalled, remember
from tenonnx.backend.installed import has_opaque, program_of, takes_opaque
from tenonnx.backend.numpy import backend as numpy_backend
from tenonnx.backend.rescue import RescuedProgram, fall_back
from tenonnx.backend.state import check_state
from tenonnx.backend.strangers import CheckedProgram, is_comparable
from tenonnx.errors import InvalidCall, NotRepresentable, PluginError, PluginWarning, TenonnxError, UnsupportedOp
from tenonnx.graph.graph import Graph
from tenonnx.graph.program import Program
from tenonnx.registry.discovery import Plugin, check_takes
from tenonnx.transforms.decompose import refuse_opaque
from tenonnx.transforms.rewrite import copy_graph
from tenonnx.transforms.summary import weight_bytes

#: Graphs with more bytes of variables run on the first backend that takes them.
LARGEST_COMPARED = 1 << 30


def compile_fastest(graph: Graph, strict: bool, options: dict[str, Any]) -> Program:
    """A graph on the backend that is measured to be the fastest: the last of what fails is the reason for numpy."""
    is_opaque = has_opaque(graph)
    if options.get("state"):
        check_state(graph, options["state"])
    failures: list[TenonnxError] = []
    loaded = [found for found in _loaded(failures) if not is_opaque or takes_opaque(found[1])]
    loaded = [found for found in loaded if _takes(found[1], graph, options)] or loaded
    program = _fastest_of(loaded, graph, options, failures)
    if program is not None:
        return program if strict or is_opaque else RescuedProgram(program, graph, options.get("state"))
    if is_opaque:
        refuse_opaque(graph, "run")
    if not failures:
        return numpy_backend.compile(graph, **options)
    if strict:
        raise failures[-1]
    return fall_back(graph, failures[-1], options.get("state"))


def _fastest_of(
    loaded: Sequence[tuple[Plugin, Backend]], graph: Graph, options: dict[str, Any], failures: list[TenonnxError]
) -> Program | None:
    """The program of the backend that was measured to be the fastest, or one that finds out which it is."""
    versions = {plugin.name: plugin.source for plugin, _ in loaded}
    seconds = recalled(graph, versions, **options) if len(loaded) > 1 else {}
    is_large = weight_bytes(graph) > LARGEST_COMPARED

    def rank(found: tuple[Plugin, Backend]) -> tuple[float, bool, float]:
        plugin, backend = found
        return seconds.get(plugin.name, math.inf), is_large and not plugin.is_ours, -backend.speed

    ranked = sorted(loaded, key=rank)
    quick = [found for found in ranked if found[0].name in seconds or not _is_slow_to_import(found[1])]
    slow = [found for found in ranked if found not in quick]
    programs = _programs(graph, quick, options, failures, one=bool(seconds) or is_large)
    later = None
    if not programs:
        programs = _programs(graph, slow, options, failures, one=is_large)
    elif slow and options.get("state") and not seconds and not is_large:
        later = functools.partial(_programs, graph, slow, options, [], one=False)
    unproven = {n: p for n, p in programs.items() if isinstance(p, CheckedProgram) and n not in seconds}
    if len(programs) < 2 and not unproven and not later:
        return next(iter(programs.values()), None)
    reference = functools.partial(numpy_backend.compile, graph, state=options.get("state"))
    return Contest(
        programs, [value.name for value in graph.outputs],
        functools.partial(remember, graph=graph, versions=versions, **options), _passed_over,
        unproven, reference if is_comparable(graph) else None, later,
    )  # fmt: skip


def _takes(backend: Backend, graph: Graph, options: Mapping[str, Any]) -> bool:
    """Whether a backend has these options."""
    try:
        check_takes("", backend.compile, graph, **options)
    except InvalidCall:
        return False
    return True


def _is_slow_to_import(backend: Backend) -> bool:
    """Whether a backend would import a library for which everyone would have to wait."""
    library = getattr(backend, "library", None)
    return library is not None and library not in sys.modules


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
    refused: InvalidCall | None = None
    for plugin, module in loaded:
        try:
            own = graph if plugin.is_ours else copy_graph(graph)
            programs[plugin.name] = program_of(plugin, module, own, True, options)
        except (UnsupportedOp, NotRepresentable) as error:
            failures.append(error)
        except (Exception, SystemExit) as error:
            if isinstance(error, InvalidCall) and set(options) - {"state"}:
                refused = refused or error  # what was asked of it is not what it takes
            else:
                failures.append(_told(plugin.failure("failed to compile a graph and is skipped", error)))
        if programs and one:
            break
    if refused and not programs:
        raise refused
    return programs


def _passed_over(backend: str, error: BaseException) -> PluginError:
    if isinstance(error, PluginError):  # which names it
        return _told(error)
    return _told(backends()[backend].failure("failed to run a graph and is skipped", error))


def _told(error: PluginError) -> PluginError:
    warnings.warn(PluginWarning(str(error)), stacklevel=3)
    return error
