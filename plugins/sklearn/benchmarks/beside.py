"""The same cases by skl2onnx with onnxmltools, each in a process of its own, since one of them ends its process."""

from __future__ import annotations

import multiprocessing
from functools import cache
from typing import Any

import numpy as np

from tenonnx_sklearn.judging import difference
from tenonnx_sklearn.verification import METHODS, expected_of

SECONDS = 60
RENAMED = {"output_label": "label", "output_probability": "probabilities", "transformed_column": "transform"}


def judged_skl2onnx(model: Any, rows: Any) -> str:
    """The verdict on the file that skl2onnx writes, on the outputs that it has."""
    register_boosters()  # before the fork, since it imports much
    context = multiprocessing.get_context("fork")
    verdicts = context.Queue()
    process = context.Process(target=lambda: verdicts.put(_judged(model, rows)))
    process.start()
    process.join(SECONDS)
    if process.is_alive():
        process.kill()
        return "fails: it takes a minute"
    return verdicts.get() if process.exitcode == 0 else "fails: the process ends"


def _judged(model: Any, rows: Any) -> str:
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
    try:
        kept = {}
        for name, array in named.items():
            if hasattr(model, METHODS.get(name, name)):
                expected = expected_of(model, METHODS.get(name, name), rows)
                kept[name] = np.reshape(array, expected.shape)
        return difference(model, rows, kept) if kept else "fails: no output of a known name"
    except (ValueError, TypeError) as error:
        return f"wrong: {error}"


def _converted(model: Any, kinds: list[Any]) -> Any:
    """With probabilities as a matrix, where its converter has that option."""
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
