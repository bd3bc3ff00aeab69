"""Graphs made ready to run by a package: what it takes, and what its programs must be."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from contextlib import nullcontext
from typing import Any

from tenonnx.backend.base import Backend, backends, load_backend
from tenonnx.backend.strangers import CheckedProgram
from tenonnx.errors import TenonnxError
from tenonnx.graph.graph import Graph
from tenonnx.graph.program import Program
from tenonnx.op.op import Op
from tenonnx.registry.discovery import Plugin, check_takes
from tenonnx.transforms.decompose import refuse_opaque


def compile_by(name: str, graph: Graph, strict: bool, options: Mapping[str, Any]) -> Program:
    """A graph on the backend of that name. Raises ``InvalidCall`` where none is installed."""
    module, plugin = load_backend(name), backends()[name]
    is_opaque = has_opaque(graph)
    if is_opaque and not takes_opaque(module):
        refuse_opaque(graph, f"run on {name}")
    try:
        return program_of(plugin, module, graph, strict or is_opaque, options)
    except TenonnxError:
        raise
    except (Exception, SystemExit) as error:
        raise plugin.failure("cannot compile a graph", error) from error


def has_opaque(graph: Graph) -> bool:
    """Whether a graph has ops that no package gives a meaning to."""
    return any(not isinstance(node.op, Op) for node in graph.walk())


def takes_opaque(backend: Backend) -> bool:
    """Whether a backend may have kernels of such ops."""
    return bool(getattr(backend, "takes_opaque", False))


def program_of(plugin: Plugin, backend: Backend, graph: Graph, strict: bool, options: Mapping[str, Any]) -> Program:
    """What a backend makes of a graph. Raises ``TypeError`` where that is no program."""
    what = f"the backend {plugin.name} must take these options"
    check_takes(what, backend.compile, graph, strict=strict, **options)
    with nullcontext() if plugin.is_ours else plugin.guarded("compiling by"):
        program = backend.compile(graph, strict=strict, **options)
    if not callable(program):
        raise TypeError(f"compile returned {type(program).__name__}, which cannot be called")
    if not isinstance(program.state, MutableMapping) or not isinstance(program.backend, str):
        raise TypeError(f"compile returned a {type(program).__name__} whose state or backend is of another type")
    return program if plugin.is_ours else CheckedProgram(program, graph, plugin)
