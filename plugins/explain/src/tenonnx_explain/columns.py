"""Dependencies of matrix columns on input features."""

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

#: The features that each column of a matrix depends on.
Columns = list[frozenset[int]]


def features_of_columns(graph: Graph, matrices: Sequence[Value]) -> tuple[Value, list[Array]]:
    """A value x whose columns are the features, and for each matrix, the feature that each column depends on.

    x is a graph input if each column depends on one feature only, for example by scaling, imputation or one-hot
    encoding; else the matrix itself. Raises ``InvalidCall`` if several matrices have no common x.
    """
    for x in graph.inputs:
        if x.rank != 2 or not isinstance(x.shape[1], int):
            continue
        known = column_dependencies(graph, x)
        columns = [known.get(matrix) for matrix in matrices]
        if all(each is not None and all(len(column) <= 1 for column in each) for each in columns):
            return x, [np.array([min(column, default=0) for column in each or ()], np.int64) for each in columns]
    first, width = matrices[0], matrices[0].shape[1]
    if any(matrix is not first for matrix in matrices) or not isinstance(width, int):
        names = ", ".join(dict.fromkeys(matrix.name for matrix in matrices))
        raise InvalidCall("tree ensembles do not read one matrix of features", given=names, do="use kernel-shap")
    return first, [np.arange(width) for _ in matrices]


def column_dependencies(graph: Graph, x: Value) -> dict[Value, Columns]:
    """The features of ``x`` that each column depends on, for all matrices and vectors computed from ``x``.

    A vector counts as one column. Values whose dependencies are unknown, or that mix rows, are missing.
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
                columns = _columns(node, output, place, known)
                if columns is not None:
                    known[output] = columns
    return known


def _columns(node: Node, output: Value, place: int, known: dict[Value, Columns]) -> Columns | None:
    if output.rank is None or output.ndim > 2:
        return None
    width = output.shape[1] if output.ndim == 2 else 1
    if not isinstance(width, int):
        return None
    first = node.inputs[0]
    of_first = known.get(first) if first is not None else None
    if node.op_type == "Concat" and output.ndim == 2 and node.attributes.get("axis") in (1, -1):
        parts: Columns = []
        for value in node.inputs:
            assert value is not None
            parts += known.get(value, [frozenset()] * _width(value))
        return parts if len(parts) == width else None
    if node.op_type in _CHOOSING and of_first is not None and first is not None and first.rank == 2:
        return _selected(node, place, of_first)
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


def _selected(node: Node, place: int, columns: Columns) -> Columns | None:
    """The columns that an op selects from a matrix, found by applying the op to a matrix of column indices."""
    inputs, attributes = bind(node)
    if any(value is not None and not value.is_constant for value in inputs[1:]):
        return None
    first = inputs[0]
    assert first is not None
    rows = np.tile(np.arange(len(columns)), (2, 1)).astype(first.dtype.numpy)
    others = (value if value is None else np.asarray(value) for value in inputs[1:])
    results = known_op(node)(rows, *others, **attributes)
    indices = np.asarray(results[place] if isinstance(results, tuple | list) else results)
    if indices.shape[0] != 2 or not np.array_equal(indices[0], indices[1]):
        return None
    return [columns[int(k)] for k in np.ravel(indices[0])]
