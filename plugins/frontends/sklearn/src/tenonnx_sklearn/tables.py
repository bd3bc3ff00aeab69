"""Tables of columns with several types, and the column types for which an estimator was fitted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, NotRepresentable, Value
from tenonnx.extend.transforms import extract


@dataclass(frozen=True)
class Table:
    """Matrices of one element type each, side by side. ``dtype`` is the float type for computations."""

    blocks: tuple[Value, ...]
    dtype: DType

    @property
    def shape(self) -> tuple[Any, int]:
        return self.blocks[0].shape[0], sum(block.shape[1] for block in self.blocks)

    def column(self, index: int) -> Value:
        """A column as a vector, in its own type."""
        for block in self.blocks:
            if index < block.shape[1]:
                return ops.gather(block, np.int64(index), axis=1)
            index -= block.shape[1]
        raise IndexError(index)

    def take(self, indices: Sequence[int]) -> Table:
        """Select columns, in this order."""
        parts: list[Value] = []
        starts = np.cumsum([0, *(block.shape[1] for block in self.blocks)])
        owners = np.searchsorted(starts, indices, side="right") - 1
        for run in np.split(np.arange(len(indices)), np.flatnonzero(np.diff(owners)) + 1):
            if len(run):
                owner = owners[run[0]]
                places = np.asarray(indices)[run] - starts[owner]
                block = self.blocks[owner]
                whole = len(places) == block.shape[1] and (places == np.arange(len(places))).all()
                parts.append(block if whole else ops.gather(block, places.astype(np.int64), axis=1))
        return Table(tuple(parts), self.dtype)

    def matrix(self) -> Value:
        """All columns as numbers. Raises ``NotRepresentable`` for string columns."""
        if any(block.dtype is DType.string for block in self.blocks):
            raise NotRepresentable(
                "an estimator of numbers was given a column of strings",
                do="encode it in a step before, or give tx.load an example of the rows that the estimator takes",
            )
        parts = [block if block.dtype is self.dtype else ops.cast(block, to=self.dtype) for block in self.blocks]
        return parts[0] if len(parts) == 1 else ops.concat(*parts, axis=1)


def as_table(X: Value | Table) -> Table:
    return X if isinstance(X, Table) else Table((X,), X.dtype if X.dtype is DType.float64 else DType.float32)


def as_matrix(X: Value | Table) -> Value:
    """The columns as a numeric matrix."""
    return X.matrix() if isinstance(X, Table) else X if X.dtype.is_float else as_table(X).matrix()


def joined(parts: Sequence[Value | Table], dtype: DType) -> Value | Table:
    """Concatenate matrices and tables: a matrix if all are numbers of one type."""
    blocks: list[Value] = []
    for part in parts:
        for block in part.blocks if isinstance(part, Table) else (part,):
            block = ops.unsqueeze(block, np.array([1], np.int64)) if block.rank == 1 else block
            if blocks and blocks[-1].dtype is block.dtype:
                blocks[-1] = ops.concat(blocks[-1], block, axis=1)
            else:
                blocks.append(block)
    table = Table(tuple(blocks), dtype)
    return blocks[0] if len(blocks) == 1 and blocks[0].dtype.is_float else table


_example: ContextVar[dict[str, Any] | None] = ContextVar("example", default=None)


@contextmanager
def exemplified(fed: dict[str, Any] | None) -> Iterator[None]:
    """Make the example's inputs available within the context."""
    token = _example.set(fed)
    try:
        yield
    finally:
        _example.reset(token)


def contents_of(value: Value) -> Any:
    """Contents of a value for the rows of the example, or None without one."""
    fed = _example.get()
    if fed is None:
        return None
    part = extract(value.graph, None, value.name)
    return next(iter(part.run({each.name: fed[each.name] for each in part.inputs}).values()))


# ----- column types of a fitted estimator -----------------------------------------------------------------------------

FLOAT, TEXT, INTEGER, BOOLEAN = "float", "text", "int64", "bool"


def takes_documents(model: Any) -> bool:
    """Whether an estimator takes a sequence of strings rather than a table."""
    first = next(iter(members(model, 1)), None)
    return hasattr(model, "build_analyzer") if first is None else takes_documents(first[0])


def fitted_kinds(model: Any, features: int) -> list[str]:
    """Column types from the fitted estimator: strings where strings were encoded, else floats."""
    kinds = [FLOAT] * features
    _find_kinds(model, list(range(features)), kinds)
    return kinds


def _find_kinds(model: Any, places: list[int], kinds: list[str]) -> None:
    if hasattr(model, "build_analyzer"):
        kinds[places[0]] = TEXT
    found = getattr(model, "categories_", None)
    found = [] if found is None else found if len(found) == len(places) else []
    if hasattr(model, "statistics_") and np.asarray(model.statistics_).dtype == object:
        found = [np.asarray([each], object) for each in model.statistics_]
    for place, categories in zip(places, found, strict=False):
        kinds[place] = _kind_of(np.asarray(categories))
    for member, chosen in members(model, len(places)):
        _find_kinds(member, [places[k] for k in chosen], kinds)


