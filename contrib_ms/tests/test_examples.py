"""The example models of com.microsoft: on numpy, lowered to several versions of ai.onnx, and fine-tuned."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import tenonnx as tx
from tenonnx.formats.onnx.writer import to_model

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(model, feeds):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, feeds)


def samples(name):
    with np.load(EXAMPLES / name / "samples.npz") as arrays:
        return dict(arrays)


def bert():
    """Expected results are those of the model before fusion."""
    feeds = samples("bert")
    expected = feeds.pop("last_hidden_state")
    return EXAMPLES / "bert" / "bert.onnx", feeds, expected


def experts():
    path, feeds = EXAMPLES / "experts" / "experts.onnx", samples("experts")
    return path, feeds, run(path, feeds)[0]


def whisper():
    """Expected results are the generated sequences and their scores."""
    path, feeds = EXAMPLES / "whisper" / "whisper.onnx", samples("whisper")
    return path, feeds, run(path, feeds)


def digits_nhwc():
    """Expected results are those of the channels-first network, since no runtime has CPU kernels for this one."""
    feeds = {"images": np.random.default_rng(0).random((3, 1, 8, 8), np.float32)}
    return EXAMPLES / "digits_nhwc" / "digits-nhwc.onnx", feeds, run(EXAMPLES / "digits_cnn/digits-cnn.onnx", feeds)[0]


@pytest.mark.parametrize("opset_version", [None, 13, 17, 21, 23])
def test_whisper(opset_version):
    path, feeds, expected = whisper()
    graph = tx.load(path)
    if opset_version is None:
        result = list(graph.run(feeds, backend="numpy").values())
    else:
        model = to_model(tx.retarget(graph, opset_version, domains=["ai.onnx"]))
        onnx.checker.check_model(model, full_check=True)
        result = run(model.SerializeToString(), feeds)
    np.testing.assert_array_equal(result[0], expected[0])
    np.testing.assert_allclose(result[1], expected[1], rtol=1e-4)


@pytest.mark.parametrize("opset_version", [None, 13, 17, 21, 23])
@pytest.mark.parametrize("step", ["", "-decode"])
def test_llama(step, opset_version):
    """Compare a prompt and the next token.

    With 4-bit weights, onnxruntime rounds activations to 8 bits, since the builder sets ``accuracy_level`` to 4. The
    builder declares a one-element constant as a scalar.
    """
    path = EXAMPLES / "llama" / "llama.onnx"
    with np.load(EXAMPLES / "llama" / f"samples{step}.npz") as arrays:
        feeds = dict(arrays)
    graph = tx.load(path)
    assert {"GroupQueryAttention", "MatMulNBits"} <= {node.op_type for node in graph.nodes}
    if opset_version is None:
        result = list(graph.run(feeds, backend="numpy").values())
    else:
        model = to_model(tx.retarget(graph, opset_version, domains=["ai.onnx"]))
        onnx.checker.check_model(model)
        result = run(model.SerializeToString(), feeds)
    for mine, theirs in zip(result, run(path, feeds), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=5e-3)


FUSED = {
    bert: {"EmbedLayerNormalization", "Attention", "SkipLayerNormalization", "BiasGelu"},
    experts: {"GroupQueryAttention", "SkipSimplifiedLayerNormalization", "MoE"},
    digits_nhwc: {"NhwcConv"},
}


@pytest.mark.parametrize("example", FUSED)
def test_numpy(example):
    path, feeds, expected = example()
    graph = tx.load(path)
    assert {node.op_type for node in graph.nodes if node.domain == "com.microsoft"} == FUSED[example]
    (result,) = graph.run(feeds, backend="numpy").values()
    np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("opset_version", [13, 17, 21, 23])
@pytest.mark.parametrize("example", FUSED)
def test_plain(example, opset_version):
    path, feeds, expected = example()
    model = to_model(tx.retarget(tx.load(path), opset_version, domains=["ai.onnx"]))
    onnx.checker.check_model(model, full_check=True)
    (result,) = run(model.SerializeToString(), feeds)
    np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("example", FUSED)
def test_gradient(example):
    """Compare the gradient of a weighted sum of the outputs with a finite difference along one direction."""
    path, feeds, expected = example()
    graph = tx.load(path)
    output = graph.outputs[0].name
    name = next(v.name for v in graph.variables if v.name in WEIGHTS)
    random = np.random.default_rng(0)
    seed = random.standard_normal(expected.shape).astype(np.float32)
    slope = tx.grad(graph, of=output, wrt=name, seeds={output: "seed"})
    result = slope.run({**feeds, "seed": seed}, backend="numpy")[f"{name}/grad"]
    direction = random.standard_normal(result.shape).astype(np.float32)
    ends = [(moved(path, name, step * direction).run(feeds, backend="numpy")[output] * seed).sum() for step in STEPS]
    difference = (ends[1] - ends[0]) / (STEPS[1] - STEPS[0])
    np.testing.assert_allclose((result * direction).sum(), difference, rtol=0.05)


WEIGHTS = ("layer_0.inner.weight", "layer_0.outside", "classifier.weight")
STEPS = (-1e-3, 1e-3)


def moved(path, name, change):
    """Return the model with an increment added to one weight."""
    model = onnx.load(path)
    weight = next(tensor for tensor in model.graph.initializer if tensor.name == name)
    weight.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weight) + change, name))
    return tx.load(model)
