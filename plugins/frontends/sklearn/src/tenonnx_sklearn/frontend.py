"""The front end: ``tx.load(pipeline)`` reads a fitted estimator as a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx import VerificationFailed
from tenonnx.extend import DType, Graph, InvalidCall, NotRepresentable, Registry, Value
from tenonnx.extend.checks import Verification
from tenonnx.extend.transforms import prune, retarget
from tenonnx_frontends import warn_unverified
from tenonnx_onnx_ml.maps import zip_map
from tenonnx_sklearn.boosters import as_estimator
from tenonnx_sklearn.conversion import called, convert, refusal, refuse_without_rule
from tenonnx_sklearn.inputs import beyond_float32, columns, feeds, is_named, is_table, kinds, spelled
from tenonnx_sklearn.scaling import remembered
from tenonnx_sklearn.sparsity import noted_sparse
from tenonnx_sklearn.tables import (
    BOOLEAN,
    INTEGER,
    TEXT,
    Table,
    exemplified,
    features_of,
    first_of,
    fitted_kinds,
    takes_documents,
)
from tenonnx_sklearn.untabular import add_inputs, rows_of
from tenonnx_sklearn.verification import differences, refuse_difference, verify_against

NAMES = {"predict_proba": "probabilities"}


def read(
    model: Any,
    *examples: Any,
    registry: Registry | None = None,
    inputs: str | None = None,
    dtype: str | None = None,
    outputs: Sequence[str] | None = None,
    zipmap: bool = False,
    verify: bool = True,
) -> Graph:
    """Read a fitted estimator with a matrix as input, or with ``inputs="columns"`` with one input per column.

    By default the input is a matrix if all columns have one type. Types are those of an example: a table of pandas,
    polars or Arrow, a dict, a matrix, or strings. Without an example, a column is a string where the estimator encodes
    strings, and otherwise a number of ``dtype``. Missing strings are empty, missing numbers NaN. ``dtype`` defaults to
    float32, or to float64 where rounding the example to float32 changes the results. ``outputs`` are methods of the
    estimator, ``["predict", "decision_function"]``; by default a classifier has ``label`` and ``probabilities``, a
    regressor ``variable``, a transformer ``transform``. With ``zipmap``, probabilities are maps from labels.
    ``examples`` are rows for verification, by default random ones. Raises ``NotRepresentable`` for an estimator or a
    setting without a rule, and ``VerificationFailed`` where outputs differ from the estimator's, unless ``verify`` is
    False.
    """
    if inputs not in (None, "matrix", "columns"):
        raise InvalidCall("inputs is neither matrix nor columns", given=repr(inputs))
    if dtype not in (None, "float32", "float64"):
        raise InvalidCall("the dtype of inputs is neither float32 nor float64", given=repr(dtype))
    model = as_estimator(model)
    refuse_without_rule(model)

    def built(dtype: str) -> Graph:
        return _build(model, examples, registry, inputs, dtype, outputs, zipmap)

    graph = built(dtype or "float32")
    if verify:
        found = verify_against(model, examples, graph)
        if differences(found) and dtype != "float64" and examples and beyond_float32(examples[0]):
            double = _passing(model, examples, built)
            if double is not None and dtype is None:
                return double
            if double is not None:
                raise VerificationFailed(
                    "results for rows rounded to float32 differ from those of the estimator",
                    given="; ".join(differences(found))[:600],
                    do='leave dtype out, or give dtype="float64"',
                )
        refuse_difference(model, found, graph, examples, read)
        warn_unverified(found)
    return graph


def _passing(model: Any, examples: tuple[Any, ...], built: Callable[[str], Graph]) -> Graph | None:
    """The graph in float64, or None if it is unsupported or differs as well."""
    try:
        graph = built("float64")
    except NotRepresentable:
        return None
    return None if differences(verify_against(model, examples, graph)) else graph


def _build(
    model: Any,
    examples: tuple[Any, ...],
    registry: Registry | None,
    inputs: str | None,
    dtype: str,
    outputs: Sequence[str] | None,
    zipmap: bool,
) -> Graph:
    """The unverified graph of a fitted estimator."""
    versions = {"ai.onnx": 18, "ai.onnx.ml": 5 if dtype == "float64" else 3, "com.microsoft": 1}
    graph = Graph(opsets=versions, name=type(model).__qualname__)
    graph.registry = registry
    with graph.building(), remembered(bool(examples) and beyond_float32(examples[0])), noted_sparse():
        X = _inputs(graph, model, examples[0] if examples else None, inputs, dtype)
        with exemplified(feeds(graph, examples[0]) if examples else None):
            found = convert(model, X)
        for method in _methods(model, found, outputs):
            if method not in found:
                raise refusal(model, f"its rule does not carry {method}; ask for outputs={list(found)}")
            for name, value in _by_output(output_name(model, method), called(found[method])):
                if value.dtype is DType.float64 and dtype == "float32":
                    value = ops.cast(value, to=DType.float32)
                maps = zipmap and method == "predict_proba"
                graph.output(name, _maps(model, value) if maps else ops.identity(value))
    return _with_versions(prune(graph))


def _one_type(table: Table) -> Value:
    """Columns of several types as one matrix: of strings if one is, as scikit-learn's object arrays."""
    if any(block.dtype is DType.string for block in table.blocks) and len(table.blocks) > 1:
        raise NotRepresentable(
            "an output has several element types",
            given="columns of text beside columns of numbers",
            do="leave the step that gives them out of the pipeline, or encode the text in it",
        )
    return table.blocks[0] if len(table.blocks) == 1 else table.matrix()


