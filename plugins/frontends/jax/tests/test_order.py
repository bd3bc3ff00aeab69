"""Functions that reduce elements or change them several times, in the order of JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from test_element_types import in_session

import tenonnx as tx


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 2), (2, 1)])
def test_a_function_reduces_axes_of_any_length(axes, tmp_path):
    def reduced(x):
        low = lax.reduce(x, np.float32(0), lambda p, q: p * q + p + q, axes)
        pair = lax.reduce(
            (x, -x),
            (np.float32(-9), np.float32(9)),
            lambda p, q: (jnp.maximum(p[0], q[0]), jnp.minimum(p[1], q[1])),
            axes,
        )
        return low, *pair

    draw = np.random.default_rng(0).normal
    names = {0: "a", 1: "b", 2: "c"}
    graph = tx.load(reduced, draw(size=(3, 4, 2)).astype(np.float32), dims={"x": {k: names[k] for k in axes}})
    tx.export(graph, tmp_path / "m.onnx")
    for length in (0, 1, 5):
        x = draw(size=[length if k in axes else n for k, n in enumerate((3, 4, 2))]).astype(np.float32)
        for result, expected in zip(in_session(tmp_path / "m.onnx", x), reduced(jnp.asarray(x)), strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


x = np.random.default_rng(1).normal(size=(3, 7)).astype(np.float32)
ties, whole = np.abs(np.round(x)), (x * 5).astype(np.int32)


def folded(start, function, axes=(1,)):
    return lambda a: lax.reduce(a, np.asarray(start, a.dtype), function, axes)


def first_largest(a):
    places = lax.broadcasted_iota(jnp.int32, a.shape, 1)

    def better(one, other):
        keeps = one[0] >= other[0]
        return jnp.maximum(one[0], other[0]), jnp.where(keeps, one[1], other[1])

    return lax.reduce((a, places), (np.float32(-np.inf), np.int32(0)), better, (1,))


FOLDS = {
    "largest magnitude": (folded(0, lambda a, b: jnp.maximum(a, jnp.abs(b))), x),
    "decay": (folded(0, lambda a, b: a * 0.5 + b), x),
    "sum of squares": (folded(0, lambda a, b: a + b * b, (0, 1)), x),
    "difference": (folded(100, lambda a, b: a - b), whole),
    "digits": (folded(0, lambda a, b: a * 10 + jnp.abs(b) % 10), whole),
    "int16": (folded(0, lambda a, b: jnp.where(b > a, b, a - 1)), whole.astype(np.int16)),
    "last": (folded(0, lambda a, b: b), x),
    "first that is not zero": (folded(0, lambda a, b: jnp.where(a == 0, b, a)), ties),
    "equal signs": (lambda a: lax.reduce(a > 0, np.bool_(True), lambda p, q: p == q, (1,)), x),
    "first of the largest": (first_largest, ties),
    "log of a sum": (folded(-np.inf, jnp.logaddexp), x),
}


@pytest.mark.parametrize("name", FOLDS)
def test_a_function_reduces_elements_in_their_order(name, tmp_path):
    function, a = FOLDS[name]
    graph = tx.load(function, a)
    tx.export(graph, tmp_path / "m.onnx")
    expected = [np.asarray(each) for each in jax.tree.leaves(function(jnp.asarray(a)))]
    ours = graph.run({graph.inputs[0].name: a}, backend="numpy").values()
    for outputs in (ours, in_session(tmp_path / "m.onnx", a)):
        for result, each in zip(outputs, expected, strict=True):
            np.testing.assert_allclose(result, each, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["decay", "largest magnitude", "first of the largest", "last"])
def test_only_functions_that_are_not_associative_need_a_step_per_element(name):
    graph = tx.load(*FOLDS[name], verify=False)
    assert any(n.op_type == "Loop" for n in graph.nodes) == (name in {"decay", "largest magnitude"})


PLACES = {
    "once": (lambda a: a.at[jnp.array([0, 2])].apply(jnp.exp), ()),
    "twice": (lambda a: a.at[jnp.array([1, 1, 0])].apply(lambda b: b * 2 + 1), ()),
    "by an input": (lambda a, i: a.at[i].apply(lambda b: b * 2 + 1), (np.int32([0, 2, 2, 2]),)),
    "columns out of bounds": (lambda a, i: a.at[:, i].apply(jnp.square, mode="drop"), (np.int32([6, 7, 6, 9]),)),
    "two axes": (lambda a, i: a.at[i, i].apply(jnp.sin), (np.int32([1, 2, 1]),)),
    "none": (lambda a: a.at[jnp.zeros(0, int)].apply(jnp.exp), ()),
}


@pytest.mark.parametrize("name", PLACES)
def test_a_function_changes_a_place_as_often_as_it_comes(name):
    function, places = PLACES[name]
    graph = tx.load(function, x, *places)
    feeds = dict(zip([value.name for value in graph.inputs], (x, *places), strict=True))
    for backend in ("numpy", "onnxruntime"):
        (result,) = graph.run(feeds, backend=backend).values()
        np.testing.assert_allclose(result, function(jnp.asarray(x), *places), rtol=1e-5)


SPECTRA = {
    "rfft": lambda a: jnp.angle(jnp.fft.rfft(a)),
    "rfft of 6": lambda a: jnp.angle(jnp.fft.rfft(a, 6)),
    "rfft of columns": lambda a: jnp.angle(jnp.fft.rfft(a, 4, axis=0)),
    "first bin": lambda a: jnp.angle(jnp.fft.fft(a)[:, 0]),
    "logarithm": lambda a: jnp.log(jnp.fft.rfft(a, 8)).imag,
    "signs": lambda a: jnp.signbit(jnp.fft.rfft(a, 8).imag),
    "copied sign": lambda a: jnp.copysign(1.0, jnp.fft.rfft(a, 2).imag),
}


@pytest.mark.parametrize("name", SPECTRA)
def test_angles_of_real_spectra_have_the_sign_of_jax(name):
    a = np.concatenate([x, np.abs(x), -np.abs(x)])
    graph = tx.load(SPECTRA[name], a)
    for backend in ("numpy", "onnxruntime"):
        (result,) = graph.run({graph.inputs[0].name: a}, backend=backend).values()
        np.testing.assert_allclose(result, SPECTRA[name](jnp.asarray(a)), rtol=1e-3, atol=1e-4)
