"""Element types for which onnxruntime has few kernels."""

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import pytest
from jax import lax

import tenonnx as tx

NARROW = [np.int8, np.uint8, np.int16, np.uint16, np.uint32]


def in_session(path, x):
    """Outputs of a file in a default session of onnxruntime; ``x`` may be bfloat16, unlike numpy feeds."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    if x.dtype != jnp.bfloat16:
        return session.run(None, {name: x})
    value = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(x.view(np.uint16), onnx.TensorProto.BFLOAT16)
    return [result.numpy() for result in session.run_with_ort_values(None, {name: value})]


def check(function, x, path, **tolerance):
    """Compare a function of ``x`` in a default session of onnxruntime and on numpy."""
    graph = tx.load(function, x, verify=False)
    tx.export(graph, path)
    expected = [np.asarray(each) for each in jax.tree.leaves(function(jnp.asarray(x)))]
    ours = graph.run({graph.inputs[0].name: x}, backend="numpy").values()
    for outputs in (ours, in_session(path, x)):
        for result, each in zip(outputs, expected, strict=True):
            assert result.dtype == each.dtype
            np.testing.assert_allclose(result, each, **tolerance)


INTEGERS = {
    "reduce": lambda x: (
        x.max(1),
        x.min(0),
        lax.reduce(x, np.zeros((), x.dtype), lax.add, (1,)),
        jnp.prod(x, 1, dtype=x.dtype),
    ),
    "argmax": lambda x: (jnp.argmax(x, 1), jnp.argmin(x, 0)),
    "cumsum": lambda x: (lax.cumsum(x, 1), lax.cumsum(x, 0, reverse=True)),
    "cumprod": lambda x: (lax.cumprod(x, 1), lax.cummax(x, 1), lax.cummin(x, 1, reverse=True)),
    "clip": lambda x: (jnp.clip(x, 1, 4), lax.clamp(x[::-1], x, x + x), jnp.maximum(x, x[::-1]), -x),
    "pad": lambda x: (
        jnp.pad(x, 1),
        lax.reduce_window(x, np.zeros((), x.dtype), lax.max, (1, 2), (1, 1), "VALID"),
    ),
    "division": lambda x: (x // x[::-1], x % x[::-1], lax.div(x, x[:, ::-1]), lax.rem(x, x[:, ::-1])),
    "division by numbers": lambda x: (x // 3, x % 5, jnp.divmod(x, 2), jnp.fmod(x, 4)),
    "gcd": lambda x: (jnp.gcd(x, x[::-1]), jnp.lcm(x % 9, x[::-1] % 7)),
    "shifts": lambda x: (x << 1, x >> (x % 40), jnp.right_shift(x, 2), lax.shift_right_logical(x, x % 40)),
    "gather": lambda x: (
        jnp.take_along_axis(x, jnp.argsort(x, axis=1), axis=1),
        x.at[jnp.array([0, 9])].get(mode="fill", fill_value=7),
        jnp.take(x, jnp.array([0, -9]), axis=0),
    ),
    "scatter": lambda x: (
        x.at[jnp.array([0, 2, 0])].add(3),
        x.at[jnp.array([1, 1])].max(9),
        x.at[1].apply(lambda a: a * 2),
    ),
    "where": lambda x: (jnp.where(x > 3, x, x[::-1]), jnp.select([x > 9, x > 2], [x, x + x], 1), jnp.tril(x)),
    "bits": lambda x: (lax.population_count(x), lax.clz(x), ~x & (x | 3) ^ 5),
    "sort": lambda x: (jnp.sort(x, 1), lax.top_k(x, 2), jnp.unique(x, size=5)),
}


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("dtype", NARROW)
def test_narrow_integers_run_on_onnxruntime(dtype, name, tmp_path):
    x = np.array([[3, 100, 2, 1], [100, 90, 5, 0], [7, 70, 0, 2]], dtype)
    check(INTEGERS[name], x, tmp_path / "m.onnx")


@pytest.mark.parametrize("name", ["division", "division by numbers", "shifts", "where", "bits"])
@pytest.mark.parametrize("dtype", [np.int8, np.int16])
def test_negative_narrow_integers_run_on_onnxruntime(dtype, name, tmp_path):
    x = np.array([[-3, 100, 2, -1], [-100, 90, 5, 0], [7, np.iinfo(dtype).min, 0, -2]], dtype)
    check(INTEGERS[name], x, tmp_path / "m.onnx")


def test_comparisons_of_bfloat16_run_on_onnxruntime(tmp_path):
    def compared(x):
        y = x[::-1]
        return x == y, x != y, x < y, x <= y, x > 2, x >= y

    check(compared, np.array([3, 1, 2, np.nan, 3], jnp.bfloat16), tmp_path / "m.onnx")


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16])
@pytest.mark.parametrize("way", ["add", "multiply", "min", "max"])
def test_scatters_of_halves_run_on_onnxruntime(dtype, way, tmp_path):
    def scattered(x):
        rows = getattr(x.at[jnp.array([1, 0, 1])], way)(x[::-1])
        return rows.astype(jnp.float32), getattr(x.at[:, jnp.array([2, 7])], way)(x[:, :2], mode="drop").astype(
            jnp.float32
        )

    x = np.random.default_rng(0).normal(size=(3, 4)).astype(dtype)
    check(scattered, x, tmp_path / "m.onnx", rtol=0.02, atol=0.01)


BFLOAT16 = {
    "round": lambda x: jnp.round(x[0, 0]),
    "convolution": lambda x: lax.conv_general_dilated(x, x[:, :, :2, :2], (1, 1), "VALID"),
    "transposed convolution": lambda x: lax.conv_transpose(x[0], x[0, :, :6, :2], (2,), "SAME"),
    "max": lambda x: lax.reduce_window(x, np.array(-np.inf, x.dtype), lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID"),
    "mean": lambda x: lax.reduce_window(x, np.array(0, x.dtype), lax.add, (1, 1, 3, 3), (1, 1, 2, 2), "SAME") / 9,
    "waves": lambda x: (jnp.sin(x), jnp.arctan(x), jnp.cosh(x)),
    "activations": lambda x: (jax.nn.elu(x), jax.nn.selu(x), jax.nn.softplus(x), jax.nn.soft_sign(x), jax.nn.mish(x)),
}


@pytest.mark.parametrize("name", BFLOAT16)
def test_files_of_bfloat16_are_legal_at_their_opset(name, tmp_path):
    x = np.random.default_rng(0).normal(size=(1, 1, 6, 6)).astype(jnp.bfloat16)
    graph = tx.load(BFLOAT16[name], x)
    tx.export(graph, tmp_path / "m.onnx")
    onnx.checker.check_model(str(tmp_path / "m.onnx"), full_check=True)
    expected = jax.tree.leaves(BFLOAT16[name](jnp.asarray(x)))
    result = graph.run({graph.inputs[0].name: x}, backend="numpy").values()
    for ours, theirs in zip(result, expected, strict=True):
        np.testing.assert_allclose(ours.astype(np.float32), np.asarray(theirs, np.float32), rtol=0.05, atol=0.05)


def test_nan_is_preserved_as_documented(tmp_path):
    def extremes(x):
        return jnp.argmax(x, 1), jnp.argmin(x, 1), jnp.sort(x, 1), lax.top_k(x, 2)[0], jnp.clip(x, 1, 2)

    x = np.array([[1, np.nan, 2], [3, 2, np.nan], [np.nan, 1, 2]], np.float32)
    tx.export(tx.load(extremes, x, verify=False), tmp_path / "m.onnx")
    for result, expected in zip(in_session(tmp_path / "m.onnx", x), extremes(jnp.asarray(x)), strict=True):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("function", [lax.div, lax.rem, jnp.floor_divide, jnp.remainder])
@pytest.mark.parametrize("kind", [np.int32, np.int8])
def test_the_smallest_integer_by_minus_one_is_what_xla_gives(function, kind):
    a, b = np.array([np.iinfo(kind).min, 7, 5, -7], kind), np.array([-1, -1, 0, 2], kind)
    graph = tx.load(function, np.array([7, -7, 3, 1], kind), np.array([2, 3, -1, 1], kind))
    feeds = dict(zip([value.name for value in graph.inputs], (a, b), strict=True))
    for backend in ("numpy", "onnxruntime"):
        (result,) = graph.run(feeds, backend=backend).values()
        np.testing.assert_array_equal(result, np.asarray(function(jnp.asarray(a), jnp.asarray(b))))
