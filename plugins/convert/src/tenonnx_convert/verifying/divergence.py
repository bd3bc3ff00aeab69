"""The first value at which two graphs diverge."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from tenonnx.errors import TenonnxError
from tenonnx.graph.dtypes import DType
from tenonnx.graph.graph import Graph
from tenonnx.graph.types import TensorType
from tenonnx.transforms.rewrite import copy_graph
from tenonnx_convert.verifying.value_map import corresponding
from tenonnx_convert.verifying.verification import Divergence
from tenonnx_run.compare import Tolerances, compare_by
from tenonnx_run.compiling import compile_graph

#: Number of inner values compared in one run.
SHOWN = 16


def first_divergence(
    graph: Graph, other: Graph, reference: str, backend: str, feeds: Mapping[str, Any], rules: Tolerances
) -> Divergence | None:
    """The first common value, in the order of ``other``, whose numbers differ, whatever its type.

    Each round compares a few evenly spaced values, and the next one those before the first that differs, to save
    memory. This assumes that a difference propagates to all later values.
    """
    same = corresponding(graph, other)
    producers = {v.name: node for node in other.nodes for v in node.outputs if v is not None and v.name in same}
    names = list(producers)
    result: Divergence | None = None
    while names:
        step = max(1, -(-len(names) // SHOWN))
        looked_at = names[step - 1 :: step]
        try:
            expected = compile_graph(with_outputs(graph, {same[name] for name in looked_at}), reference)(feeds)
            actual = compile_graph(with_outputs(other, looked_at), backend)(as_taken_by(other, feeds))
        except TenonnxError:  # a value that this backend cannot return
            return result
        start = 0
        for place, name in enumerate(looked_at):
            difference = compare_by(rules, actual[name], expected[same[name]])
            if not difference.equal:
                result = Divergence(producers[name].title, name, backend, difference.reason)
                names = names[start : place * step + step - 1]
                break
            start = place * step + step
        else:
            names = names[start:]
    return result


def with_outputs(graph: Graph, names: Collection[str]) -> Graph:
    """A copy of ``graph`` with these computed values as additional outputs."""
    copy = copy_graph(graph)
    shown = {v.name for v in copy.outputs}
    for node in copy.nodes:
        copy.outputs += [v for v in node.outputs if v is not None and v.name in names and v.name not in shown]
    return copy


def as_taken_by(graph: Graph, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Another graph's feeds, with floats cast to the input types of this graph."""
    result = dict(feeds)
    for value in graph.all_inputs:
        kind, given = value.type, getattr(result.get(value.name), "dtype", None)
        if isinstance(kind, TensorType) and kind.dtype.is_float and given is not None and DType.of(given).is_float:
            result[value.name] = result[value.name].astype(kind.dtype.numpy, copy=False)
    return result
