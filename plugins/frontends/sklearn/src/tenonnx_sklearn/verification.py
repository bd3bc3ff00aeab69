"""Verification against the estimator: equal labels, and numbers within a tolerance."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tenonnx import TenonnxError, VerificationFailed
from tenonnx.extend import DType, Graph, TensorType, Value
from tenonnx.extend.checks import Tolerance
from tenonnx.extend.frontends import Verification
from tenonnx_frontends import SourceCall, verify_calls
from tenonnx_sklearn.inputs import feeds
from tenonnx_sklearn.tables import TEXT, features_of, first_of, fitted_kinds, members, ranges, takes_documents
from tenonnx_sklearn.untabular import made_up_rows, rows_of

#: Type of ``frontend.read``, which reads parts of an estimator.
Read = Callable[..., Graph]

METHODS = {"label": "predict", "variable": "predict", "probabilities": "predict_proba"}

#: Number of random rows, size of a large batch, and the time limit of an estimator for using the large batch.
FEW, MANY, SECONDS = 100, 10_000, 1.0


def verify_against(
    model: Any, examples: tuple[Any, ...], graph: Graph, atol: float | None = None, rtol: float | None = None
) -> Verification:
    """Compare ``graph`` with ``model`` on examples or random rows: a few, one, 10,000 and none."""
    limit = _limit(model, examples, graph)
    near = Tolerance(limit if atol is None else atol, limit if rtol is None else rtol, "sums in another order")
    calls = (_call(model, graph, rows) for rows in batches(model, examples[0] if examples else None, graph))
    result = verify_calls("scikit-learn", graph, calls, coarse=near, seen=_plain)
    if result.problems:
        return result
    empty = graph.compile()(_none(graph))
    result.problems += [f'"{name}" of no rows has {len(array)}' for name, array in empty.items() if len(array)]
    return result


def _limit(model: Any, examples: tuple[Any, ...], graph: Graph) -> float:
    """The tolerance; smaller in float64, unless the estimator itself computes in float32, as XGBoost does."""
    if not any(value.dtype is DType.float64 for value in graph.inputs):
        return 1e-4
    try:
        row = taken(examples[0], [0]) if examples else made_up(model, 1)
        found = [expected_of(model, METHODS.get(value.name, value.name), row) for value in graph.outputs]
    except Exception:  # errors for one row are reported where all calls are compared
        return 1e-7
    return 1e-5 if any(array.dtype == np.float32 for array in found) else 1e-7


def _call(model: Any, graph: Graph, rows: Any) -> SourceCall:
    def expected() -> list[Any]:
        found = [expected_of(model, METHODS.get(v.name, v.name), rows) for v in graph.outputs]
        return [a.astype(_dtype(v)) for v, a in zip(graph.outputs, found, strict=True)]

    return SourceCall(lambda: feeds(graph, rows), expected, f"batch={count(rows)}")


def _dtype(value: Value) -> Any:
    """The element type of an output, or of the probabilities in maps."""
    return value.type.dtype.numpy if isinstance(value.type, TensorType) else np.float32


def refuse_difference(model: Any, found: Verification, graph: Graph, examples: tuple[Any, ...], read: Read) -> None:
    """Raise ``VerificationFailed``, naming the pipeline step, where the graph differs from the estimator."""
    bad = differences(found)
    if bad:
        step = differing_step(model, examples, graph, read)
        raise VerificationFailed(
            "outputs of the graph differ from those of the estimator",
            given="; ".join([*([f"the first step that differs is {step}"] if step else []), *bad])[:600],
        )


def differences(found: Verification) -> list[str]:
    """Differences that a verification found, as sentences."""
    return [*found.problems, *(f'"{d.name}": {d.difference.reason}' for d in found.outputs if not d.equal)]


def differing_step(model: Any, examples: tuple[Any, ...], graph: Graph, read: Read) -> str | None:
    """The first pipeline step, or part of a ``ColumnTransformer``, whose result differs from the estimator's."""
    for name, part in _parts(model):
        inputs = "matrix" if len(graph.inputs) == 1 else "columns"
        dtype = "float64" if any(value.dtype is DType.float64 for value in graph.inputs) else "float32"
        try:
            read(part, *examples, inputs=inputs, dtype=dtype, registry=graph.registry)
        except VerificationFailed:
            return name
        except (TenonnxError, AttributeError, TypeError, ValueError):
            continue
    steps = getattr(model, "steps", None)
    return f'"{steps[-1][0]}" ({type(steps[-1][1]).__name__})' if steps else None


