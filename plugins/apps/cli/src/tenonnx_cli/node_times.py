"""Time of each node of a graph on a backend that reports it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from statistics import median
from typing import Any

from tenonnx import Graph, InvalidCall, Node, PluginError
from tenonnx.tools import NumpyProgram, backends

#: Number of measured calls, after warm-up calls.
CALLS = 20

#: Function of a graph, feeds and a number of calls: seconds by node name, for each call.
Measure = Callable[[Graph, Mapping[str, Any], int], list[dict[str, float]]]


@dataclass(frozen=True, slots=True)
class NodeTime:
    """Median ``seconds`` per call of what a backend runs for ``node``.

    ``node`` is None for a kernel with a name of its own, such as several fused nodes.
    """

    name: str
    op: str
    seconds: float
    node: Node | None

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "op": self.op, "seconds": self.seconds, "in_graph": self.node is not None}


def node_times(graph: Graph, feeds: Mapping[str, Any], backend: str, *, calls: int = CALLS) -> list[NodeTime]:
    """The times of the nodes of ``graph``, longest first; kernels of an expanded node are added up.

    Raises ``InvalidCall`` for a backend that does not measure nodes: its module has no ``node_seconds``.
    """
    able = _measuring()
    if backend not in able:
        raise InvalidCall("this backend cannot measure single nodes", given=backend, available=", ".join(able))
    measured = able[backend](graph, feeds, calls)
    known = {node.label: node for node in graph.nodes}
    spent: dict[str, float] = {}
    for name in {name for call in measured for name in call}:
        owner = _owner(name, known)
        spent[owner] = spent.get(owner, 0.0) + median(call.get(name, 0.0) for call in measured)
    found = [
        NodeTime(name, node.op_type if (node := known.get(name)) is not None else "", seconds, node)
        for name, seconds in spent.items()
    ]
    return sorted(found, key=lambda each: -each.seconds)


def measuring_nodes() -> list[str]:
    """The installed backends that measure nodes."""
    return list(_measuring())


def _measuring() -> dict[str, Measure]:
    result: dict[str, Measure] = {"numpy": _numpy_seconds}
    for name, plugin in backends().items():
        with suppress(PluginError):  # a backend that fails to load measures nothing
            function = getattr(plugin.load(), "node_seconds", None)
            if function is not None:
                result[name] = function
    return result


def _numpy_seconds(graph: Graph, feeds: Mapping[str, Any], calls: int) -> list[dict[str, float]]:
    """The seconds of each node by name, for each of ``calls`` calls with the same feeds."""
    program, measured = NumpyProgram(graph), []
    for _ in range(2):  # the second call specializes kernels for these shapes
        program(feeds)
    for _ in range(calls):
        clock = _Clock()
        program(feeds, clock)
        measured.append(clock.spent)
    return measured


class _Clock:
    """Adds up the seconds between steps by node name."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        self._last = time.perf_counter()

    def note(self, step: Any, slots: Any) -> None:
        label = step.node.label
        self.spent[label] = self.spent.get(label, 0.0) + time.perf_counter() - self._last
        self._last = time.perf_counter()


def _owner(name: str, known: Mapping[str, Node]) -> str:
    """The node of the graph to which a name belongs: nodes of an expansion are named after it, with a slash."""
    part = name
    while part not in known and "/" in part:
        part = part.rpartition("/")[0]
    return part if part in known else name
