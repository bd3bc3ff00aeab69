"""The same cases converted by skl2onnx with onnxmltools, in one process each, and by hummingbird."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from functools import cache
from queue import Empty
from typing import Any

import numpy as np

from tenonnx_sklearn.judging import difference
from tenonnx_sklearn.verification import METHODS, expected_of

SECONDS = 30
RENAMED = {"output_label": "label", "output_probability": "probabilities", "transformed_column": "transform"}


def judged_skl2onnx(model: Any, rows: Any) -> str:
    """Verdict on the file from skl2onnx, for the outputs that it has."""
    register_boosters()  # before forking, since the imports are slow
    return _apart(_of_skl2onnx, model, rows)


def judged_hummingbird(model: Any, rows: Any) -> str:
    """Verdict on the PyTorch module from hummingbird, for the methods that it has."""
    return _verdict(_of_hummingbird(model, rows), model, rows)


def _apart(run: Callable[[Any, Any], Any], model: Any, rows: Any) -> str:
    """Verdict on the result of ``run`` in a subprocess: arrays by name, or a verdict.

    The estimator runs in this process, since OpenMP threads do not survive a fork.
    """
    context = multiprocessing.get_context("fork")
    found = context.Queue()
    process = context.Process(target=lambda: found.put(run(model, rows)))
    process.start()
    try:
        given = found.get(timeout=SECONDS)
    except Empty:
        process.kill()
        return "fails: the process ends, or takes long"
    return _verdict(given, model, rows)


def _verdict(given: Any, model: Any, rows: Any) -> str:
    if isinstance(given, str):
        return given
    try:
        kept = {}
        for name, array in given.items():
            if hasattr(model, METHODS.get(name, name)):
                expected = expected_of(model, METHODS.get(name, name), rows)
                kept[name] = np.reshape(array, expected.shape)
        return difference(model, rows, kept) if kept else "fails: no output of a known name"
    except (ValueError, TypeError) as error:
        return f"wrong: {error}"


def _of_hummingbird(model: Any, rows: Any) -> Any:
    import torch
    from hummingbird.ml import convert

    torch.set_num_threads(1)
    try:
        converted = convert(model, "torch", rows)
    except BaseException as error:
        return f"refused: {type(error).__name__}: {error}"
    methods = [name for name in ("predict", "predict_proba", "transform") if hasattr(model, name)]
    methods = methods or [name for name in ("decision_function", "score_samples") if hasattr(model, name)]
    try:
        result = {name: np.asarray(getattr(converted, name)(rows)) for name in methods if hasattr(converted, name)}
        empty = [name for name in result if len(getattr(converted, name)(rows[:0]))]
        return f"wrong: {empty[0]} of no rows" if empty else result
    except BaseException as error:
        return f"fails: {type(error).__name__}: {error}"


def _of_skl2onnx(model: Any, rows: Any) -> Any:
    import onnxruntime

    kinds, fed = _inputs(rows)
    try:
        found = _converted(model, kinds)
    except BaseException as error:
        return f"refused: {type(error).__name__}: {error}"
    try:
        quiet = onnxruntime.SessionOptions()
        quiet.log_severity_level = 4
        session = onnxruntime.InferenceSession(found.SerializeToString(), quiet, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        arrays = dict(zip(names, session.run(None, fed), strict=True))
        session.run(None, {name: array[:0] for name, array in fed.items()})
    except BaseException as error:
        return f"fails: {error}"
    named = {RENAMED.get(name, name): array for name, array in arrays.items()}
    if not hasattr(model, "predict") and "variable" in named:
        named["transform"] = named.pop("variable")
    return named


def _converted(model: Any, kinds: list[Any]) -> Any:
    """Convert with probabilities as a matrix, if the converter has that option."""
    import skl2onnx

    versions = {"": 18, "ai.onnx.ml": 3}
    for options in ({id(model): {"zipmap": False}}, None):
        try:
            return skl2onnx.convert_sklearn(model, initial_types=kinds, options=options, target_opset=versions)
        except NameError:
            continue
    raise NameError("zipmap")


def _inputs(rows: Any) -> tuple[list[Any], dict[str, Any]]:
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType

    if isinstance(rows, list):
        return [("X", StringTensorType([None, 1]))], {"X": np.asarray(rows, object).reshape(-1, 1)}
    if rows.dtype.kind != "O":
        return [("X", FloatTensorType([None, rows.shape[1]]))], {"X": rows}
    columns = {f"x{k}": rows[:, k : k + 1] for k in range(rows.shape[1])}
    texts = {name: isinstance(column[0, 0], str) for name, column in columns.items()}
    kinds = [(name, (StringTensorType if texts[name] else FloatTensorType)([None, 1])) for name in columns]
    return kinds, {name: column if texts[name] else column.astype(np.float32) for name, column in columns.items()}


@cache
def register_boosters() -> None:
    from onnxmltools.convert.lightgbm.operator_converters.LightGbm import convert_lightgbm
    from onnxmltools.convert.xgboost.operator_converters.XGBoost import convert_xgboost
    from skl2onnx import update_registered_converter
    from skl2onnx.common.shape_calculator import (
        calculate_linear_classifier_output_shapes,
        calculate_linear_regressor_output_shapes,
    )

    shapes = {
        "Classifier": calculate_linear_classifier_output_shapes,
        "Regressor": calculate_linear_regressor_output_shapes,
    }
    for package, prefix, converter in (("lightgbm", "LGBM", convert_lightgbm), ("xgboost", "XGB", convert_xgboost)):
        for kind, shape in shapes.items():
            module = __import__(package)
            options = {"nocl": [True, False], "zipmap": [True, False, "columns"]} if kind == "Classifier" else {}
            if package == "lightgbm" and kind == "Regressor":
                options = {"split": None}
            update_registered_converter(
                getattr(module, f"{prefix}{kind}"), f"{prefix}{kind}", shape, converter, options=options
            )
