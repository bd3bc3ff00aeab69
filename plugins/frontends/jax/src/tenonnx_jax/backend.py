"""The backend: graphs as programs of JAX, on a device or a mesh of devices."""

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
    """Compile ``graph`` for JAX.

    ``device`` is a JAX platform with an optional index, ``"cpu"`` or ``"gpu:1"``, or a ``jax.Device``; None is JAX's
    default. For several devices, ``mesh`` maps axes to sizes, ``{"data": 4, "model": 2}``, and ``sharding`` maps
    patterns of names to the mesh axes by which inputs, variables and state are split, ``{"x": ("data",), "*.weight":
    (None, "model")}``. Arrays without a matching pattern are replicated, and so are feeds that cannot be split evenly.
    Without ``sharding`` the axis "data" splits the first axis of every input, and "model" the longest evenly divisible
    axis of every weight. ``devices`` is the number of devices of the mesh, by default all on the axis "data"; on a
    machine with CPUs only, that many CPU devices are created if JAX is not initialized yet. A graph or a call that JAX
    cannot run falls back to numpy with a ``FallbackWarning``. When ``strict``, ``UnsupportedOp`` and ``InvalidCall``
    are raised instead. Raises ``InvalidCall`` for invalid options.
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
