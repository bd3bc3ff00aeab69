"""Features that the columns of a matrix are computed from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tenonnx.extend import Graph, InvalidCall, Node, Value, known_op
from tenonnx.extend.transforms import bind

Array = np.ndarray[Any, Any]

#: Ops that select columns of a matrix.
_CHOOSING = {"Gather", "Slice", "Split", "ArrayFeatureExtractor"}

#: Ops whose output columns depend on several columns of their inputs.
_MIXING = {
    *("MatMul", "Gemm", "Einsum", "Softmax", "LogSoftmax", "Hardmax", "CumSum", "Normalizer", "LpNormalization"),
    *("LayerNormalization", "Transpose", "Reshape", "Gather", "GatherElements", "GatherND", "ScatterElements"),
    *("ScatterND", "TopK", "Pad", "Tile", "Expand"),
}

#: For each column of a matrix the features that it depends on.
Columns = list[frozenset[int]]


def features_of_columns(graph: Graph, matrices: Sequence[Value]) -> tuple[Value, list[Array]]:
    """The value whose columns are the features of the matrices, and for each matrix the feature of each column.

    That is an input of the graph if each column is computed from one feature, for example by scaling, imputing or
    one-hot encoding; else the matrix itself. Raises ``InvalidCall`` where the matrices have no such value in common.
    """
    for x in graph.inputs:
        if x.rank != 2 or not isinstance(x.shape[1], int):
            continue
        known = traced(graph, x)
        found = [known.get(matrix) for matrix in matrices]
        if all(each is not None and all(len(column) <= 1 for column in each) for each in found):
            return x, [np.array([min(column, default=0) for column in each or ()], np.int64) for each in found]
    first, width = matrices[0], matrices[0].shape[1]
    if any(matrix is not first for matrix in matrices) or not isinstance(width, int):
        names = ", ".join(dict.fromkeys(matrix.name for matrix in matrices))
        raise InvalidCall("tree ensembles do not read one matrix of features", given=names, do="use kernel-shap")
    return first, [np.arange(width) for _ in matrices]


def traced(graph: Graph, x: Value) -> dict[Value, Columns]:
    """The matrices and vectors of rows that are computed from ``x``, with what their columns depend on.

    A vector counts as one column. Values that mix rows, or that no rule here knows, are left out.
    """
    known: dict[Value, Columns] = {x: [frozenset((k,)) for k in range(_width(x))]}
    dependent = {x}
    for node in graph.nodes:
        if not dependent.intersection(node.uses):
            continue
        outputs = [value for value in node.outputs if value is not None]
        dependent.update(outputs)
        read = [value for value in node.uses if value in dependent]
        if not node.subgraphs and all(value in known for value in read):
            for place, output in enumerate(outputs):
                found = _columns(node, output, place, known)
                if found is not None:
                    known[output] = found
    return known


def _columns(node: Node, output: Value, place: int, known: dict[Value, Columns]) -> Columns | None:
    if output.rank is None or output.ndim > 2:
        return None
    width = output.shape[1] if output.ndim == 2 else 1
    if not isinstance(width, int):
        return None
    first = node.inputs[0]
    given = known.get(first) if first is not None else None
    if node.op_type == "Concat" and output.ndim == 2 and node.attributes.get("axis") in (1, -1):
        parts: Columns = []
        for value in node.inputs:
            assert value is not None
            parts += known.get(value, [frozenset()] * _width(value))
        return parts if len(parts) == width else None
    if node.op_type in _CHOOSING and given is not None and first is not None and first.rank == 2:
        return _chosen(node, place, given)
    read = [(value, known[value]) for value in node.inputs if value in known]
    everything = frozenset().union(*(column for _, columns in read for column in columns))
    if width == 1 or all(len(columns) == 1 for _, columns in read):
        return [everything] * width
    if node.op_type not in _MIXING and all(len(columns) in (1, width) for _, columns in read):
        return [
            frozenset().union(*(columns[k if len(columns) == width else 0] for _, columns in read))
            for k in range(width)
        ]
    return None


def _width(value: Value) -> int:
    return int(value.shape[1]) if value.rank == 2 and isinstance(value.shape[1], int) else 0


def _chosen(node: Node, place: int, given: Columns) -> Columns | None:
    """The columns that an op selects from a matrix, found by applying it to a matrix of column numbers."""
    inputs, attributes = bind(node)
    if any(value is not None and not value.is_constant for value in inputs[1:]):
        return None
    first = inputs[0]
    assert first is not None
    rows = np.tile(np.arange(len(given)), (2, 1)).astype(first.dtype.numpy)
    found = known_op(node)(rows, *(value if value is None else np.asarray(value) for value in inputs[1:]), **attributes)
    taken = np.asarray(found[place] if isinstance(found, tuple | list) else found)
    if taken.shape[0] != 2 or not np.array_equal(taken[0], taken[1]):
        return None
    return [given[int(k)] for k in np.ravel(taken[0])]
