"""Label propagation and label spreading."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Value
from tenonnx_sklearn.algebra import cast, double, label, position, smallest, squared_distances, total
from tenonnx_sklearn.conversion import Outputs, converts
from tenonnx_sklearn.tracing import traced


@converts("sklearn.LabelPropagation", "sklearn.LabelSpreading")
def label_propagation(model: Any, X: Value) -> Outputs:
    square = squared_distances(X, model.X_)
    shares = np.asarray(model.label_distributions_, np.float64)
    if model.kernel == "rbf":
        votes = ops.exp(square * float(-model.gamma)) @ shares
    elif model.kernel == "knn":
        _, place = smallest(square, model.n_neighbors)
        votes = ops.reduce_sum(ops.gather(shares, place, axis=0), np.array([1], np.int64), keepdims=0)
    else:
        votes = traced(lambda rows: model.kernel(model.X_, rows).T, double(X)) @ shares
    proba = cast(votes / total(votes, keepdims=True), X.dtype)  # NaN where no label was propagated
    return {"predict": label(model.classes_, position(votes)), "predict_proba": proba}