def _kind_of(categories: Any) -> str:
    if categories.dtype.kind in "US" or any(isinstance(each, str) for each in categories.tolist()):
        return TEXT
    return BOOLEAN if categories.dtype == bool else FLOAT


def members(model: Any, features: int) -> Iterator[tuple[Any, Sequence[int]]]:
    """The members of an estimator that read its columns, with the indices of these columns."""
    everything = range(features)
    if hasattr(model, "_transformer_to_input_indices") and hasattr(model, "transformers_"):
        for name, member, _ in model.transformers_:
            chosen = np.asarray(model._transformer_to_input_indices[name])
            chosen = np.flatnonzero(chosen) if chosen.dtype == bool else chosen
            if len(chosen):
                yield member, chosen.tolist()
    elif hasattr(model, "steps"):
        for _, member in model.steps:
            yield member, everything
            if not keeps_columns(member):
                break
    elif getattr(model, "_preprocessor", None) is not None:  # histogram boosting encodes categories first
        yield model._preprocessor, everything
    elif hasattr(model, "transformer_list"):
        yield from ((member, everything) for _, member in model.transformer_list)
    else:
        for name in ("best_estimator_", "estimator_", "estimator", "regressor_", "estimators_"):
            found = getattr(model, name, None)
            for member in found if isinstance(found, list) else [found]:
                if hasattr(member, "fit"):
                    yield member, everything
            if found is not None:
                return


def first_of(model: Any) -> Any:
    """The first estimator of a pipeline, or the estimator itself."""
    steps = [step for _, step in getattr(model, "steps", []) if step is not None and not isinstance(step, str)]
    return first_of(steps[0]) if steps else model


def features_of(model: Any) -> int | None:
    """Number of columns of the fitted rows, if known."""
    found = getattr(model, "n_features_in_", None)
    if found is None and getattr(model, "shape_fit_", None) is not None:  # support vectors with a callable kernel
        found = model.shape_fit_[1]
    # a CatBoost model from a file has only names
    if not found and getattr(model, "feature_names_", None) is not None:
        found = len(model.feature_names_)
    if found is None:  # meta-estimators: ask the member that reads the columns first
        names = (features_of(member) for member, _ in members(model, 0))
        found = next((each for each in names if each is not None), None)
    return None if found is None else int(found)


def keeps_columns(member: Any) -> bool:
    """Whether a step keeps the meaning of its columns, so that the next step can be inspected as well."""
    if member is None or isinstance(member, str):
        return True
    return type(member).__name__ == "SimpleImputer" and getattr(member, "indicator_", None) is None


def ranges(model: Any, features: int) -> tuple[Any, Any]:
    """Minimum and maximum of each fitted column, NaN where unknown."""
    low, high = np.full(features, np.nan), np.full(features, np.nan)

    def saw(place: int, numbers: Any) -> None:
        numbers = np.asarray(numbers, np.float64)
        numbers = numbers[np.isfinite(numbers)]
        if numbers.size:
            low[place], high[place] = np.fmin(low[place], numbers.min()), np.fmax(high[place], numbers.max())

    _find_ranges(model, list(range(features)), saw)
    unknown = np.isnan(low)
    low, high = np.where(unknown, -2.0, low), np.where(unknown, 2.0, high)
    return low, np.where(high > low, high, low + 1.0)


def _find_ranges(model: Any, places: list[int], saw: Any) -> None:
    for names in (
        ("data_min_", "data_max_"),
        ("X_min_", "X_max_"),
        ("_fit_X",),
        ("X_train_",),
        ("cluster_centers_",),
        ("means_",),
        ("theta_",),
        ("statistics_",),
        ("quantiles_",),
    ):
        for name in names:
            numbers = getattr(model, name, None)
            if isinstance(numbers, np.ndarray | float) and np.asarray(numbers).dtype.kind == "f":
                table = np.atleast_2d(numbers)
                if table.shape[1] == len(places):
                    for k, place in enumerate(places):
                        saw(place, table[:, k])
    if hasattr(model, "mean_") and hasattr(model, "var_") and np.size(model.mean_) == len(places):
        for k, place in enumerate(places):
            spread = 1.0 if model.var_ is None else 2 * np.sqrt(np.ravel(model.var_)[k])  # None without with_std
            saw(place, [np.ravel(model.mean_)[k] - spread, np.ravel(model.mean_)[k] + spread])
    tree = getattr(model, "tree_", None)
    if hasattr(tree, "threshold"):
        for feature, threshold in zip(tree.feature, tree.threshold, strict=True):
            if 0 <= feature < len(places):
                saw(places[feature], [threshold - 0.5, threshold + 0.5])
    for name in ("categories_", "bin_edges_"):
        found = getattr(model, name, None)
        if found is not None and len(found) == len(places):
            for place, numbers in zip(places, found, strict=True):
                if np.asarray(numbers).dtype.kind in "iuf":
                    saw(place, numbers)
    for member, chosen in members(model, len(places)):
        if len(places) > max(chosen, default=-1):
            _find_ranges(member, [places[k] for k in chosen], saw)
