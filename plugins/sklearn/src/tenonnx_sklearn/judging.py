"""What becomes of an estimator as a file on onnxruntime, judged by the estimator itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import tenonnx as tx
from tenonnx_sklearn.verification import METHODS, expected_of


def judge(model: Any, rows: Any, path: Path, opset: int | None = None, **options: Any) -> str:
    """``right``, ``refused: why``, ``wrong: where`` or ``fails: why`` of the file that tenonnx writes."""
    import onnxruntime

    try:
        graph = tx.load(model, verify=False, **options)
        if opset:
            tx.export(graph, path, opset_version=opset)
        else:
            tx.export(graph, path)
    except tx.TenonnxError as error:
        return f"refused: {' '.join(str(error).split())}"
    names = [value.name for value in graph.outputs]
    try:
        session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
        feed = session.get_inputs()[0].name
        found = dict(zip(names, session.run(names, {feed: rows}), strict=True))
        empty = session.run(names, {feed: rows[:0]})
    except Exception as error:
        return f"fails: {' '.join(str(error).split())}"
    if any(len(array) for array in empty):
        return "wrong: rows of none"
    try:
        return difference(model, rows, found)
    except ValueError as error:
        return f"not compared: the estimator does not take the rows: {error}"


def difference(model: Any, rows: Any, found: dict[str, Any]) -> str:
    """Where the outputs lie apart from the estimator's: labels must be equal, numbers within 1e-4."""
    for name, array in found.items():
        expected = expected_of(model, METHODS.get(name, name), rows)
        if array.shape != expected.shape:
            return f"wrong: {name} has shape {array.shape}, not {expected.shape}"
        if expected.size == 0:
            continue
        if expected.dtype.kind == "f":
            gap = np.abs(array - expected) / (1 + np.abs(expected))
            if not np.array_equal(np.isnan(array), np.isnan(expected)) or np.nanmax(gap) > 1e-4:
                return f"wrong: {name} by {np.nanmax(gap):.2g}"
        elif (array != expected).any():
            return f"wrong: {name} of {(array != expected).sum()} in {len(rows)} rows"
    return "right"


def judged_skl2onnx(model: Any, rows: Any, opset: int | None = None) -> str:
    """The same of the file that skl2onnx writes."""
    import onnxruntime
    import skl2onnx
    from skl2onnx.common.data_types import FloatTensorType

    kinds = [("X", FloatTensorType([None, rows.shape[1]]))]
    try:
        found = skl2onnx.convert_sklearn(
            model, initial_types=kinds, target_opset=opset, options={id(model): {"zipmap": False}}
            if hasattr(model, "predict_proba") else None,
        )  # fmt: skip
    except BaseException as error:
        return f"refused: {type(error).__name__}"
    try:
        session = onnxruntime.InferenceSession(found.SerializeToString(), providers=["CPUExecutionProvider"])
        outputs = [output.name for output in session.get_outputs()]
        arrays = dict(zip(outputs, session.run(None, {"X": rows}), strict=True))
        session.run(None, {"X": rows[:0]})
    except BaseException as error:
        return f"fails: {type(error).__name__}"
    renamed = {"output_label": "label", "output_probability": "probabilities", "transformed_column": "transform"}
    named = {renamed.get(name, name): array for name, array in arrays.items()}
    if not hasattr(model, "predict") and "variable" in named:
        named["transform"] = named.pop("variable")
    kept = {
        name: np.reshape(array, expected_of(model, METHODS.get(name, name), rows).shape)
        for name, array in named.items()
        if hasattr(model, METHODS.get(name, name))
    }
    return difference(model, rows, kept)
