"""Functions of numpy in pipelines, traced: what has a form computes the same, and the rest is refused by its line."""

import numpy as np
import pytest
from sklearn.preprocessing import FunctionTransformer

import tenonnx as tx

ROWS = np.where(np.arange(120).reshape(30, 4) == 13, np.nan, np.random.default_rng(0).normal(size=(30, 4))).astype("f4")

FUNCTIONS = [
    lambda X: np.log1p(np.abs(X)) ** 2,
    lambda X: X[:, [2, 0]] / (1 + X[:, 1:2] ** 2),
    lambda X: X[..., ::-1] - X.mean(axis=1, keepdims=True),
    lambda X: np.column_stack([X[:, 0] * X[:, 1], X.max(axis=1)]),
    lambda X: np.hstack([X, np.sin(X), np.maximum(X, 0.5)]),
    lambda X: np.where((X > 0) & ~np.isnan(X), X, -1),
    lambda X: np.nan_to_num(X, nan=3.0).clip(-1, 2),
    lambda X: np.delete(X, 1, axis=1) % 0.7,
    lambda X: X @ np.arange(8.0).reshape(4, 2),
    lambda X: np.diff(np.cumsum(X[:, ::2], axis=1)),
    lambda X: np.linalg.norm(X[:, 2:], axis=1, keepdims=True),
    lambda X: np.concatenate([X[:, :1], X.reshape(-1, 4)[:, 1:]], axis=1).astype(np.float64),
    lambda X: (X // 0.5 > 1).astype(int),
    lambda X: np.log10(np.exp2(X[:, 0])).reshape(-1, 1),
    lambda X: X.std(axis=1)[:, None] + np.float64(0.5) * X,
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("place", range(len(FUNCTIONS)))
def test_a_function_of_numpy(place):
    model = FunctionTransformer(FUNCTIONS[place]).fit(ROWS)
    found = tx.load(model, ROWS, verify=False).run({"X": ROWS})["transform"]
    np.testing.assert_allclose(found, model.transform(ROWS), rtol=1e-5, atol=1e-5)


def _branches(X):
    return X if X[0, 0] > 0 else -X


def _over_rows(X):
    return X - X.mean(axis=0)


def _sorts(X):
    return np.sort(X, axis=1)


@pytest.mark.parametrize(
    ("function", "why"),
    [(_branches, "one row in is one row out"), (_over_rows, "over rows"), (_sorts, "numpy.sort is not carried"),
     (lambda X: [1.0], "what it computes of the rows"), (lambda X: X[X[:, 0] > 0], "one row in is one row out")],
)  # fmt: skip
def test_what_is_no_step_of_a_row_is_refused_by_its_line(function, why):
    model = FunctionTransformer(function, check_inverse=False).fit(ROWS)
    with pytest.raises(tx.NotRepresentable, match=why):
        tx.load(model)
