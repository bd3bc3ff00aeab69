"""The front end: ``tx.load(pipeline)`` gives the graph that a fitted estimator computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tenonnx_standard as ops
from tenonnx.extend import DType, Graph, InvalidCall, Registry, Value
from tenonnx.extend.checks import Verification
from tenonnx.extend.transforms import prune
from tenonnx_sklearn.conversion import convert, refusal
from tenonnx_sklearn.verification import refuse_difference, verify_against

NAMES = {"predict_proba": "probabilities"}


def read(
    model: Any,
    *examples: Any,
    registry: Registry | None = None,
    inputs: str = "matrix",
    dtype: str = "float32",
    outputs: Sequence[str] | None = None,
    verify: bool = True,
) -> Graph:
    """What a fitted estimator computes for the rows of a matrix, or with ``inputs="columns"`` of one input per column.

    ``dtype`` is that of the inputs, float32 or float64. ``outputs`` are methods of the estimator, ``["predict",
    "decision_function"]``; without them a classifier gives ``label`` and ``probabilities``, a regressor ``variable``, a
    transformer ``transform``. ``examples`` are rows that the graph is compared on; without them, rows are made up.
    Raises ``NotRepresentable`` for an estimator or a setting without a rule, and ``VerificationFailed`` where the graph
    does not compute what the estimator does, unless ``verify`` is False.
    """
    if inputs not in ("matrix", "columns"):
        raise InvalidCall("inputs must be matrix or columns", given=repr(inputs))
    if dtype not in ("float32", "float64"):
        raise InvalidCall("the dtype of inputs must be float32 or float64", given=repr(dtype))
    features = getattr(model, "n_features_in_", 1 if hasattr(model, "X_thresholds_") else None)
    if features is None:
        raise InvalidCall(
            "an estimator must be fitted on a matrix", given=f"{type(model).__qualname__} without n_features_in_"
        )
    versions = {"ai.onnx": 18, "ai.onnx.ml": 5 if dtype == "float64" else 3}
    graph = Graph(opsets=versions, name=type(model).__qualname__)
    graph.registry = registry
    with graph.building():
        X = _inputs(graph, model, features, inputs, dtype)
        found = convert(model, X)
        for method in _methods(model, found, outputs):
            if method not in found:
                raise refusal(model, f"its rule does not carry {method}; ask for outputs={list(found)}")
            value = found[method]
            if value.dtype is DType.float64 and dtype == "float32":
                value = ops.cast(value, to=DType.float32)
            graph.output(output_name(model, method), ops.identity(value))
    graph = prune(graph)
    if verify:
        refuse_difference(verify_against(model, examples, graph))
    return graph


def verifier(model: Any, *examples: Any, **options: Any) -> Callable[..., Verification]:
    """What compares a graph with ``model``; it takes ``atol`` and ``rtol``."""
    return lambda graph, atol=None, rtol=None: verify_against(model, examples, graph, atol, rtol)


def output_name(model: Any, method: str) -> str:
    """What the output of a method is called."""
    if method == "predict":
        return "variable" if getattr(model, "_estimator_type", None) == "regressor" or _regresses(model) else "label"
    return NAMES.get(method, method)


def _regresses(model: Any) -> bool:
    from sklearn.base import is_regressor

    return bool(is_regressor(model))


def _methods(model: Any, found: dict[str, Value], asked: Sequence[str] | None) -> list[str]:
    if asked is not None:
        return list(asked)
    wanted = ["predict"] if hasattr(model, "predict") else []
    several = isinstance(getattr(model, "classes_", None), list)  # of which predict_proba is a list of matrices
    if "predict" in wanted and hasattr(model, "predict_proba") and not several:
        wanted.append("predict_proba")
    elif "predict" in wanted and "decision_function" in found and hasattr(model, "decision_function"):
        wanted.append("decision_function")
    if not wanted:
        wanted = ["transform"] if hasattr(model, "transform") else ["score_samples"]
    return wanted


def _inputs(graph: Graph, model: Any, features: int, kind: str, dtype: str) -> Value:
    if kind == "matrix":
        return graph.input("X", dtype, ("batch", features))
    names = getattr(model, "feature_names_in_", None)
    names = [f"x{k}" for k in range(features)] if names is None else [str(name) for name in names]
    parts = [graph.input(name, dtype, ("batch", 1)) for name in names]
    return parts[0] if len(parts) == 1 else ops.concat(*parts, axis=1)
