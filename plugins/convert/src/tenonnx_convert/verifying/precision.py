"""Precision of outputs: bit for bit, within rounding, within tolerance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tenonnx.graph.definitions import definitions, in_registry_of_graph
from tenonnx.graph.dtypes import DType
from tenonnx.graph.graph import Graph, Node, Value
from tenonnx.graph.types import TensorType, Type
from tenonnx.op.binding import bind, foreseeing
from tenonnx.op.graph_inference import infer
from tenonnx.op.op import Op
from tenonnx.op.rules import find_rule
from tenonnx.transforms.rewrite import copy_graph
from tenonnx_convert.verifying.verification import GRADES
from tenonnx_run.compare import Tolerances
from tenonnx_run.tolerance import EXACT, rounding_for, tolerance_for


@in_registry_of_graph
def accumulation(graph: Graph) -> int:
    """Approximate number of roundings behind an output: one for each node of the longest path, plus its longest sum.

    The sum of a weight has one term for each element of an output channel (its first or last axis). The sum of a node
    with computed or fed weights has one term for each product per result.
    """
    depth: dict[Value, int] = {}
    for node in graph.nodes:
        reached = 1 + max((depth.get(v, 0) for v in node.uses), default=0)
        depth.update((v, reached) for v in node.outputs if v is not None)
    terms = [*map(_terms, graph.variables), *map(_products, graph.nodes)]
    return max(depth.values(), default=0) + max(terms, default=1)


def _terms(variable: Value) -> int:
    kind = variable.type
    shape = kind.shape if isinstance(kind, TensorType) else None
    sizes = [d for d in shape or () if isinstance(d, int)]
    if len(sizes) < 2 or not all(sizes):
        return 1
    return math.prod(sizes) // max(sizes[0], sizes[-1])


def _products(node: Node) -> int:
    """Number of products per result element of a node, by the rule ``cost`` of its op, if sizes are known."""
    definitions().load(node.domain)
    rule = find_rule(node.op, "cost") if isinstance(node.op, Op) else None
    kinds = [v.type for v in (*node.inputs, *node.outputs) if v is not None]
    if rule is None or not all(map(_is_sized, kinds)):
        return 1
    inputs, attributes = bind(node)
    with foreseeing(node.title, inputs, attributes):
        products = int(rule(*inputs, **attributes))
    results = max(math.prod(v.tensor.shape) for v in node.outputs if v is not None)  # type: ignore[arg-type]
    return max(1, products // max(1, results))


def _is_sized(kind: Type | None) -> bool:
    return isinstance(kind, TensorType) and kind.shape is not None and all(isinstance(d, int) for d in kind.shape)


def half_precision(graph: Graph) -> DType | None:
    """The half precision in which a graph computes, whatever the types of its outputs are; None if it does not."""
    typed = typed_graph(graph)
    for kind in (DType.bfloat16, DType.float16):
        for node in typed.walk():
            outputs, inputs = ([v for v in group if v is not None] for group in (node.outputs, node.inputs))
            if _has(outputs, kind) and _has([v for v in inputs if not v.is_constant], kind):
                return kind
    return None


def typed_graph(graph: Graph) -> Graph:
    """The graph itself if all types are known, else a copy with inferred types."""
    if not any(v is not None and v.type is None for node in graph.walk() for v in node.outputs):
        return graph
    typed = copy_graph(graph)
    infer(typed, strict=False)
    return typed


def _has(values: Sequence[Value], kind: DType) -> bool:
    return any(isinstance(v.type, TensorType) and v.type.dtype is kind for v in values)


# ----- grades -----------------------------------------------------------------------------------------------------


def grade_of(actual: Any, expected: Any, rules: Tolerances) -> str:
    """Grade of matching contents: equal bits, within rounding of the given depth, or within tolerance."""
    exact, rounding, tolerance, _ = GRADES
    if same_bits(actual, expected):
        return exact
    return rounding if _within_rounding(actual, expected, rules) else tolerance


def same_bits(actual: Any, expected: Any) -> bool:
    """Whether contents are equal, including the sign of zero and the bits of NaN."""
    import numpy as np

    if isinstance(actual, Mapping) and isinstance(expected, Mapping):
        return actual.keys() == expected.keys() and all(same_bits(actual[key], expected[key]) for key in expected)
    if isinstance(actual, list | tuple) and isinstance(expected, list | tuple):
        return len(actual) == len(expected) and all(map(same_bits, actual, expected))
    if actual is None or expected is None:
        return actual is expected
    a, e = np.asarray(actual), np.asarray(expected)
    if a.dtype != e.dtype or a.shape != e.shape:
        return False
    return bool((a == e).all()) if a.dtype.kind in "OUST" else a.tobytes() == e.tobytes()


def _within_rounding(actual: Any, expected: Any, rules: Tolerances) -> bool:
    """Whether another order of rounding explains the difference of floats, relative to the largest number."""
    import numpy as np

    if isinstance(expected, Mapping):
        return all(_within_rounding(actual[key], expected[key], rules) for key in expected)
    if isinstance(expected, list | tuple):
        return all(_within_rounding(a, e, rules) for a, e in zip(actual, expected, strict=True))
    if expected is None:
        return True
    a, e = np.asarray(actual), np.asarray(expected)
    dtype = DType.of(e.dtype)
    if tolerance_for(dtype) is EXACT:
        return same_bits(a, e)
    wide = np.complex128 if dtype.is_complex else np.float64
    a, e = a.astype(wide), e.astype(wide)
    finite = np.isfinite(a) & np.isfinite(e)
    if not finite.any():
        return True
    share = rounding_for(rules.half or dtype, rules.accumulation)
    return bool(np.abs(a[finite] - e[finite]).max() <= share * np.abs(e[finite]).max())
