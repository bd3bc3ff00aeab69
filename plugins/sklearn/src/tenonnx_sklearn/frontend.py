"""The front end: ``tx.load(pipeline)`` gives the graph that a fitted estimator computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Graph, InvalidCall, NotRepresentable, Registry, Value
from tenonnx.extend.checks import Verification
from tenonnx.extend.transforms import prune, retarget
from tenonnx_onnx_ml.maps import zip_map
from tenonnx_sklearn import rows
from tenonnx_sklearn.boosters import as_estimator
from tenonnx_sklearn.conversion import called, convert, refusal, refuse_without_rule
from tenonnx_sklearn.scaling import remembered
from tenonnx_sklearn.sparsity import noted_sparse
from tenonnx_sklearn.tables import (
    BOOLEAN,
    INTEGER,
    TEXT,
    Table,
    exemplified,
    features_of,
    fitted_kinds,
    takes_documents,
)
from tenonnx_sklearn.verification import refuse_difference, verify_against

NAMES = {"predict_proba": "probabilities"}


def read(
    model: Any,
    *examples: Any,
    registry: Registry | None = None,
    inputs: str | None = None,
    dtype: str = "float32",
    outputs: Sequence[str] | None = None,
    zipmap: bool = False,
    verify: bool = True,
) -> Graph:
    """What a fitted estimator computes for the rows of a matrix, or with ``inputs="columns"`` of one input per column.

    Without ``inputs`` rows are one matrix where all columns have one type. Types are those of the example where one is
    given: a table of pandas, polars or Arrow, a dict, a matrix, texts; without it a column is text where the estimator
    encodes text, and a number of ``dtype`` elsewhere. Text that is missing arrives empty, numbers as NaN.
    ``outputs`` are methods of the estimator, ``["predict", "decision_function"]``; without them a classifier gives
    ``label`` and ``probabilities``, a regressor ``variable``, a transformer ``transform``. With ``zipmap``
    probabilities are maps from the labels. ``examples`` are rows that the graph is compared on; without them, rows are
    made up.
    Raises ``NotRepresentable`` for an estimator or a setting without a rule, and ``VerificationFailed`` where the graph
    does not compute what the estimator does, unless ``verify`` is False.
    """
    if inputs not in (None, "matrix", "columns"):
        raise InvalidCall("inputs must be matrix or columns", given=repr(inputs))
    if dtype not in ("float32", "float64"):
        raise InvalidCall("the dtype of inputs must be float32 or float64", given=repr(dtype))
    model = as_estimator(model)
    refuse_without_rule(model)
    versions = {"ai.onnx": 18, "ai.onnx.ml": 5 if dtype == "float64" else 3, "com.microsoft": 1}
    graph = Graph(opsets=versions, name=type(model).__qualname__)
    graph.registry = registry
    with graph.building(), remembered(), noted_sparse():
        X = _inputs(graph, model, examples[0] if examples else None, inputs, dtype)
        with exemplified(rows.feeds(graph, examples[0]) if examples else None):
            found = convert(model, X)
        for method in _methods(model, found, outputs):
            if method not in found:
                raise refusal(model, f"its rule does not carry {method}; ask for outputs={list(found)}")
            value = called(found[method])
            if isinstance(value, Table):
                value = _one_type(value)
            if isinstance(value, list):
                value = _one_of_several(model, value)
            if value.dtype is DType.float64 and dtype == "float32":
                value = ops.cast(value, to=DType.float32)
            if zipmap and method == "predict_proba":
                graph.output(output_name(model, method), _maps(model, value))
                continue
            graph.output(output_name(model, method), ops.identity(value))
    graph = _with_versions(prune(graph))
    if verify:
        refuse_difference(model, verify_against(model, examples, graph), graph, examples, read)
    return graph


def _one_type(table: Table) -> Value:
    """Columns of several types as one matrix, of text where one is text and scikit-learn has objects."""
    if any(block.dtype is DType.string for block in table.blocks) and len(table.blocks) > 1:
        raise NotRepresentable(
            "an output must have one element type",
            given="columns of text beside columns of numbers",
            do="leave the step that gives them out of the pipeline, or encode the text in it",
        )
    return table.blocks[0] if len(table.blocks) == 1 else table.matrix()


def _one_of_several(model: Any, parts: list[Value]) -> Value:
    """Probabilities of several outputs: ``[rows, outputs, classes]``, where all have as many classes."""
    if len({part.shape[1] for part in parts}) > 1:
        sizes = ", ".join(str(part.shape[1]) for part in parts)
        raise refusal(model, f"probabilities of outputs that have {sizes} classes, which no single tensor holds")
    return ops.concat(*[ops.unsqueeze(part, np.array([1], np.int64)) for part in parts], axis=1)


def _maps(model: Any, proba: Value) -> Value:
    classes = np.asarray(model.classes_)
    kind = "strings" if classes.dtype.kind in "USO" else "int64s"
    labels = [str(each) for each in classes] if kind == "strings" else [int(each) for each in classes]
    return zip_map(ops.cast(proba, to=DType.float32), **{f"classlabels_{kind}": labels})


def _with_versions(graph: Graph) -> Graph:
    """The versions that the nodes need: texts that are joined are of ``ai.onnx`` 20."""
    if not any(node.domain == "com.microsoft" for node in graph.nodes):
        graph.opsets.pop("com.microsoft", None)
    if any(node.op_type == "StringConcat" for node in graph.nodes):
        return retarget(graph, opset_version=20)
    return graph


def verifier(model: Any, *examples: Any, **options: Any) -> Callable[..., Verification]:
    """What compares a graph with ``model``; it takes ``atol`` and ``rtol``."""
    model = as_estimator(model)
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
    if (
        "predict" in wanted
        and hasattr(model, "predict_proba")
        and not several
        and found.get("predict_proba", 0) is not None
    ):
        wanted.append("predict_proba")
    elif "predict" in wanted and "decision_function" in found and hasattr(model, "decision_function"):
        wanted.append("decision_function")
    if not wanted:
        wanted = ["transform"] if hasattr(model, "transform") else ["score_samples"]
    return wanted


def _inputs(graph: Graph, model: Any, example: Any, asked: str | None, dtype: str) -> Table:
    numbers = DType[dtype]
    if takes_documents(model) and (example is None or not rows.is_table(example)):
        texts = graph.input("X", "string", ("batch",))
        return Table((ops.unsqueeze(texts, np.array([1], np.int64)),), numbers)
    features = _features(model, example)
    kinds = fitted_kinds(model, features) if example is None else rows.kinds(example)
    if len(kinds) != features:
        wanted = [str(name) for name in getattr(model, "feature_names_in_", [])]
        lacking = [name for name in wanted if rows.is_named(example) and name not in rows.columns(example)]
        shown = f", without {', '.join(lacking)}" if lacking else ""
        raise InvalidCall(f"an example must have {features} columns", given=f"one of {len(kinds)}{shown}")
    dtypes = [_DTYPES.get(kind, numbers) for kind in kinds]
    if asked is None:
        alike = len(set(dtypes)) == 1 or (DType.string not in dtypes and not _named(example))
        asked = "matrix" if alike and not _beyond_float32(example, kinds) else "columns"
    if asked == "matrix":
        if DType.string in dtypes and set(dtypes) != {DType.string}:
            raise InvalidCall(
                "a matrix must have one element type", given="text and numbers", do='give inputs="columns"'
            )
        held = DType.string if DType.string in dtypes else numbers
        return Table((graph.input("X", held, ("batch", features)),), numbers)
    names = getattr(model, "feature_names_in_", None)
    if names is None and _named(example):
        names = list(rows.columns(example))
    names = [f"x{k}" for k in range(features)] if names is None else [str(name) for name in names]
    parts = [graph.input(name, held, ("batch", 1)) for name, held in zip(names, dtypes, strict=True)]
    if set(dtypes) == {numbers} and len(parts) > 1:
        return Table((ops.concat(*parts, axis=1),), numbers)
    return Table(tuple(parts), numbers)


_DTYPES = {TEXT: DType.string, INTEGER: DType.int64, BOOLEAN: DType.bool}


def _named(example: Any) -> bool:
    return example is not None and rows.is_named(example)


def _beyond_float32(example: Any, kinds: list[str]) -> bool:
    """Whether a column of integers, as identifiers are, has more digits than a matrix of float32 would keep."""
    if example is None or INTEGER not in kinds:
        return False
    whole = [column for column in rows.columns(example).values() if column.dtype.kind == "i" and column.size]
    return any(int(np.abs(column).max()) > 1 << 24 for column in whole)


def _features(model: Any, example: Any) -> int:
    features = 1 if hasattr(model, "X_thresholds_") else features_of(model)
    if features is None and example is not None and _is_fitted(model):
        features = len(rows.columns(example))
    if features is None and _is_fitted(model) and (hasattr(model, "classes_") or hasattr(model, "constant_")):
        features = 1
    if features is None:
        given = f"{type(model).__qualname__} without n_features_in_"
        raise InvalidCall("an estimator must be fitted on a matrix", given=given, do="call its fit(X, y) first")
    return int(features)


def _is_fitted(model: Any) -> bool:
    return any(name.endswith("_") and not name.startswith("_") for name in vars(model)) or not hasattr(model, "fit")
