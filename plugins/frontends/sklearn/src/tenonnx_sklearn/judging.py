"""Verification of an exported file on onnxruntime against its estimator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import tenonnx as tx
from tenonnx_sklearn.boosters import as_estimator
from tenonnx_sklearn.inputs import feeds
from tenonnx_sklearn.verification import METHODS, expected_of

#: Export options to verify: the latest opset of the front end, opset 13, and ``ai.onnx`` only.
WAYS: dict[str, dict[str, Any]] = {"newest": {}, "13": {"opset_version": 13}, "plain": {"domains": ["ai.onnx"]}}


def judge(model: Any, rows: Any, path: Path, opset: int | None = None, **options: Any) -> str:
    """Verdict on an exported file: ``right``, ``refused: why``, ``wrong: where`` or ``fails: why``."""
    return judged(model, rows, path, {"": {"opset_version": opset} if opset else {}}, **options)[""]


def judged(model: Any, rows: Any, path: Path, ways: dict[str, dict[str, Any]], **options: Any) -> dict[str, str]:
    """Verdicts on files exported with each of these options."""
    try:
        graph = tx.load(model, *_examples(rows), verify=False, **options)
    except tx.TenonnxError as error:
        return dict.fromkeys(ways, f"refused: {' '.join(str(error).split())}")
    return {name: _judged_file(as_estimator(model), rows, graph, path, way) for name, way in ways.items()}


def _examples(rows: Any) -> tuple[Any, ...]:
    """Rows as an example, if their types cannot be inferred from the fitted estimator."""
    return (rows,) if isinstance(rows, np.ndarray) and rows.dtype.kind == "O" else ()


def _judged_file(model: Any, rows: Any, graph: tx.Graph, path: Path, way: dict[str, Any]) -> str:
    import onnxruntime

    try:
        tx.export(graph, path, **way)
    except tx.TenonnxError as error:
        return f"refused: {' '.join(str(error).split())}"
    names = [value.name for value in graph.outputs]
    try:
        quiet = onnxruntime.SessionOptions()
        quiet.log_severity_level = 3
        session = onnxruntime.InferenceSession(path.read_bytes(), quiet, providers=["CPUExecutionProvider"])
        fed = feeds(graph, rows)
        found = dict(zip(names, session.run(names, fed), strict=True))
        empty = session.run(names, {name: array[:0] for name, array in fed.items()})
        alone = session.run(names, {name: array[:1] for name, array in fed.items()})
    except Exception as error:
        return f"fails: {' '.join(str(error).split())}"
    if any(len(array) for array in empty) or any(len(array) != 1 for array in alone):
        return "wrong: rows of none, or of one"
    try:
        return difference(model, rows, found)
    except ValueError as error:
        return f"not compared: the estimator does not take the rows: {error}"


def difference(model: Any, rows: Any, found: dict[str, Any]) -> str:
    """Difference between outputs and the estimator's: labels must be equal, numbers within 1e-4."""
    for name, array in found.items():
        expected = expected_of(model, METHODS.get(name, name), rows)
        if array.shape != expected.shape:
            return f"wrong: {name} has shape {array.shape}, not {expected.shape}"
        if expected.size == 0:
            continue
        if expected.dtype.kind == "f":
            same = array == expected  # includes infinities
            gap = np.where(same, 0.0, np.abs(array - expected) / (1 + np.abs(expected)))
            if not np.array_equal(np.isnan(array), np.isnan(expected)) or np.nanmax(gap) > 1e-4:
                return f"wrong: {name} by {np.nanmax(gap):.2g}"
        elif (array != expected).any():
            return f"wrong: {name} of {(array != expected).sum()} in {len(rows)} rows"
    return "right"
