"""The backend: graphs as programs of JAX, on a device or over a mesh of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tenonnx.extend import Graph, UnsupportedOp
from tenonnx.extend.backends import FallbackProgram, Program, fall_back

if TYPE_CHECKING:
    from jax.sharding import Mesh

__all__ = ["compilations", "compile", "runtime", "speed"]

speed = 80

runtime = "jax"


def compile(
    graph: Graph,
    *,
    state: Mapping[str, str] | None = None,
    device: Any = None,
    devices: int | None = None,
    mesh: Mesh | Mapping[str, int] | None = None,
    sharding: Mapping[str, Sequence[Any]] | None = None,
    strict: bool = False,
) -> Program:
    """Make ``graph`` ready to run on JAX.

    ``device`` is a platform of JAX and a number there, ``"cpu"`` or ``"gpu:1"``, or a ``jax.Device``; JAX's default
    if None. Over several devices, ``mesh`` has axes with sizes, ``{"data": 4, "model": 2}``, and ``sharding`` tells
    by patterns of names how inputs, variables and state are cut, ``{"x": ("data",), "*.weight": (None, "model")}``;
    what none fits is on every device, and so is a feed that cannot be split evenly. Without a ``sharding`` the axis
    "data" cuts the first axis of every input, and "model" the longest axis of every weight that can be cut evenly.
    ``devices`` is how many there are in the mesh, by default one of the axis "data"; where there are processors alone
    and JAX has not begun yet, it makes so many devices of them. A graph that JAX cannot run goes to numpy with a
    ``FallbackWarning``, and so does a call that it refuses. When ``strict`` these raise ``UnsupportedOp`` and
    ``InvalidCall``. Raises ``InvalidCall`` for wrong options.
    """
    from tenonnx_jax import programs

    where = programs.place(graph, state or {}, device, devices, mesh, sharding)
    try:
        program = programs.program(graph, state, where)
    except UnsupportedOp as error:
        if strict:
            raise
        return fall_back(graph, error, state)
    return program if strict else FallbackProgram(program, graph, state)


def compilations() -> int:
    """Number of compilations of graphs by JAX in this process."""
    from tenonnx_jax import programs

    return programs.counts["compiled"]
