"""Random ops as functions of a seed and a step: uniform, uncorrelated, and reproducible."""

import itertools

import numpy as np
import onnxruntime
import pytest
from trained_models import X, Y, dropping, linear

import tenonnx as tx
import tenonnx_training as tt
from tenonnx.errors import UnsupportedOp
from tenonnx.extend import constant, primitive, same_type, subgraph
from tenonnx.op.build import Builder
from tenonnx.op.call import interpreting
from tenonnx_standard.control_flow import if_, loop, scan
from tenonnx_standard.random import (
    bernoulli,
    multinomial,
    random_normal,
    random_normal_like,
    random_uniform,
    random_uniform_like,
)
from tenonnx_standard.reduction import reduce_max
from tenonnx_standard.shapes import identity
from tenonnx_training.rng import seeded

COUNT = 1 << 16


def drawing(function, **inputs):
    """A graph with the outputs of ``function`` for inputs with the types of these arrays."""
    graph = tx.Graph("drawing", opsets={"ai.onnx": 21})
    values = [graph.input(name, str(array.dtype), array.shape) for name, array in inputs.items()]
    with interpreting(Builder(graph)):
        results = function(*values)
        for number, result in enumerate(results if isinstance(results, tuple) else (results,)):
            graph.output(f"y{number}", identity(result))
    return graph


def drawn(function, seed=0, step=0, backend="numpy", **inputs):
    ready = seeded(drawing(function, **inputs), "seed", "step")
    assert ready.is_random
    results = ready.graph.run({**inputs, "seed": np.int64(seed), "step": np.int64(step)}, backend=backend)
    return list(results.values())


def numbers(seed=0, step=0):
    return drawn(lambda: random_uniform(shape=[COUNT]), seed, step)[0].astype(np.float64)


def unevenness(counts):
    """Excess of chi square over its expectation, in standard deviations."""
    expected = counts.sum() / counts.size
    return (np.sum((counts - expected) ** 2 / expected) - counts.size + 1) / np.sqrt(2 * (counts.size - 1))


def pairs(a, b):
    return np.bincount((a * 16).astype(int) * 16 + (b * 16).astype(int), minlength=256)


RUNS = [(0, 0), (0, 1), (1, 0), (1, 1), (2**31 + 7, 10**6)]


@pytest.mark.parametrize(("seed", "step"), RUNS)
def test_numbers_are_even(seed, step):
    u = numbers(seed, step)
    assert 0 < u.min() < u.max() < 1
    assert abs(u.mean() - 0.5) < 4 * np.sqrt(1 / 12 / COUNT)
    assert abs(u.var() - 1 / 12) < 4 * np.sqrt(1 / 180 / COUNT)
    assert unevenness(np.bincount((u * 256).astype(int), minlength=256)) < 4
    bits = (u * 2**24).astype(np.int64)[:, None] >> np.arange(1, 24) & 1  # the last one is always set
    assert np.all(abs(bits.mean(0) - 0.5) < 5 * 0.5 / np.sqrt(COUNT))
    for distance in (1, 2, 3, 8, 64, 100, 512, 784):
        assert unevenness(pairs(u[distance:], u[:-distance])) < 4


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(RUNS, 2)))
def test_seeds_and_steps_are_unrelated(one, other):
    assert unevenness(pairs(numbers(*one), numbers(*other))) < 4


def test_places_are_unrelated():
    result = drawn(lambda: tuple(random_uniform(shape=[COUNT]) for _ in range(4)))
    for a, b in itertools.combinations(result, 2):
        assert unevenness(pairs(a, b)) < 4


def test_numbers_are_those_of_every_backend():
    numpy, runtime = (drawn(lambda: random_uniform(shape=[3, 1000]), 5, 7, name) for name in ("numpy", "onnxruntime"))
    np.testing.assert_array_equal(numpy[0], runtime[0])


def test_no_number_rounds_to_a_bound():
    """The largest and the smallest possible number, computed like the last ops of a draw."""
    most, least = (np.float32(k) * np.float32(2**-23) + np.float32(2**-24) for k in (2**23 - 1, 0))
    assert most < 1
    assert least > 0


def test_a_custom_range():
    (result,) = drawn(lambda: random_uniform(shape=[COUNT], low=-3.0, high=1.0, dtype=int(tx.DType.float64)))
    assert result.dtype == np.float64
    assert -3 < result.min() < -2.99 < 0.99 < result.max() < 1
    assert abs(result.mean() + 1) < 4 * 4 * np.sqrt(1 / 12 / COUNT)


