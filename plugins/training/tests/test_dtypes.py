"""Training in every floating-point dtype on both backends, compared with float64."""

import numpy as np
import pytest
from trained_models import contents, digits, linear

import tenonnx as tx
import tenonnx_training as tt
from tenonnx.extend import DType
from tenonnx_standard.activation import relu
from tenonnx_standard.batch_norm import batch_normalization
from tenonnx_standard.convolution import conv
from tenonnx_standard.max_pooling import max_pool
from tenonnx_standard.reduction import reduce_sum
from tenonnx_standard.shapes import flatten

#: Tolerance of losses of about 3 relative to float64, after some steps.
DTYPES = {"float64": 1e-9, "float32": 1e-5, "float16": 0.01, "bfloat16": 0.05}

#: Batch sizes may vary.
SIZES = (32, 32, 7, 20, 32)


class Weights:
    """Adds variables of one dtype to a graph."""

    def __init__(self, graph, dtype):
        self.graph, self.dtype, self.random = graph, DType.of(dtype).numpy, np.random.default_rng(0)

    def drawn(self, name, *shape):
        scale = np.sqrt(2 / np.prod(shape[1:] if len(shape) > 2 else shape[:1]))
        return self.graph.variable(name, (self.random.normal(size=shape) * scale).astype(self.dtype))

    def filled(self, name, length, number=0):
        return self.graph.variable(name, np.full(length, number, self.dtype))


def perceptron(dtype):
    graph = tx.Graph("perceptron", opsets={"ai.onnx": 21})
    weights = Weights(graph, dtype)
    x = flatten(graph.input("x", dtype, ("batch", 1, 8, 8)))
    hidden = relu(x @ weights.drawn("w1", 64, 32) + weights.filled("b1", 32))
    graph.output("y", hidden @ weights.drawn("w2", 32, 10) + weights.filled("b2", 10))
    return graph


def convolutional(dtype):
    graph = tx.Graph("convolutional", opsets={"ai.onnx": 21})
    weights = Weights(graph, dtype)
    x = conv(graph.input("x", dtype, ("batch", 1, 8, 8)), weights.drawn("w1", 6, 1, 3, 3), pads=[1, 1, 1, 1])
    statistics = [weights.filled(name, 6, number) for name, number in (("s", 1), ("t", 0), ("mean", 0), ("var", 1))]
    x = max_pool(relu(batch_normalization(x, *statistics, _outputs=1)), kernel_shape=[2, 2], strides=[2, 2], _outputs=1)
    graph.output("y", flatten(x) @ weights.drawn("w2", 96, 10) + weights.filled("b2", 10))
    return graph


def trained(make, dtype, backend, **options):
    """The losses of some steps, and the step."""
    _, images, labels = digits()
    step = tt.TrainingStep(make(dtype), "softmax_cross_entropy", tt.Adam(2e-3), backend=backend, **options)
    losses, start = [], 0
    for size in SIZES:
        some = slice(start, start + size)
        losses.append(step({"x": images[some].astype(DType.of(dtype).numpy), "labels": labels[some]})["loss"])
        start += size
    return losses, step


@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("make", [perceptron, convolutional])
def test_losses_are_those_of_float64(make, dtype, backend):
    exact, _ = trained(make, "float64", "numpy")
    losses, step = trained(make, dtype, backend, loss_scale=64.0 if dtype == "float16" else 1.0)
    assert step.program.backend == backend
    np.testing.assert_allclose(losses, exact, atol=DTYPES[dtype], rtol=0)
    kind, stage = DType.of(dtype).numpy, np.float64 if dtype == "float64" else np.float32
    held = step.program.state
    assert {held[name].dtype for name in (*step._step_graph.parameters, *step._step_graph.statistics)} == {
        np.dtype(kind)
    }
    assert {held[name].dtype for name in step._step_graph.slots} == {np.dtype(stage)}


def test_a_scaled_loss_keeps_small_gradients():
    """The gradient of about 1e-9 is zero in float16; onnxruntime computes in float32 and rounds less often."""
    batch = {"x": np.full((4, 2), 1e-4, np.float16), "labels": np.full((4, 1), 1, np.float16)}

    def error(prediction, labels):
        return reduce_sum((prediction - labels) * 1e-5, keepdims=0)

    def moved(backend, **options):
        graph = linear("float16")
        step = tt.TrainingStep(graph, error, tt.Adam(0.1), trainable="w", backend=backend, **options)
        step(batch)
        return not np.array_equal(step.program.state["w"], contents(graph)["w"])

    assert not moved("numpy")
    assert moved("numpy", loss_scale=2.0**14)
    assert moved("onnxruntime", loss_scale=2.0**14)