def _by_output(name: str, found: Any) -> list[tuple[str, Value]]:
    """Results of a method, by name of the output.

    Probabilities of several targets are ``[rows, targets, classes]`` if all have equally many classes, and else one
    output for each target, ``probabilities_0`` and so on.
    """
    if not isinstance(found, list):
        return [(name, _one_type(found) if isinstance(found, Table) else found)]
    if len({part.shape[1] for part in found}) > 1:
        return [(f"{name}_{k}", part) for k, part in enumerate(found)]
    return [(name, ops.concat(*[ops.unsqueeze(part, np.array([1], np.int64)) for part in found], axis=1))]


def _maps(model: Any, proba: Value) -> Value:
    classes = np.asarray(model.classes_)
    kind = "strings" if classes.dtype.kind in "USO" else "int64s"
    labels = [str(each) for each in classes] if kind == "strings" else [int(each) for each in classes]
    return zip_map(ops.cast(proba, to=DType.float32), **{f"classlabels_{kind}": labels})


def _with_versions(graph: Graph) -> Graph:
    """Set the opset versions that the nodes require: joining strings needs ``ai.onnx`` 20."""
    if not any(node.domain == "com.microsoft" for node in graph.nodes):
        graph.opsets.pop("com.microsoft", None)
    if any(node.op_type == "StringConcat" for node in graph.nodes):
        return retarget(graph, opset_version=20)
    return graph


def verifier(model: Any, *examples: Any, **options: Any) -> Callable[..., Verification]:
    """A function that verifies a graph against ``model``; it takes ``atol`` and ``rtol``."""
    model = as_estimator(model)
    return lambda graph, atol=None, rtol=None: verify_against(model, examples, graph, atol, rtol)


def output_name(model: Any, method: str) -> str:
    """Output name of a method."""
    if method == "predict":
        return "variable" if _regresses(model) else "label"
    return NAMES.get(method, method)


def _regresses(model: Any) -> bool:
    kind = getattr(model, "_estimator_type", None)
    if kind is not None:
        return bool(kind == "regressor")
    from sklearn.base import is_regressor

    return bool(is_regressor(model))


def _methods(model: Any, found: dict[str, Value], methods: Sequence[str] | None) -> list[str]:
    if methods is not None:
        return list(methods)
    wanted = ["predict"] if hasattr(model, "predict") else []
    several = isinstance(getattr(model, "classes_", None), list)  # whose predict_proba is a list of matrices
    if (
        "predict" in wanted
        and hasattr(model, "predict_proba")
        and not several
        and found.get("predict_proba", 0) is not None
    ):
        wanted.append("predict_proba")
    elif "predict" in wanted and "decision_function" in found and hasattr(model, "decision_function"):
        wanted.append("decision_function")
    if wanted:
        return wanted
    if "distances" in found and not hasattr(model, "transform"):
        return ["distances", "indices"]
    return ["transform"] if hasattr(model, "transform") else ["score_samples"]


