"""Selection of a backend: the highest-ranked installed one that accepts the graph, else numpy.

The choice depends only on the graph and the installed packages: nothing is timed, nothing is written. A file that
``TENONNX_BACKEND_CHOICE`` names may set another order; ``tenonnx bench --choose`` writes it.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tenonnx.errors import (
    InvalidCall,
    InvalidModel,
    NotRepresentable,
    PluginError,
    PluginWarning,
    TenonnxError,
    UnsupportedOp,
)
from tenonnx.graph.graph import Graph
from tenonnx.graph.program import Program
from tenonnx.registry.discovery import Plugin, check_takes
from tenonnx.transforms.decompose import refuse_opaque
from tenonnx_run.base import Backend, accepts, backends, has_opaque, is_available
from tenonnx_run.fallback import FallbackProgram, fall_back
from tenonnx_run.installed import program_of
from tenonnx_run.state import check_state

#: The environment variable that names a file with the order in which ``auto`` tries backends.
CHOICE = "TENONNX_BACKEND_CHOICE"


def compile_auto(graph: Graph, strict: bool, options: dict[str, Any]) -> Program:
    """Compile a graph with the first backend that accepts it. Numpy is the last, with a warning unless ``strict``."""
    state = options.get("state")
    if state:
        check_state(graph, state)
    failures: list[TenonnxError] = []
    refused: InvalidCall | None = None
    for plugin, backend in candidates(graph, options, failures):
        try:
            program = program_of(plugin, backend, graph, True, options)
            return program if strict or has_opaque(graph) else FallbackProgram(program, graph, state)
        except (UnsupportedOp, NotRepresentable, InvalidModel) as error:  # the graph is at fault, not the plugin
            failures.append(error)
        except (Exception, SystemExit) as error:
            if isinstance(error, InvalidCall) and set(options) - {"state"}:
                refused = refused or error  # this backend does not take the user's options
            else:
                failures.append(_warned(plugin.failure("failed to compile a graph and is skipped", error)))
    if refused is not None:
        raise refused
    if has_opaque(graph):
        refuse_opaque(graph, "run")
    if not failures:
        from tenonnx_run.numpy import backend as numpy_backend

        return numpy_backend.compile(graph, **options)
    if strict:
        raise failures[-1]
    return fall_back(graph, failures[-1], state)


def candidates(graph: Graph, options: Mapping[str, Any], failures: list[TenonnxError]) -> list[tuple[Plugin, Backend]]:
    """Backends that claim to support the graph, highest rank first; those that take the options, if any does.

    No runtime is imported. Errors of backends that could not be loaded are appended to ``failures``.
    """
    found: list[tuple[Plugin, Backend]] = []
    for plugin in backends().values():
        try:
            backend = plugin.load()
        except PluginError as error:
            failures.append(_warned(error))
            continue
        if is_available(backend) and accepts(backend, graph, trains=bool(options.get("state"))):
            found.append((plugin, backend))
    found = [each for each in found if _takes_options(each[1], graph, options)] or found
    order = chosen_order()
    if order is not None:
        before_numpy = order[: order.index("numpy")] if "numpy" in order else order
        found = [each for each in found if each[0].name in before_numpy]
        return sorted(found, key=lambda each: order.index(each[0].name))
    return sorted(found, key=lambda each: -each[1].speed)


def chosen_order() -> Sequence[str] | None:
    """The order of backends in the file that ``TENONNX_BACKEND_CHOICE`` names; None if it is not set."""
    path = os.environ.get(CHOICE)
    if not path:
        return None
    try:
        order = json.loads(Path(path).read_text("utf-8"))["backends"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidCall(
            f'cannot read the choice of a backend in "{path}"',
            given=f"{type(error).__name__}: {error}",
            do=f"write it by tenonnx bench --choose FILE, or unset {CHOICE}",
        ) from error
    if not isinstance(order, list) or not all(isinstance(name, str) for name in order):
        raise InvalidCall(f'"backends" in "{path}" is not a list of names', given=repr(order)[:80])
    return order


def _takes_options(backend: Backend, graph: Graph, options: Mapping[str, Any]) -> bool:
    """Whether a backend takes these options."""
    try:
        check_takes("", backend.compile, graph, **options)
    except InvalidCall:
        return False
    return True


def _warned(error: PluginError) -> PluginError:
    warnings.warn(PluginWarning(str(error)), stacklevel=3)
    return error
