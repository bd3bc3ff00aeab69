"""Half-precision products: computed on every backend, or rejected."""

import io

import numpy as np
import onnxruntime
import pytest

import tenonnx as tx
import tenonnx_standard as ops
import tenonnx_training as tt
from tenonnx.errors import InvalidCall
from tenonnx_training import precision

RANDOM = np.random.default_rng(0)


def normal(*shape):
    return RANDOM.normal(size=shape).astype(np.float32)


def by_matmul(x, w):
    return ops.matmul(x, w)


def by_gemm(x, w):
    return ops.gemm(x, w, np.float32([0.125] * 6), alpha=0.5)


def by_einsum(x, w):
    return ops.einsum(x, w, equation="bi,ij->bj")


def by_conv(x, w):
    kernels = ops.reshape(ops.transpose(w, perm=[1, 0]), [6, 4, 2, 2])
    return ops.reshape(ops.conv(ops.reshape(x, [-1, 4, 2, 2]), kernels), [-1, 6])


def by_conv_transpose(x, w):
    return ops.reshape(ops.conv_transpose(ops.reshape(x, [-1, 16, 1, 1]), ops.reshape(w, [16, 6, 1, 1])), [-1, 6])


PRODUCTS = [by_matmul, by_gemm, by_einsum, by_conv, by_conv_transpose]
W, X, Y = normal(16, 6), normal(8, 16), normal(8, 6)


def model(product):
    graph = tx.Graph(opsets={"ai.onnx": 17})
    x = graph.input("x", "float32", ("batch", 16))
    graph.output("y", product(x, graph.variable("w", W)))
    return graph


def trained(product, **options):
    """The loss of the first step, and the weights after it."""
    graph = model(product)
    step = tt.TrainingStep(graph, "mean_squared_error", tt.SGD(0.1), **options)
    loss = step({"x": X, "labels": Y})["loss"]
    step.write_back()
    return loss, graph.variables[0].data.array()


@pytest.mark.parametrize("narrow", ["float16", "bfloat16"])
@pytest.mark.parametrize("product", PRODUCTS)
def test_products_are_rounded_alike_on_every_backend(product, narrow):
    loss, weights = trained(product, backend="numpy")
    narrow_loss, narrow_weights = trained(product, backend="numpy", precision=narrow)
    result, found_weights = trained(product, backend="onnxruntime", precision=narrow)
    parted = abs(narrow_weights - weights).max()
    assert parted > 1e-6
    assert abs(found_weights - weights).max() > parted / 2
    eps = {"float16": 2.0**-10, "bfloat16": 2.0**-7}[narrow]
    assert result == pytest.approx(narrow_loss, rel=eps)
    assert narrow_loss == pytest.approx(loss, rel=4 * eps)
    if narrow == "float16":
        np.testing.assert_allclose(found_weights, narrow_weights, atol=parted / 4)


@pytest.mark.parametrize("product", PRODUCTS)
def test_half_operands_of_a_step_are_numpys_to_the_last_digit_of_half(product):
    """Computed manually: half operands, and their product rounded to half."""
    half = [a.astype(np.float16).astype(np.float32) for a in (X, W)]
    y = product(*half).astype(np.float16).astype(np.float32)
    expected = np.mean((y - Y) ** 2)
    plain = np.mean((product(X, W) - Y) ** 2)
    for backend in ("numpy", "onnxruntime"):
        loss, _ = trained(product, backend=backend, precision="float16")
        assert abs(loss - expected) < abs(plain - expected) / 4


def test_a_step_that_is_exported_rounds_as_well():
    step = tt.TrainingStep(
        model(by_matmul), "mean_squared_error", tt.SGD(0.1), precision="float16", backend="onnxruntime"
    )
    stream = io.BytesIO()
    step.export(stream)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(stream.getvalue(), options, providers=["CPUExecutionProvider"])
    (loss,) = session.run(["loss"], {"x": X, "labels": Y})
    assert float(loss) == pytest.approx(step({"x": X, "labels": Y})["loss"], rel=1e-6)


def test_a_backend_that_does_not_round_is_refused_by_name(monkeypatch):
    monkeypatch.setattr(precision, "_rounds", lambda *_: False)
    with pytest.raises(InvalidCall, match="does not compute in float16") as caught:
        trained(by_matmul, backend="numpy", precision="float16")
    assert "numpy" in str(caught.value.given)
    trained(by_matmul, backend="numpy", precision="float32")


def test_a_model_without_products_is_refused():
    graph = tx.Graph(opsets={"ai.onnx": 17})
    graph.output("y", graph.input("x", "float32", ("batch", 3)) * graph.variable("w", normal(3)))
    with pytest.raises(InvalidCall, match="the model has no float32"):
        tt.TrainingStep(graph, "mean_squared_error", precision="float16", backend="numpy")


def test_products_of_doubles_stay_so():
    graph = tx.Graph(opsets={"ai.onnx": 17})
    w = graph.variable("w", W.astype(np.float64))
    graph.output("y", ops.matmul(graph.input("x", "float64", ("batch", 16)), w))
    with pytest.raises(InvalidCall, match="the model has no float32"):
        tt.TrainingStep(graph, "mean_squared_error", precision="float16", backend="numpy")