def _inputs(graph: Graph, model: Any, example: Any, requested: str | None, dtype: str) -> Table:
    numbers = DType[dtype]
    if takes_documents(model) and (example is None or not is_table(example)):
        texts = graph.input("X", "string", ("batch",))
        return Table((ops.unsqueeze(texts, np.array([1], np.int64)),), numbers)
    if rows_of(first_of(model)) != "table" and (example is None or not _named(example)):
        table = add_inputs(graph, first_of(model), example, numbers)
        upright = [ops.unsqueeze(x, np.array([1], np.int64)) if x.rank == 1 else x for x in table.blocks]
        return Table(tuple(upright), numbers)
    features = _features(model, example)
    found = fitted_kinds(model, features) if example is None else kinds(example)
    if len(found) != features:
        wanted = [str(name) for name in getattr(model, "feature_names_in_", [])]
        lacking = [name for name in wanted if is_named(example) and name not in columns(example)]
        shown = f", without {', '.join(lacking)}" if lacking else ""
        raise InvalidCall(f"an example does not have {features} columns", given=f"one of {len(found)}{shown}")
    dtypes = [_DTYPES.get(kind, numbers) for kind in found]
    if requested is None:
        alike = len(set(dtypes)) == 1 or (DType.string not in dtypes and not _named(example))
        requested = "matrix" if alike and not _beyond_float32(example, found) else "columns"
    if requested == "matrix":
        if DType.string in dtypes and set(dtypes) != {DType.string}:
            raise InvalidCall(
                "a matrix has several element types", given="text and numbers", do='give inputs="columns"'
            )
        dtype_of_matrix = DType.string if DType.string in dtypes else numbers
        return Table((graph.input("X", dtype_of_matrix, ("batch", features)),), numbers)
    names = getattr(model, "feature_names_in_", None)
    if _named(example) and (names is None or spelled(columns(example)) == list(names)):
        names = list(columns(example))
    names = [f"x{k}" for k in range(features)] if names is None else [str(name) for name in names]
    parts = [
        graph.input(name, dtype_of_matrix, ("batch", 1)) for name, dtype_of_matrix in zip(names, dtypes, strict=True)
    ]
    if set(dtypes) == {numbers} and len(parts) > 1:
        return Table((ops.concat(*parts, axis=1),), numbers)
    return Table(tuple(parts), numbers)


_DTYPES = {TEXT: DType.string, INTEGER: DType.int64, BOOLEAN: DType.bool}


def _named(example: Any) -> bool:
    return example is not None and is_named(example)


def _beyond_float32(example: Any, kinds: list[str]) -> bool:
    """Whether an integer column, such as identifiers, exceeds the precision of a float32 matrix."""
    if example is None or INTEGER not in kinds:
        return False
    whole = [column for column in columns(example).values() if column.dtype.kind == "i" and column.size]
    return any(int(np.abs(column).max()) > 1 << 24 for column in whole)


def _features(model: Any, example: Any) -> int:
    features = 1 if hasattr(model, "X_thresholds_") else features_of(model)
    if features is None and example is not None and _is_fitted(model):
        features = len(columns(example))
    if features is None and _is_fitted(model) and (hasattr(model, "classes_") or hasattr(model, "constant_")):
        features = 1
    if features is None and _is_fitted(model):
        raise InvalidCall(
            "the number of columns is unknown",
            given=f"{type(first_of(model)).__qualname__} without n_features_in_",
            do="give tx.load an example of the rows, or set n_features_in_ in its fit",
        )
    if features is None:
        given = f"{type(model).__qualname__} without n_features_in_"
        raise InvalidCall("an estimator is not fitted on a matrix", given=given, do="call its fit(X, y) first")
    return int(features)


def _is_fitted(model: Any) -> bool:
    if hasattr(model, "steps"):
        return any(_is_fitted(step) for _, step in model.steps if step is not None and not isinstance(step, str))
    return any(name.endswith("_") and not name.startswith("_") for name in vars(model)) or not hasattr(model, "fit")
