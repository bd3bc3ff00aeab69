"""The backend: graphs as programs of PyTorch, with state on a device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tenonnx.extend import Graph, UnsupportedOp
from tenonnx.extend.backends import FallbackProgram, Program, ShapeSpecializedProgram, fall_back

__all__ = ["compile", "runtime", "speed"]

#: Slower than dedicated ONNX runtimes, which have less overhead per node.
speed = 50

runtime = "torch"


def compile(
    graph: Graph,
    *,
    state: Mapping[str, str] | None = None,
    device: Any = "cpu",
    compiled: bool | str = False,
    strict: bool = False,
) -> Program:
    """Compile ``graph`` for PyTorch.

    ``device`` is a PyTorch device, such as ``"cuda"``, for state and constants. ``compiled`` runs the first two kinds
    of feeds through ``torch.compile``, with its default backend for True, or a backend by name; feeds of other shapes
    run node by node. A program accepts arrays of any library with DLPack and returns arrays of the first such library
    among the feeds, else of numpy; PyTorch tensors are returned on ``device``. Nodes without a PyTorch kernel (strings,
    4-bit integers, a few ops) are computed by numpy. A graph or a call that PyTorch cannot run falls back to numpy with
    a ``FallbackWarning``. A graph that cannot be compiled, because numpy computes parts of it or shapes depend on
    contents, runs node by node with such a warning. When ``strict``, ``UnsupportedOp`` and ``InvalidCall`` are raised
    instead. Raises ``InvalidCall`` for invalid options.
    """
    from tenonnx_torch import arrays, running

    settings = running.Settings.of(device, compiled, strict)
    try:
        program = ShapeSpecializedProgram(
            graph, lambda each, names: running.program(each, names, settings), state, checking=arrays.TensorFeeds
        )
        if not program.is_made:
            running.check_ops(graph)
    except UnsupportedOp as error:
        if strict:
            raise
        return fall_back(graph, error, state)
    return program if strict else FallbackProgram(program, graph, state)