def test_normal_numbers():
    (result,) = drawn(lambda: random_normal(shape=[COUNT], mean=2.0, scale=3.0))
    z = (result - 2) / 3
    assert np.isfinite(z).all()
    assert abs(z.mean()) < 4 / np.sqrt(COUNT)
    assert abs(z.var() - 1) < 4 * np.sqrt(2 / COUNT)
    assert abs((z**4).mean() - 3) < 4 * np.sqrt(96 / COUNT)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_events(dtype):
    p = np.tile(np.asarray([0, 0.1, 0.5, 1], dtype), (COUNT // 4, 1))
    (result,) = drawn(bernoulli, p=p)
    assert result.dtype == dtype
    assert set(np.unique(result)) == {0, 1}
    shares = result.mean(0, dtype=np.float64)
    assert np.all(abs(shares - p[0]) <= 4 * np.sqrt(p[0] * (1 - p[0]) / len(p)))


def test_classes():
    shares = np.float32([[0.7, 0.2, 0.1, 0], [0.25, 0.25, 0.25, 0.25]])
    with np.errstate(divide="ignore"):
        logits = np.log(shares) + 5
    (result,) = drawn(lambda x: multinomial(x, sample_size=COUNT, dtype=7), x=logits)
    assert result.shape == (2, COUNT)
    assert result.dtype == np.int64
    for row, expected in zip(result, shares, strict=True):
        counts = np.bincount(row, minlength=4) / COUNT
        assert np.all(abs(counts - expected) <= 4 * np.sqrt(expected * (1 - expected) / COUNT))
    assert abs(np.corrcoef(result)[0, 1]) < 4 / np.sqrt(COUNT)


def test_another_seed_or_step_changes_the_losses():
    batch = {"x": X, "labels": np.zeros((4, 8), np.float32)}

    def losses(seed):
        step = tt.TrainingStep(dropping(), "mean_squared_error", tt.SGD(0.0), trainable="w", seed=seed)
        return [step(batch)["loss"] for _ in range(5)]

    assert losses(3) == losses(3)
    assert len({*losses(3), *losses(4)}) == 10


@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
def test_an_evaluation_can_be_repeated(backend):
    graph = linear()
    noisy = graph.outputs[0] + random_normal_like(graph.outputs[0])
    graph.output("noisy", noisy)
    step = tt.TrainingStep(graph, "mean_squared_error", output="noisy", seed=5, backend=backend)
    batch = {"x": X, "labels": Y}
    first = step.evaluate(batch)
    assert step.evaluate(batch) == first != step.evaluate({"x": X[::-1].copy(), "labels": Y[::-1].copy()})
    assert first["loss"] == pytest.approx(step(batch)["loss"], rel=1e-6)
    assert step.evaluate(batch) != first


def each_time(x):
    def body(iteration, going_on, x):
        return going_on, identity(x), random_uniform_like(x)

    flag = tx.TensorType(tx.DType.bool, ())
    made = subgraph(body, [("i", tx.TensorType(tx.DType.int64, ())), ("c", flag), ("s", x.type)])
    return loop(constant(np.int64(3)), None, x, body=made)


@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
def test_every_iteration_draws_new_numbers(backend):
    _, result = drawn(each_time, backend=backend, x=np.zeros(100, np.float32))
    assert len(np.unique(result)) == 300


@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
def test_a_branch_may_draw(backend):
    def branching(x):
        noisy, plain = (subgraph(branch) for branch in (lambda: x + random_uniform_like(x), lambda: identity(x)))
        return if_(reduce_max(x, keepdims=0) > 0, then_branch=noisy, else_branch=plain)

    assert np.all(drawn(branching, backend=backend, x=X)[0] > X)
    np.testing.assert_array_equal(drawn(branching, backend=backend, x=-X)[0], -X)


def test_a_body_that_cannot_count_is_refused():
    def scanning(x):
        made = subgraph(lambda row: random_uniform_like(row), [("row", tx.TensorType(tx.DType.float32, (2,)))])
        return scan(x, body=made, num_scan_inputs=1)

    with pytest.raises(UnsupportedOp, match="every iteration") as caught:
        seeded(drawing(scanning, x=X), "seed", "step")
    assert "Loop" in caught.value.do
    assert "Scan" in caught.value.what


def test_an_unknown_way_to_draw_is_refused():
    @primitive("Roll", domain="com.dice", pure=False, type=same_type)
    def roll(x): ...

    with pytest.raises(UnsupportedOp, match=r"com.dice::Roll") as caught:
        seeded(drawing(roll, x=X), "seed", "step")
    assert "add_rule" in caught.value.do


def test_a_step_that_draws_is_a_plain_file(tmp_path):
    step = tt.TrainingStep(dropping(), "mean_squared_error", tt.SGD(0.1), trainable="w", seed=3, backend="numpy")
    batch = {"x": X, "labels": np.zeros((4, 8), np.float32)}
    step.export(tmp_path / "step.onnx", opset_version=13, domains=["ai.onnx"])
    session = onnxruntime.InferenceSession(tmp_path / "step.onnx")
    result = dict(zip([output.name for output in session.get_outputs()], session.run(None, batch), strict=True))
    assert result["loss"] == pytest.approx(step(batch)["loss"], rel=1e-6)
    np.testing.assert_allclose(result["w/next"], step.program.state["w"], rtol=1e-6)
