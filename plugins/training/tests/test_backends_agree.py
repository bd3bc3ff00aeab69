"""Equal training results on every backend: .ci/run runs these tests with PyTorch and with JAX, too."""

import importlib.util
import io

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops
import tenonnx_training as tt
from tenonnx_standard.batch_norm import batch_normalization
from tenonnx_standard.regularization import dropout

#: torch and jax have environments of their own.
BACKENDS = [name for name in ("torch", "jax") if importlib.util.find_spec(f"tenonnx_{name}")] or ["onnxruntime"]

DRAWN = np.random.default_rng(0)
X = DRAWN.standard_normal((44, 6)).astype(np.float32)
Y = DRAWN.integers(0, 3, 44)


def network():
    """Two layers with normalization and dropout between them."""
    graph, drawn = tx.Graph(opsets={"ai.onnx": 21}), np.random.default_rng(1)
    hidden = graph.input("x", "float32", ("batch", 6))
    hidden = ops.matmul(hidden, graph.variable("first.weight", drawn.standard_normal((6, 16)).astype(np.float32) / 2))
    start = {"scale": 1.0, "shift": 0.0, "mean": 0.0, "variance": 1.0}
    parameters = [graph.variable(f"norm.{name}", np.full(16, each, np.float32)) for name, each in start.items()]
    hidden = ops.relu(batch_normalization(hidden, *parameters, _outputs=1))
    hidden = dropout(hidden, graph.variable("ratio", np.float32(0.25)), _outputs=1)
    hidden = ops.matmul(hidden, graph.variable("last.weight", drawn.standard_normal((16, 3)).astype(np.float32) / 4))
    graph.output("scores", hidden + graph.variable("last.bias", np.zeros(3, np.float32)))
    return graph


HOW = {"loss": "softmax_cross_entropy", "optimizer": tt.Adam(1e-2), "batch_size": 8, "epochs": 2, "seed": 4}

#: Options of a training, and tolerances of its results.
WAYS = {
    "plain": ({}, 1e-4),
    "accumulate": ({"accumulate": 3, "optimizer": tt.Momentum(0.1)}, 1e-4),
    "average": ({"average": 0.9, "validation": (X[:12], Y[:12])}, 1e-4),
    "clip and groups": ({"clip_norm": 0.3, "groups": [tt.Group("last.*", rate=3, weight_decay=0.1)]}, 1e-4),
    "schedule": ({"optimizer": tt.AdamW(tt.CosineDecay(2e-2, steps=8, warmup=2), weight_decay=0.05)}, 1e-4),
    "frozen statistics": ({"frozen_statistics": True, "trainable": ["last.*", "norm.*"]}, 1e-4),
    "metrics": ({"metrics": ["accuracy", "f1"], "validation": (X, Y)}, 1e-4),
    "float16": ({"precision": "float16", "loss_scale": 128.0}, 2e-2),
    "bfloat16": ({"precision": "bfloat16"}, 5e-2),
}


def trained(backend, graph=None, **how):
    graph = network() if graph is None else graph
    history = tt.fit(graph, (X, Y), backend=backend, **{**HOW, **how})
    return graph, history


def weights(graph):
    return {value.name: value.data.array() for value in graph.variables}


def assert_alike(found, expected, near):
    (graph, history), (other, known) = found, expected
    np.testing.assert_allclose(history.losses, known.losses, rtol=near)
    assert len(history.epochs) == len(known.epochs)
    for one, two in zip(history.epochs, known.epochs, strict=True):
        assert one == pytest.approx(two, rel=near)
    held = weights(graph)
    for name, array in weights(other).items():
        np.testing.assert_allclose(held[name], array, rtol=10 * near, atol=near, err_msg=name)


@pytest.fixture(scope="module")
def by_numpy():
    made = {}

    def asked(way):
        if way not in made:
            made[way] = trained("numpy", **WAYS[way][0])
        return made[way]

    return asked


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_trains_to_the_numbers_of_numpy(backend, way, by_numpy):
    options, near = WAYS[way]
    assert_alike(trained(backend, **options), by_numpy(way), near)


@pytest.mark.parametrize("backend", BACKENDS)
def test_only_adapters_are_trained(backend):
    result = {}
    for name in ("numpy", backend):
        graph = tt.lora(network(), ["first.weight", "last.weight"], rank=2, seed=1)
        trained(name, graph)
        before, after = weights(network()), weights(graph)
        assert (before["first.weight"] == after["first.weight"]).all()
        result[name] = after
    assert result[backend].keys() == result["numpy"].keys()
    for name, array in result["numpy"].items():
        np.testing.assert_allclose(result[backend][name], array, rtol=2e-5, atol=2e-6, err_msg=name)


@pytest.mark.parametrize("backend", BACKENDS)
def test_callbacks_end_a_training_that_resumes_bit_for_bit(backend):
    reported = []
    first, _ = trained(
        backend, epochs=3, callbacks=[lambda epoch: reported.append(epoch["loss"]) or len(reported) == 1]
    )
    assert len(reported) == 1
    buffer = io.BytesIO()
    tx.export(first, buffer, include_training_state=True)
    rest, _ = trained(backend, tx.load(buffer.getvalue()), epochs=1)
    whole, _ = trained(backend, epochs=2)
    for name, array in weights(whole).items():
        assert weights(rest)[name].tobytes() == array.tobytes(), name


@pytest.mark.parametrize("backend", BACKENDS)
def test_training_resumes_from_a_checkpoint_within_an_epoch(backend, tmp_path):
    """Resume after a killed process, from the last batches that were written."""
    checkpoint = tmp_path / "checkpoint.safetensors"
    expected, _ = trained(backend)
    held = tx.Graph.save

    class Killed(BaseException):
        pass

    def saved(graph, path):
        held(graph, path)
        raise Killed

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tx.Graph, "save", saved)
        with pytest.raises(Killed):
            trained(backend, checkpoint=checkpoint, checkpoint_every=4)
    graph = tx.load(checkpoint)
    assert graph.training_state.settings["samples"] == 32
    result, history = trained(backend, graph)
    assert len(history.losses) == 12 - 4
    for name, array in weights(expected).items():
        assert weights(result)[name].tobytes() == array.tobytes(), name


@pytest.mark.parametrize("wrong", [{"checkpoint_every": 0, "checkpoint": "c.safetensors"}, {"checkpoint_every": 3}])
def test_checkpoints_within_an_epoch_need_a_count_and_a_file(wrong):
    with pytest.raises(tx.InvalidCall, match="invalid checkpoint_every"):
        trained("numpy", **wrong)
