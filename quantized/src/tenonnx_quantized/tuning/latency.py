"""Measured or tabulated latency of single layers by bits of their weights."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tenonnx.extend import Graph, InvalidCall, Node
from tenonnx.extend.backends import compile_graph
from tenonnx.extend.transforms import extract

Array = np.ndarray[Any, Any]

#: Number of runs, of which the fastest counts, and a time limit in seconds.
_RUNS, _SECONDS = 20, 0.2


class OpTimes:
    """A table of seconds by layer: op, shapes of the input and of the weights, and bits (32: in floating point).

    With a ``path``, the table is loaded from this JSON file if it exists. Missing entries are measured by a backend and
    added. A file may contain times from the machine that will run the model. Use one file per mode, since names do not
    distinguish weight-only quantization from that of weights and activations. Raises ``InvalidCall`` for a file that
    cannot be read or written.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, backend: str = "auto") -> None:
        self.path, self.backend = None if path is None else Path(path), backend
        self.table = {} if self.path is None or not self.path.is_file() else _read(self.path)

    def of(self, node: Node, graph: Graph, x: Array, bits: int) -> float:
        """The seconds of a layer with weights of this number of bits, for an input."""
        weights = node.inputs[1]
        assert weights is not None
        shapes = ["x".join(map(str, shape)) for shape in (x.shape, weights.shape)]
        key = " ".join([node.op_type, *shapes, f"{bits} bits"])
        if key not in self.table:
            self.table[key] = self._measure(node, graph, x)
            self._save()
        return self.table[key]

    def _save(self) -> None:
        if self.path is None:
            return
        try:
            self.path.write_text(json.dumps(self.table, indent=1) + "\n", "utf-8")
        except OSError as error:
            raise InvalidCall(f'cannot write the op times to "{self.path}"', given=str(error)) from error

    def _measure(self, node: Node, graph: Graph, x: Array) -> float:
        given, result = node.inputs[0], next((value for value in node.outputs if value is not None), None)
        assert given is not None
        assert result is not None
        program = compile_graph(extract(graph, [given.name], [result.name]), self.backend)
        feeds = {given.name: x}
        program(feeds)
        times: list[float] = []
        while len(times) < _RUNS and sum(times) < _SECONDS:
            start = time.perf_counter()
            program(feeds)
            times.append(time.perf_counter() - start)
        return min(times)


def _read(path: Path) -> dict[str, float]:
    do = 'give a JSON object such as {"MatMul 1x512 512x512 4 bits": 2.5e-05}, in seconds'
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidCall(f'cannot read the op times in "{path}"', given=str(error), do=do) from error
    if not isinstance(found, Mapping) or not all(
        isinstance(each, int | float) and not isinstance(each, bool) and 0 <= each < float("inf")
        for each in found.values()
    ):
        raise InvalidCall(f'"{path}" is not a table of op times', given=str(found)[:80], do=do)
    return dict(found)
