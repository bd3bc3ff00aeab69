"""Traces of node counts during a simplification, in the format of ``chrome://tracing``, and their plot."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import tenonnx as tx
from tenonnx.extend import InvalidCall


class Trace:
    """Trace events of a simplification: its duration, and the node count before it and after each round."""

    def __init__(self, graph: tx.Graph) -> None:
        self.begin = time.perf_counter()
        self.events: list[dict[str, Any]] = []
        self.count("Initial", graph)

    def count(self, loop: str, graph: tx.Graph) -> None:
        nodes = sum(1 for _ in graph.walk())
        self.events.append(
            {"name": "NodeCount", "ph": "C", "ts": self._now(), "pid": 1, "args": {"loop": loop, "node_count": nodes}}
        )

    def observe(self, graph: tx.Graph) -> None:
        """Count the nodes after a round."""
        self.count("Optimize", graph)

    def write(self, path: str | os.PathLike[str]) -> None:
        span = {"name": "Simplify", "ph": "X", "ts": 0, "dur": self._now(), "pid": 1, "tid": 1}
        Path(path).write_text(json.dumps({"traceEvents": [span, *self.events]}))

    def _now(self) -> float:
        return (time.perf_counter() - self.begin) * 1e6


def load_node_counts(trace_path: str | os.PathLike[str]) -> dict[str, list[int]]:
    """Read the node counts of each round from a trace, by loop. Raises ``InvalidCall`` for another file."""
    counts: dict[str, list[int]] = {}
    try:
        for event in json.loads(Path(trace_path).read_text())["traceEvents"]:
            if event.get("name") == "NodeCount":
                counts.setdefault(event["args"]["loop"], []).append(int(event["args"]["node_count"]))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        given = f"{type(error).__name__}: {error}"[:200]
        raise InvalidCall(f'"{os.fspath(trace_path)}" is not a trace of a simplification', given=given) from error
    return counts


def plot_node_reduction(trace_path: str | os.PathLike[str], out_path: str | os.PathLike[str] | None = None) -> str:
    """Plot the node counts of a trace with matplotlib, by default to ``TRACE_node_reduction.png``; returns the path."""
    from matplotlib.figure import Figure

    written = os.fspath(out_path or f"{os.fspath(trace_path)}_node_reduction.png")
    figure = Figure()
    axes = figure.subplots()
    for loop, counts in load_node_counts(trace_path).items():
        axes.plot(counts, marker="o", label=loop)
    axes.set_xlabel("round")
    axes.set_ylabel("nodes")
    axes.legend()
    figure.savefig(written)
    return written
