"""Traced numpy functions in pipelines, and errors with their lines."""

import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge
from sklearn.neighbors import KNeighborsRegressor
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
    lambda X: np.sort(X, axis=1) + np.median(X, axis=1, keepdims=True),
    lambda X: np.percentile(X, 30, axis=1),
    lambda X: np.concatenate([X, np.full((X.shape[0], 2), 3.0)], axis=1),
    lambda X: np.digitize(X, [-1, 0, 1]) + np.searchsorted([-0.5, 0.5], X, side="right"),
    lambda X: np.select([X < -1, X < 1], [X * 0, X], default=2.0),
    lambda X: np.hypot(X[:, :2], X[:, 2:]) + np.arctan2(X[:, :2], X[:, 2:]),
    lambda X: np.arctan2(X, X * 0) + np.heaviside(np.trunc(X), 0.5),
    lambda X: np.fmax(X, 0) - np.fmin(X[:, :1], X[:, 1:2]),
    lambda X: np.nanmean(X, axis=1) + np.nanmax(X, axis=1) * np.count_nonzero(X > 0, axis=1),
    lambda X: np.interp(X, [-1, 0, 1], [0, 1, 5]),
    lambda X: np.einsum("ij,j->i", X, np.arange(4.0))[:, None] + np.polyval([1, 2, 3], X),
    lambda X: np.roll(np.flip(X, axis=1), 1, axis=1) + np.tile(X[:, :2], (1, 2)),
    lambda X: np.pad(np.round(X, 1), ((0, 0), (1, 0))) * np.any(X > 1, axis=1, keepdims=True),
    lambda X: np.split(X, 2, axis=1)[1] - np.average(X, axis=1, weights=[1, 2, 3, 4])[:, None],
    lambda X: np.isin(np.sign(X), [1, 0]).astype(int) + np.argsort(X, axis=1),
    lambda X: np.logaddexp(X[:, 0], X[:, 1]) - np.ptp(X, axis=1),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("place", range(len(FUNCTIONS)))
def test_a_function_of_numpy(place):
    model = FunctionTransformer(FUNCTIONS[place]).fit(ROWS)
    result = tx.load(model, ROWS, verify=False).run({"X": ROWS})["transform"]
    np.testing.assert_allclose(result, model.transform(ROWS), rtol=1e-5, atol=1e-5)


def _branches(X):
    return X if X[0, 0] > 0 else -X


def _over_rows(X):
    return X - X.mean(axis=0)


def _by_count(X):
    return X / X.shape[0]


def _cumulates(X):
    return np.cumprod(X, axis=1)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (_branches, "one row in is one row out"),
        (_over_rows, "over rows"),
        (_by_count, "number of rows"),
        (_cumulates, "numpy.cumprod is not supported"),
        (lambda X: [1.0], "other than values computed from the rows"),
        (lambda X: X[X[:, 0] > 0], "one row in is one row out"),
    ],
)
def test_functions_across_rows_are_refused_with_their_line(function, why):
    model = FunctionTransformer(function, check_inverse=False).fit(ROWS)
    with pytest.raises(tx.NotRepresentable, match=why):
        tx.load(model)


PAIRS = [
    lambda a, b: np.sqrt(np.sum((a - b) ** 2)),
    lambda a, b: np.abs(a - b).max() + abs(a[0] - b[0]),
    lambda a, b: sum(abs(x - y) for x, y in zip(a, b, strict=True)) / len(a),
    lambda a, b: np.linalg.norm(a - b, ord=3) + np.add.reduce((a[1:] - b[1:]) ** 2),
    lambda a, b: np.abs(a - b) @ np.arange(1.0, 5.0),
    lambda a, b: np.dot(a - b, np.diag([1.0, 2.0, 3.0, 4.0])) @ (a - b),
    lambda a, b: np.mean(np.where(np.abs(a - b) > 0.5, 1.0, np.clip(np.abs(a - b), 0.1, 1))),
]
KNOWN = np.nan_to_num(ROWS)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("place", range(len(PAIRS)))
def test_a_function_of_two_rows(place):
    model = KernelRidge(kernel=PAIRS[place]).fit(KNOWN, KNOWN[:, 0])
    result = tx.load(model, KNOWN, verify=False).run({"X": KNOWN})["variable"]
    np.testing.assert_allclose(result, model.predict(KNOWN), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("metric", "why"),
    [
        (lambda a, b: 1.0 if a[0] > b[0] else 0.0, "np.where"),
        (lambda a, b: np.cumsum(a - b)[-1], "cumsum"),
        (lambda a, b: a - b, "one number"),
    ],
)
def test_a_metric_that_is_not_a_numpy_call_is_refused(metric, why):
    model = KNeighborsRegressor(2).fit(KNOWN, KNOWN[:, 0])
    model.effective_metric_ = metric
    with pytest.raises(tx.NotRepresentable, match=why):
        tx.load(model, verify=False)


TEXTS = np.array([["a b  c", "x!!y!"], ["", " "], ["\tone\ntwo\u00a0three ", "äö😀"], ["a.b.c", "!"]], object)
COUNTS = [
    lambda X: np.char.str_len(X.astype(str)),
    lambda X: np.char.count(X[:, 1].astype(str), "!").reshape(-1, 1),
    lambda X: np.column_stack([np.char.count(X[:, 0].astype(str), "."), np.char.str_len(X[:, 0].astype(str)) > 2]),
]


@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
@pytest.mark.parametrize("place", range(len(COUNTS)))
def test_a_function_counts_in_texts(place, backend):
    model = FunctionTransformer(COUNTS[place], check_inverse=False).fit(TEXTS)
    graph = tx.load(model, TEXTS)
    (result,) = graph.run({graph.inputs[0].name: TEXTS}, backend=backend).values()
    np.testing.assert_array_equal(result, model.transform(TEXTS))


@pytest.mark.parametrize(
    "function",
    [
        lambda X: np.array([[len(text.split())] for text in X[:, 0]]),
        lambda X: np.char.count(X.astype(str), "!", 1),
        lambda X: np.char.upper(X.astype(str)),
        lambda X: X + "!",
    ],
)
def test_unsupported_text_functions_are_refused_with_the_supported_ones(function):
    model = FunctionTransformer(function, check_inverse=False).fit(TEXTS)
    with pytest.raises(tx.NotRepresentable, match=r"X\.str\.split\(\)\.str\.len\(\)"):
        tx.load(model, TEXTS)
