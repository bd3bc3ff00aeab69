"""Conversion rules for category_encoders, by lookup tables of the fitted encoder."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from tenonnx.extend import NotRepresentable
from tenonnx_sklearn import Outputs, Table, converts
from tenonnx_sklearn.rules.encoding import encoded
from tenonnx_sklearn.tables import joined

BY_COLUMN = (
    "BackwardDifferenceEncoder BaseNEncoder BinaryEncoder CatBoostEncoder CountEncoder GLMMEncoder GrayEncoder "
    "HelmertEncoder JamesSteinEncoder LeaveOneOutEncoder MEstimateEncoder OneHotEncoder OrdinalEncoder "
    "PolynomialEncoder QuantileEncoder RankHotEncoder SumEncoder TargetEncoder WOEEncoder"
)


@converts(*(f"category_encoders.{name}" for name in BY_COLUMN.split()), table=True)
def encoder(model: Any, X: Table) -> Outputs:
    names = [str(name) for name in model.feature_names_in_]
    made = [str(name) for name in model.get_feature_names_out()]
    parts: list[Any] = []
    for k, name in enumerate(names):
        if name not in model.cols:
            parts.append(X.take([k]))
            continue
        own = [place for place, each in enumerate(made) if each == name or each.startswith(f"{name}_")]
        known = categories(model, name)
        rows = encode_column(model, names, name, [*known, None, "a category that nobody has"])[:, own]
        parts.append(encoded(X.column(k), [*known, None], rows, X.dtype))
    return {"transform": joined(parts, X.dtype)}


def categories(model: Any, column: str) -> list[str]:
    """The strings that an encoder knows in a column."""
    encoder = getattr(model, "ordinal_encoder", model)
    for each in encoder.mapping if isinstance(encoder.mapping, list) else []:
        if each["col"] == column:
            result = [key for key in each["mapping"].index if isinstance(key, str)]
            if result:
                return result
    table = model.mapping.get(column) if isinstance(model.mapping, dict) else None
    if table is None or not len(table):
        raise NotRepresentable(
            f"{type(model).__name__} does not know the texts of its columns", given=f'none in column "{column}"'
        )
    return [key for key in table.index if isinstance(key, str)]


def encode_column(model: Any, names: list[str], column: str, texts: list[str | None]) -> Any:
    """Encode a table with ``texts`` in one column, and a known string in each of the others."""
    others = {name: [categories(model, name)[0] if name in model.cols else 0.0] * len(texts) for name in names}
    found = model.transform(pd.DataFrame({**others, column: np.asarray(texts, object)}, columns=names))
    return np.asarray(found, np.float64)
