"""Effects of quantization rounding on outputs.

A number half-way between two quantized values may be rounded up on one backend and down on another, after negligible
float32 differences. The effect on outputs depends on the model, so it is measured: weights and scales are perturbed by
such amounts, and the outputs are compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tenonnx.errors import OutOfTime, TenonnxError
from tenonnx.graph.constants import ArrayConstant
from tenonnx.graph.definitions import in_registry_of_graph
from tenonnx.graph.dtypes import DType
from tenonnx.graph.graph import Graph, Node, Value
from tenonnx.graph.types import TensorType
from tenonnx.op.binding import bind
from tenonnx.op.op import Op
from tenonnx.op.rules import find_trait
from tenonnx.transforms.rewrite import copy_graph
from tenonnx_convert.verifying.precision import typed_graph
from tenonnx_run.compare import Difference, Tolerances, compare_by
from tenonnx_run.compiling import compile_graph
from tenonnx_run.tolerance import distance_of

#: Relative perturbation, at least the error of runtimes with integer arithmetic, which also round a bias to a multiple
#: of input scale times weight scale; the number of runs; and the factor for the measured difference that outputs may
#: have.
NUDGE, RUNS, TIMES = 2.0**-13, 4, 2.0


def outputs_behind_quantization(graph: Graph) -> set[str]:
    """Outputs that depend on ops with quantized and float values, or on ops that may compute in lower precision."""
    typed = typed_graph(graph)
    behind: set[Value] = set()
    for node in typed.nodes:
        inside = (node, *(inner for subgraph in node.subgraphs for inner in subgraph.walk()))
        if any(v in behind for v in node.uses) or any(_rounds(each) for each in inside):
            behind.update(v for v in node.outputs if v is not None)
    return {v.name for v in typed.outputs if v in behind}


def _rounds(node: Node) -> bool:
    values = [v for v in (*node.inputs, *node.outputs) if v is not None]
    return coarseness(node) > 0 or (any(map(_is_quantized, values)) and any(map(_is_float, values)))


@in_registry_of_graph
def moved_by_roundings(
    graph: Graph, feeds: Mapping[str, Any], expected: Mapping[str, Any], unrounded: Graph | None = None
) -> dict[str, float]:
    """Maximum change of each numeric tensor output on numpy when weights and scales are perturbed.

    ``unrounded`` is ``graph`` without some roundings; its outputs count as another perturbation.
    """
    result: dict[str, float] = {}
    if unrounded is not None:
        moved = _distances(compile_graph(unrounded, "numpy")(feeds), expected)
        result = {name: 2 * distance for name, distance in moved.items()}
    for seed in range(RUNS):
        random = np.random.default_rng(seed)
        try:
            results = compile_graph(_nudged(graph, random), "numpy")(
                {name: _nudge(array, NUDGE, random) for name, array in feeds.items()}
            )
        except OutOfTime:
            raise
        except TenonnxError:  # an op may reject a perturbed number
            continue
        for name, distance in _distances(results, expected).items():
            result[name] = max(result.get(name, 0.0), distance)
    return result


def _distances(results: Mapping[str, Any], expected: Mapping[str, Any]) -> dict[str, float]:
    """The maximum absolute difference of each output from the expected one."""
    exact = Tolerances(absolute=0.0, relative=0.0)
    return {name: compare_by(exact, results[name], wanted).absolute for name, wanted in expected.items()}


def compared_by_steps(actual: Any, expected: Any, moved: float, rules: Tolerances) -> tuple[Difference, str]:
    """Compare an output that depends on quantized values; returns the difference and the rule as text."""
    steps = 0
    if isinstance(expected, np.ndarray) and DType.of(expected.dtype).bits <= 8 and expected.dtype.kind != "b":
        steps = 1
    steps = max(steps, int(np.ceil(TIMES * moved)) if moved else 0)
    allowed = TIMES * moved
    floats = rules.tolerance(DType.float32)
    loose = Tolerances(
        rules.accumulation, floats.absolute + allowed, rules.relative, rules.half, steps=steps, numbers=rules.numbers
    )
    how = f"downstream of quantized values, whose rounding changes it by {moved:.3g}"
    return compare_by(loose, actual, expected), how


# ----- nudging ----------------------------------------------------------------------------------------------------


def _nudged(graph: Graph, random: np.random.Generator) -> Graph:
    """A copy with perturbed weights (of at least two axes) and constants that are used with quantized values."""
    copy = copy_graph(graph)
    shares: dict[Value, float] = {}
    for node in copy.walk():
        beside = any(v is not None and _is_quantized(v) for v in (*node.inputs, *node.outputs))
        share = max(coarseness(node), NUDGE)
        for value in node.inputs:
            if value is None or not value.is_constant or not _is_float(value):
                continue
            if beside or share > NUDGE or (value.tensor.rank or 0) > 1:
                shares[value] = max(shares.get(value, 0.0), share)
    for value, share in shares.items():
        assert value.data is not None
        value._replace_fields(data=ArrayConstant(_nudge(value.data.array(), share, random), value.data.type.dtype))
    return copy


def _nudge(array: Any, share: float, random: np.random.Generator) -> Any:
    if not isinstance(array, np.ndarray) or array.dtype == object:
        return array
    dtype = DType.of(array.dtype)
    if not distance_of(dtype) or not dtype.is_float:
        return array
    signs = random.integers(0, 2, array.shape) * 2 - 1
    factor = 1 + signs * max(share, distance_of(dtype))
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(array.astype(np.float64) * factor).astype(array.dtype).reshape(array.shape)


def coarseness(node: Node) -> float:
    """The relative error that an op with these attributes allows, by its trait ``coarseness``; 0 without it."""
    fact = find_trait(node.op, "coarseness") if isinstance(node.op, Op) else None
    if fact is None:
        return 0.0
    _, attributes = bind(node)
    return max(float(shares.get(attributes.get(name), 0.0)) for name, shares in fact.items())


def _is_quantized(value: Value) -> bool:
    kind = value.type
    if not isinstance(kind, TensorType) or kind.dtype in (DType.bool, DType.string):
        return False
    return (kind.dtype.is_integer and kind.dtype.bits <= 16) or (kind.dtype.is_float and kind.dtype.bits <= 8)


def _is_float(value: Value) -> bool:
    return isinstance(value.type, TensorType) and bool(distance_of(value.type.dtype)) and value.type.dtype.is_float
