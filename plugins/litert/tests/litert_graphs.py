"""Helpers that write graphs and run them in LiteRT."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tenonnx as tx
from tenonnx_litert.conversion import builtin_graph
from tenonnx_litert.running import KEY, opened
from tenonnx_litert.state import Signature
from tenonnx_litert.writing import contents


def graph_of(function: Callable[..., Any], *arrays: Any, dims: dict[int, str] | None = None) -> tx.Graph:
    """The graph of a function of values with the types of ``arrays``; ``dims`` names dims of the first one."""
    graph = tx.Graph("g", opsets={"ai.onnx": 21})
    inputs = []
    for place, array in enumerate(arrays):
        names = dims or {} if place == 0 else {}
        shape = tuple(names.get(axis, size) for axis, size in enumerate(array.shape))
        inputs.append(graph.input(f"x{place}", str(array.dtype), shape))
    with graph.building():
        results = function(*inputs)
    for place, value in enumerate(results if isinstance(results, tuple) else (results,)):
        graph.output(f"y{place}", value)
    return graph


def ran(lowered: tx.Graph, source: tx.Graph, folder: Path, arrays: Any, *, reference: bool = False) -> dict[str, Any]:
    """Write a graph of builtin operators and return its outputs in LiteRT."""
    path = folder / "m.tflite"
    path.write_bytes(contents({KEY: Signature(lowered, source)}))
    names = [v.name for v in source.inputs], [v.name for v in source.outputs]
    run = opened(path, *names, reference=reference)
    return run(dict(zip(names[0], arrays, strict=True)))


def check(function: Callable[..., Any], *arrays: Any, folder: Path, dims: dict[int, str] | None = None) -> tx.Graph:
    """Compare a function in LiteRT with numpy; returns the graph of builtin operators."""
    graph = graph_of(function, *arrays, dims=dims)
    lowered = builtin_graph(graph)
    result = ran(lowered, graph, folder, arrays)
    expected = graph.run({v.name: a for v, a in zip(graph.inputs, arrays, strict=True)}, backend="numpy")
    assert_close(result, expected)
    return lowered


def assert_close(found: dict[str, Any], expected: Any) -> None:
    for name, array in expected.items():
        assert found[name].shape == array.shape, name
        assert found[name].dtype == array.dtype, name
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5, err_msg=name)


def operators(graph: tx.Graph) -> list[str]:
    return [node.op_type for node in graph.nodes]
