"""A run: what every value of a model holds, in numbers, and how long nodes take."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tenonnx import Graph, InvalidCall, infer
from tenonnx.extend.checks import with_outputs
from tenonnx.tools import backends, compile_graph, type_of
from tenonnx_cli.tools import complete, measuring_nodes, node_times, read_feeds, write_arrays
from tenonnx_serve.tasks import Tell
from tenonnx_serve.tasks.reading import read

#: Values that are computed in one call, so that few are held at a time.
_AT_ONCE = 64

#: Elements of an output that are shown.
_SHOWN = 8


def run(
    tell: Tell,
    source: str,
    name: str,
    folder: str,
    options: Mapping[str, Any],
    reading: Mapping[str, Any] | None = None,
    feeds: str | None = None,
) -> dict[str, Any]:
    """Outputs, and statistics of every value, by the key of its node; inputs that are not given are made up."""
    tell(step="Reading")
    graph = read(source, reading).graph
    backend = str(options.get("backend") or "auto")
    known = ["auto", "numpy", *backends()]
    if backend not in known:
        raise InvalidCall("a model runs on a backend that is installed", given=backend[:80], available=", ".join(known))
    given = read_feeds(graph, (), feeds)
    tell(step="Running")
    program = compile_graph(graph, backend)
    fed, outputs = complete(graph, program, given, int(options.get("seed") or 0), {})
    infer(graph, strict=False)
    tell(step="Looking at every value")
    values = _statistics(graph, backend, fed)
    tell(step="Timing nodes")
    times = _times(graph, program.backend, fed)
    written = Path(folder) / "outputs.npz"
    write_arrays(str(written), outputs)
    return {
        "backend": program.backend,
        "inputs": {each: {**stated(contents), "given": each in given} for each, contents in fed.items()},
        "outputs": {each: {**stated(contents), "first": _first(contents)} for each, contents in outputs.items()},
        "values": values,
        "times": times,
        "file": written.name,
    }


def _statistics(graph: Graph, backend: str, feeds: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What the values that nodes compute hold, by the keys of the nodes and their outputs."""
    places = {v.name: (f"n{k}", v) for k, node in enumerate(graph.nodes) for v in node.outputs if v is not None}
    names = list(places)
    found: dict[str, dict[str, Any]] = {}
    for start in range(0, len(names), _AT_ONCE):
        some = names[start : start + _AT_ONCE]
        results = compile_graph(with_outputs(graph, some), backend)(feeds)
        for each in some:
            found.setdefault(places[each][0], {})[each] = stated(results[each])
    return found


def _times(graph: Graph, backend: str, feeds: Mapping[str, Any]) -> list[dict[str, Any]]:
    """How long nodes take, the longest first, with the keys of those that are in the graph; none where nobody knows."""
    if backend not in measuring_nodes():
        return []
    keys = {node: f"n{k}" for k, node in enumerate(graph.nodes)}
    return [
        {**each.to_json(), "key": None if each.node is None else keys[each.node]}
        for each in node_times(graph, feeds, backend)
    ]


def stated(contents: Any) -> dict[str, Any]:
    """The type of contents and, of real numbers, their smallest, largest, mean and spread."""
    said: dict[str, Any] = {"type": str(type_of(contents) or type(contents).__name__)}
    if not isinstance(contents, np.ndarray) or contents.dtype.kind in "OSUc" or not contents.size:
        return said
    numbers = contents.astype(np.float64)
    finite = numbers[np.isfinite(numbers)]
    said["not_finite"] = int(numbers.size - finite.size)
    if finite.size:
        about = {"min": finite.min(), "max": finite.max(), "mean": finite.mean(), "deviation": finite.std()}
        said |= {name: float(number) for name, number in about.items() if math.isfinite(number)}
        said["zeros"] = float((finite == 0).mean())
    return said


def _first(contents: Any) -> str:
    if not isinstance(contents, np.ndarray):
        return str(contents)[:200]
    shown = np.array2string(contents.reshape(-1)[:_SHOWN], separator=", ")
    return f"{shown[:-1]}, …]" if contents.size > _SHOWN else shown
