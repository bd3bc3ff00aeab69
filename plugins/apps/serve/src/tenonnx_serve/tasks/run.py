"""A run: statistics of all values of a model, and times of nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tenonnx import Graph, InvalidCall, Program, infer
from tenonnx.extend.checks import with_outputs
from tenonnx.tools import compile_graph, type_of
from tenonnx_cli.tools import complete, measuring_nodes, node_times, read_feeds, write_arrays
from tenonnx_serve.tasks import Tell
from tenonnx_serve.tasks.details import write_array
from tenonnx_serve.tasks.reading import read

#: Number of values computed in one call, to limit memory.
_AT_ONCE = 64

#: Maximum number of elements shown of an output.
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
    """Outputs, and statistics of all values by the keys of their nodes; missing inputs are random."""
    tell(step="Reading")
    graph = read(source, reading).graph
    backend = str(options.get("backend") or "auto")
    given = read_feeds(graph, (), feeds)
    tell(step="Running")
    program, fed, outputs = _run_once(graph, backend, given, options)
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


def compute(
    tell: Tell,
    source: str,
    name: str,
    folder: str,
    options: Mapping[str, Any],
    reading: Mapping[str, Any] | None = None,
    feeds: str | None = None,
) -> dict[str, Any]:
    """One value of a model as a file, computed as by ``run`` with the same options."""
    tell(step="Reading")
    graph = read(source, reading).graph
    wanted, backend = str(options.get("value") or ""), str(options.get("backend") or "auto")
    if wanted not in {value.name for node in graph.nodes for value in node.outputs if value is not None}:
        raise InvalidCall("no node of the model computes this value", given=wanted[:80])
    tell(step="Running")
    _, fed, _ = _run_once(graph, backend, read_feeds(graph, (), feeds), options)
    contents = compile_graph(with_outputs(graph, [wanted]), backend)(fed)[wanted]
    return {"file": write_array(Path(folder), wanted, contents, str(options.get("format") or ".npy"))}


def _run_once(
    graph: Graph, backend: str, given: Mapping[str, Any], options: Mapping[str, Any]
) -> tuple[Program, dict[str, Any], dict[str, Any]]:
    """The program of a backend, with all inputs and the outputs. Missing inputs are random, by the seed."""
    program = compile_graph(graph, backend)
    return (program, *complete(graph, program, given, int(number_of(options, "seed") or 0), {}))


def _statistics(graph: Graph, backend: str, feeds: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Statistics of computed values, by the keys of their nodes and outputs."""
    places = {v.name: (f"n{k}", v) for k, node in enumerate(graph.nodes) for v in node.outputs if v is not None}
    names = list(places)
    result: dict[str, dict[str, Any]] = {}
    for start in range(0, len(names), _AT_ONCE):
        some = names[start : start + _AT_ONCE]
        results = compile_graph(with_outputs(graph, some), backend)(feeds)
        for each in some:
            result.setdefault(places[each][0], {})[each] = stated(results[each])
    return result


def _times(graph: Graph, backend: str, feeds: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Times of nodes, longest first, with the keys of those in the graph; empty if unknown."""
    if backend not in measuring_nodes():
        return []
    keys = {node: f"n{k}" for k, node in enumerate(graph.nodes)}
    return [
        {**each.to_dict(), "key": None if each.node is None else keys[each.node]}
        for each in node_times(graph, feeds, backend)
    ]


def stated(contents: Any) -> dict[str, Any]:
    """The type of contents and, for real numbers, their minimum, maximum, mean and standard deviation."""
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


def text_of(options: Mapping[str, Any], name: str) -> str:
    """The stripped text of an option; empty if it is missing."""
    return str(options.get(name) or "").strip()


def number_of(options: Mapping[str, Any], name: str) -> str:
    """The text of an integer option, or empty. Raises ``InvalidCall`` for other text."""
    text = text_of(options, name)
    if text and not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise InvalidCall(f'"{name}" is not a whole number', given=text[:80])
    return text