def _parts(model: Any) -> Iterator[tuple[str, Any]]:
    """The pipeline up to each step except the last, with its name."""
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import Pipeline

    if not isinstance(model, Pipeline):
        return
    for end, (name, step) in enumerate(model.steps, 1):
        if end == 1 and isinstance(step, ColumnTransformer):
            for part, _, _ in step.transformers_:
                yield f'"{name}" in "{part}"', _only(step, part)
        if step not in (None, "passthrough") and end < len(model.steps):
            yield f'"{name}" ({type(step).__name__})', model[:end]


def _only(step: Any, part: str) -> Any:
    """A ``ColumnTransformer`` with all parts but one dropped."""
    from copy import copy

    copied = copy(step)
    copied.transformers_ = [(n, t if n == part else "drop", c) for n, t, c in step.transformers_]
    copied._n_samples_seen = None
    return copied


def expected_of(model: Any, method: str, rows: Any) -> Any:
    """Results of a method of the estimator, in the form of graph outputs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = _result_of(model, method, rows)
        except (TypeError, ValueError) as error:  # KMeans and NMF fitted on float64 reject float32
            if "dtype" not in str(error) or not hasattr(rows, "astype"):
                raise
            result = _result_of(model, method, rows.astype(np.float64))
    if method == "predict_proba" and isinstance(result, list):
        result = np.stack(result, axis=1) if len({each.shape for each in result}) == 1 else result
    if hasattr(result, "to_numpy"):
        result = result.to_numpy()
    result = result.toarray() if hasattr(result, "toarray") else np.asarray(result)
    if method == "transform" and result.ndim == 1 and len(result) != count(rows):  # SparsePCA for one row
        result = result[None]
    return result.astype(object) if result.dtype.kind in "US" else result


def _result_of(model: Any, method: str, rows: Any) -> Any:
    if method in ("predict_std", "predict_cov"):
        return model.predict(rows, **{f"return_{method.removeprefix('predict_')}": True})[1]
    if method in ("distances", "indices"):
        return model.kneighbors(rows)[method == "indices"]
    of_all, _, place = method.rpartition("_")
    if place.isdigit():  # one of several targets
        return getattr(model, METHODS.get(of_all, of_all))(rows)[int(place)]
    return getattr(model, method)(rows)


def _plain(found: Any) -> Any:
    """Convert maps of probabilities to a matrix."""
    if isinstance(found, list):
        return np.asarray([list(row.values()) for row in found], np.float32)
    return found


# ----- rows -----------------------------------------------------------------------------------------------------------


def batches(model: Any, given: Any, graph: Graph) -> Iterator[Any]:
    """Batches of rows to compare: a few, one, and many if the estimator is fast.

    Some random rows have missing numbers or unknown categories, if the estimator accepts these.
    """
    exact = any(value.dtype is DType.float64 for value in graph.inputs)
    exact = exact or rows_of(first_of(model)) != "table"
    rows = rounded(made_up(model, FEW), exact) if given is None else given
    began = time.perf_counter()
    yield rows
    seconds = time.perf_counter() - began
    if not count(rows):
        return
    yield taken(rows, [0])
    if given is None:
        yield from (odd for odd in unusual(model, rows) if _takes(model, odd, graph))
    by_rows = any(isinstance(v.type, TensorType) and sum(d == v.shape[0] for d in v.shape) > 1 for v in graph.outputs)
    if seconds * MANY / count(rows) < SECONDS and not by_rows:
        if given is None:
            yield rounded(made_up(model, MANY, seed=1), exact)
        else:
            yield taken(rows, np.arange(MANY) % count(rows))


def count(rows: Any) -> int:
    """Number of rows."""
    if isinstance(rows, dict):
        return len(next(iter(rows.values())))
    return int(rows.shape[0]) if hasattr(rows, "shape") else len(rows)


def taken(rows: Any, places: Any) -> Any:
    """Select rows, keeping their container type."""
    if hasattr(rows, "iloc"):
        return rows.iloc[places]
    if hasattr(rows, "take") and hasattr(rows, "column_names"):
        return rows.take(list(places))
    if isinstance(rows, dict):
        return {name: [each[k] for k in places] for name, each in rows.items()}
    return [rows[k] for k in places] if isinstance(rows, list) else rows[places]


def rounded(rows: Any, exact: bool) -> Any:
    """Round numbers of rows to float32, if the graph has float32 inputs."""
    if exact:
        return rows
    if hasattr(rows, "iloc") and hasattr(rows, "columns"):
        floats = [name for name in rows.columns if str(rows[name].dtype) == "float64"]
        return rows.astype(dict.fromkeys(floats, np.float32)) if floats else rows
    if isinstance(rows, np.ndarray) and rows.dtype.kind in "fiu":
        return rows.astype(np.float32)
    if isinstance(rows, np.ndarray) and rows.ndim == 2 and rows.dtype == object:
        return np.vectorize(lambda each: float(np.float32(each)) if isinstance(each, float) else each, otypes="O")(rows)
    return rows


def _none(graph: Graph) -> dict[str, Any]:
    return {
        value.name: np.empty([dim if isinstance(dim, int) else 0 for dim in value.shape], value.dtype.numpy)
        for value in graph.inputs
    }


def made_up(model: Any, number: int, seed: int = 0) -> Any:
    """Random rows within the fitted ranges, as far as known, with strings from the known categories."""
    generator = np.random.default_rng(seed)
    if takes_documents(model):
        return _texts(model, generator, min(number, FEW))
    first = first_of(model)
    if rows_of(first) != "table":
        return made_up_rows(first, number, generator)
    features = features_of(model) or 1
    kinds = fitted_kinds(model, features)
    low, high = ranges(model, features)
    numbers = generator.uniform(low, high, (number, features))
    known = _categories(model, features)
    for k, categories in known.items():
        if np.asarray(categories).dtype.kind in "iuf":
            numbers[:, k] = generator.choice(np.asarray(categories, np.float64), number)
    names = getattr(model, "feature_names_in_", None)
    if TEXT not in kinds and names is None:
        return numbers
    columns = [
        generator.choice(np.asarray(known.get(k, ["a", "b"]), object), number) if kind == TEXT else numbers[:, k]
        for k, kind in enumerate(kinds)
    ]
    if names is None:
        return np.stack([each.astype(object) for each in columns], axis=1)
    try:
        from pandas import DataFrame
    except ImportError:  # without pandas, rows have no names
        if TEXT not in kinds:
            return numbers
        return {str(name): each for name, each in zip(names, columns, strict=True)}
    return DataFrame(dict(zip(names, columns, strict=True)))


def unusual(model: Any, rows: Any) -> Iterator[Any]:
    """Rows with a tenth of the elements missing, and rows with as many unknown categories."""
    if isinstance(rows, list) or rows_of(first_of(model)) != "table":
        return
    generator, known = np.random.default_rng(2), _categories(model, rows.shape[1])
    for odd in ("missing", "unknown"):
        changed = rows.copy()
        for k in range(rows.shape[1]):
            places = np.flatnonzero(generator.random(len(rows)) < 0.1)
            text = TEXT in fitted_kinds(model, rows.shape[1])[k]
            seen = [] if known.get(k) is None else list(known[k])
            if odd == "missing":
                removed = [each for each in seen if each is None or each != each]
                each = removed[0] if removed else None if text else np.nan
            elif k in known:
                each = "never seen" if text else np.nanmax(np.asarray(seen, np.float64)) + 1
            else:
                continue
            if hasattr(changed, "iloc"):
                changed.iloc[places, k] = each
            else:
                changed[places, k] = each
        yield changed


def _takes(model: Any, rows: Any, graph: Graph) -> bool:
    """Whether the estimator accepts the rows, for each output."""
    try:
        for value in graph.outputs:
            expected_of(model, METHODS.get(value.name, value.name), rows)
    except Exception:
        return False
    return True


def _categories(model: Any, features: int) -> dict[int, Any]:
    """The categories of the encoded columns."""
    result: dict[int, Any] = {}

    def visit(part: Any, places: list[int]) -> None:
        categories = getattr(part, "categories_", None)
        if categories is not None and len(categories) == len(places):
            result.update(zip(places, categories, strict=True))
        for member, chosen in members(part, len(places)):
            if len(places) > max(chosen, default=-1):
                visit(member, [places[k] for k in chosen])

    visit(model, list(range(features)))
    return result


def _texts(model: Any, generator: Any, number: int) -> list[str]:
    """Random strings of known and unknown words."""
    words: list[str] = []

    def visit(part: Any) -> None:
        words.extend(getattr(part, "vocabulary_", {}))
        for member, _ in members(part, 1):
            visit(member)

    visit(model)
    words = [*sorted(words)[:2000], "unknown", "Words,", "and", "ÄRGER!", "", "x"]
    return [" ".join(generator.choice(words, generator.integers(0, 12))) for _ in range(number)]
