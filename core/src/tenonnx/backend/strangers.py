"""Programs of backends that others publish: what they give is held against the graph, and against numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tenonnx.backend.wrapped import WrappedProgram
from tenonnx.checks.compare import compare
from tenonnx.checks.tolerance import Tolerance, tolerance_for
from tenonnx.errors import PluginError, TenonnxError
from tenonnx.graph.dtypes import DType
from tenonnx.graph.graph import Graph, Value
from tenonnx.graph.program import Program
from tenonnx.graph.types import TensorType
from tenonnx.op.op import Op
from tenonnx.registry.discovery import Plugin

#: How far a backend may be from numpy, as a part of the largest number: some compute in shorter formats.
ALLOWED = 1e-3


class CheckedProgram(WrappedProgram):
    """A program of a stranger. Raises ``PluginError`` where a call fails, or gives what the graph does not declare."""

    def __init__(self, program: Program, graph: Graph, plugin: Plugin) -> None:
        super().__init__(program)
        self._plugin = plugin
        self._inputs, self._outputs = list(graph.all_inputs), list(graph.outputs)

    @property
    def backend(self) -> str:
        return self._plugin.name

    def __call__(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        try:
            results = self._program(feeds)
            problem = undeclared(results, self._outputs, sizes_of(self._inputs, feeds))
        except (TenonnxError, KeyboardInterrupt):
            raise
        except BaseException as error:  # exits, too
            raise self._plugin.failure("cannot run a graph", error) from error
        if problem:
            raise self.wrong(problem)
        return results

    def wrong(self, problem: str) -> PluginError:
        """The error of a program that gives something else than it must."""
        return PluginError(
            f'plugin "{self._plugin.name}" of {self._plugin.source} must give what the graph computes',
            given=problem,
            do=f"leave it out with TENONNX_PLUGINS=-{self._plugin.distribution}",
        )


def sizes_of(inputs: Sequence[Value], feeds: Mapping[str, Any]) -> dict[str, int]:
    """What the symbols of dims of inputs are for these feeds."""
    sizes: dict[str, int] = {}
    for value in inputs:
        declared = value.type.shape if isinstance(value.type, TensorType) else None
        given = getattr(feeds.get(value.name), "shape", ()) if isinstance(feeds, Mapping) else ()
        sizes |= {str(dim): size for dim, size in zip(declared or (), given, strict=False) if dim is not None}
    return sizes


def undeclared(results: Any, outputs: Sequence[Value], sizes: Mapping[str, int]) -> str:
    """What the results of a program have that the outputs of the graph have not; empty where they agree."""
    names = sorted(value.name for value in outputs)
    if not isinstance(results, Mapping):
        return f"{type(results).__name__}, which is no mapping from names of outputs"
    if sorted(results) != names:
        return f"it gives the outputs {sorted(results)}, and the graph has {names}"
    for value in outputs:
        kind = value.type
        if not isinstance(kind, TensorType):
            continue
        found = results[value.name]
        if not isinstance(found, np.ndarray | np.generic):
            return f'{type(found).__name__} for output "{value.name}", which is {kind}'
        strings = kind.dtype is DType.string and found.dtype.kind in "OUT"
        dims = [sizes.get(str(dim)) for dim in kind.shape or ()]
        fixed = [dim if isinstance(dim, int) else size for dim, size in zip(kind.shape or (), dims, strict=True)]
        agrees = kind.shape is None or (
            len(fixed) == found.ndim and all(a in (None, b) for a, b in zip(fixed, found.shape, strict=True))
        )
        if not agrees or not (strings or found.dtype == kind.dtype.numpy):
            return f'{found.dtype} of shape {found.shape} for output "{value.name}", which is {kind}'
    return ""


def differing(found: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    """Where results are not those of numpy, but for rounding; empty where they are."""
    for name, numbers in expected.items():
        difference = compare(found[name], numbers, tolerance=_tolerance(numbers))
        if not difference.equal:
            return f'output "{name}" differs from that of numpy: {difference.reason}'
    return ""


def _tolerance(expected: Any) -> Tolerance | None:
    """The numbers of one tensor may be as far from numpy's as the largest of them allows."""
    if not isinstance(expected, np.ndarray) or expected.dtype.kind not in "fV" or not expected.size:
        return None
    allowed = max(ALLOWED, tolerance_for(DType.of(expected.dtype)).relative)
    with np.errstate(all="ignore"):
        sizes = np.abs(expected.astype(np.float64))
    largest = float(np.where(np.isfinite(sizes), sizes, 0).max())
    return Tolerance(allowed * largest + 1e-6, allowed, "backends may compute in lower precision")


def is_comparable(graph: Graph) -> bool:
    """Whether numpy computes what any other backend must: nothing is drawn at random, and every op has a meaning."""
    return all(isinstance(node.op, Op) and node.op.pure for node in graph.walk())
