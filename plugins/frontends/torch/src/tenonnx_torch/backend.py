"""The backend: graphs as programs of PyTorch, with state on a device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tenonnx.extend import Graph, UnsupportedOp
from tenonnx.extend.backends import FallbackProgram, Program, ShapeSpecializedProgram, fall_back

__all__ = ["compile", "runtime", "speed"]

#: Behind the runtimes that are made for graphs: node by node each of them is quicker.
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
    """Make ``graph`` ready to run by PyTorch.

    ``device`` is a device of PyTorch, such as ``"cuda"``; state and constants live there. ``compiled`` gives the first
    two kinds of feeds a program of ``torch.compile``, True by its default backend or else that of this name; feeds of
    other shapes run node by node. A program takes arrays of any library that knows DLPack, and gives such of the
    first one that it is fed with, numpy's else: tensors of PyTorch come back on ``device``. Nodes that PyTorch
    has no kernel for (text, 4-bit integers, a few ops) are computed by numpy between the others. A graph that it cannot
    run goes to numpy with a ``FallbackWarning``, and so does a call that it refuses; one that cannot be compiled, as
    numpy computes parts of it or its shapes depend on contents, runs node by node with such a warning. When ``strict``
    these raise ``UnsupportedOp`` and ``InvalidCall``. Raises ``InvalidCall`` for wrong options.
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
