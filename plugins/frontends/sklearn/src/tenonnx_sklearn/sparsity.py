"""Sparse rows: missing entries are zero for most estimators, but missing for XGBoost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tenonnx.extend import Value
from tenonnx_sklearn.tables import Table


@dataclass
class _Noted:
    """Sparse values, and the steps among them that may store explicit zeros."""

    values: dict[int, Value] = field(default_factory=dict)
    with_zeros: list[str] = field(default_factory=list)


_noted: ContextVar[_Noted | None] = ContextVar("sparse", default=None)

#: Transformers that keep rows sparse.
_KEEP = (
    "AdditiveChi2Sampler",
    "Binarizer",
    "GenericUnivariateSelect",
    "MaxAbsScaler",
    "Normalizer",
    "PolynomialFeatures",
    "QuantileTransformer",
    "RFE",
    "RFECV",
    "RobustScaler",
    "SelectFdr",
    "SelectFpr",
    "SelectFromModel",
    "SelectFwe",
    "SelectKBest",
    "SelectPercentile",
    "SequentialFeatureSelector",
    "SimpleImputer",
    "StandardScaler",
    "VarianceThreshold",
)
_GIVE = ("AdditiveChi2Sampler", "FeatureHasher", "KNeighborsTransformer", "RadiusNeighborsTransformer")
#: Transformers that may store zeros: sums of signed hashes, distances, sines.
_WITH_ZEROS = (
    "AdditiveChi2Sampler",
    "FunctionTransformer",
    "KNeighborsTransformer",
    "QuantileTransformer",
    "RadiusNeighborsTransformer",
    "SimpleImputer",
    "SplineTransformer",
)


@contextmanager
def noted_sparse() -> Iterator[None]:
    """Record sparse values within the context."""
    token = _noted.set(_Noted())
    try:
        yield
    finally:
        _noted.reset(token)


def is_sparse(X: Value | Table) -> bool:
    """Whether these rows are a sparse matrix in scikit-learn."""
    noted, blocks = _noted.get(), X.blocks if isinstance(X, Table) else (X,)
    return noted is not None and len(blocks) == 1 and id(blocks[0]) in noted.values


def stores_zeros() -> list[str]:
    """The steps of the model that may store explicit zeros in a sparse matrix."""
    noted = _noted.get()
    return [] if noted is None else noted.with_zeros


def note_sparse(model: Any, X: Value | Table, found: Value | Table) -> None:
    """Record the output of ``model`` for the rows ``X``, if it is sparse."""
    noted = _noted.get()
    if noted is None or not _gives_sparse(model, is_sparse(X)):
        return
    noted.values.update({id(block): block for block in (found.blocks if isinstance(found, Table) else (found,))})
    name = type(model).__name__
    if name in _WITH_ZEROS or getattr(model, "alternate_sign", False):
        noted.with_zeros.append(name)


def _gives_sparse(model: Any, taken: bool) -> bool:
    if model in (None, "drop"):
        return False
    if model == "passthrough":
        return taken
    if hasattr(model, "sparse_output_"):  # determined by the density of results
        return bool(model.sparse_output_)
    if hasattr(model, "transformer_list"):
        return any(_gives_sparse(step, taken) for _, step in model.transformer_list)
    if hasattr(model, "steps"):
        for _, step in model.steps:
            taken = _gives_sparse(step, taken)
        return taken
    name = type(model).__name__
    if name in ("OneHotEncoder", "RandomTreesEmbedding", "SplineTransformer"):
        return bool(getattr(model, "sparse_output", False))  # an estimator of another package may have this name
    if name == "KBinsDiscretizer":
        return bool(model.encode == "onehot")
    if name == "MissingIndicator":
        return model.sparse is True or (model.sparse == "auto" and taken)
    if name == "FunctionTransformer":
        return taken and (model.func is None or isinstance(model.func, np.ufunc))
    return hasattr(model, "build_analyzer") or name in ("TfidfTransformer", *_GIVE) or (taken and name in _KEEP)
