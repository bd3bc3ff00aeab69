"""Files of onnxruntime's optimizer: loading, running on numpy, and lowering to ai.onnx."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import tenonnx as tx
from tenonnx.formats.onnx.writer import to_model
from tenonnx_contrib_ms.nchwc import NARROW, NCHWC, block_of_this_machine

ROOT = Path(__file__).parents[2]
DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"

#: Models that the optimizer changes in many ways; models of the onnx package have static shapes.
MODELS = {
    "decoder": ROOT / "examples/decoder/decoder.onnx",
    "digits": ROOT / "examples/digits/digits.onnx",
    "digits-cnn": ROOT / "examples/digits_cnn/digits-cnn.onnx",
    "pytorch-cnn": ROOT / "plugins/training/tests/pytorch/cnn.onnx",
    "pytorch-lstm": ROOT / "plugins/training/tests/pytorch/lstm.onnx",
    "pytorch-transformer": ROOT / "plugins/training/tests/pytorch/transformer.onnx",
    **{
        name: DATA / "pytorch-converted" / f"test_{name}" / "model.onnx"
        for name in ("Conv2d_depthwise_padded", "Conv2d_groups", "ConvTranspose2d", "Softmax")
    },
}
LEVELS = {"basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED", "all": "ORT_ENABLE_ALL"}


def options(level="ORT_DISABLE_ALL"):
    result = onnxruntime.SessionOptions()
    result.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    result.intra_op_num_threads = 1
    result.log_severity_level = 4
    return result


def run(model, feeds):
    model = model if isinstance(model, str) else model.SerializeToString()
    session = onnxruntime.InferenceSession(model, options(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def feeds_of(path):
    """Return the sample inputs of the model, or small random numbers with unknown dims set to 2."""
    if (path.parent / "samples.npz").exists():
        with np.load(path.parent / "samples.npz") as samples:
            return {name: samples[name] for name in samples if name != "labels"}
    random = np.random.default_rng(0)
    session = onnxruntime.InferenceSession(str(path), options(), providers=["CPUExecutionProvider"])
    feeds = {}
    for given in session.get_inputs():
        shape = [dim if isinstance(dim, int) else 2 for dim in given.shape]
        if given.type == "tensor(float)":
            feeds[given.name] = random.standard_normal(shape).astype(np.float32)
        else:
            feeds[given.name] = random.integers(0, 2, shape).astype(given.type[7:-1])
    return feeds


def assert_close(found, expected):
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-4 * max(1, np.abs(theirs).max(initial=0)))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", MODELS)
def test_optimized_models(name, level, tmp_path):
    path, feeds = MODELS[name], feeds_of(MODELS[name])
    expected = run(str(path), feeds)
    written = optimized(path, level, tmp_path)
    graph = tx.load(written)
    assert_close(graph.run(feeds, backend="numpy").values(), expected)
    for opset_version in (13, 17, 21, 23):
        model = to_model(tx.retarget(graph, opset_version, domains=["ai.onnx"]))
        onnx.checker.check_model(model, full_check=True)
        assert_close(run(model, feeds), expected)


def optimized(path, level, folder):
    written = folder / "optimized.onnx"
    expected = options(LEVELS[level])
    expected.optimized_model_filepath = str(written)
    onnxruntime.InferenceSession(str(path), expected, providers=["CPUExecutionProvider"])
    return written


@pytest.mark.parametrize(
    ("name", "kind", "written"),
    [
        ("pytorch-transformer", "bert", {"SkipLayerNormalization"}),
        ("pytorch-cnn", "unet", {"NhwcConv"}),
        ("digits-cnn", "unet", {"NhwcConv"}),
    ],
)
def test_models_of_the_transformer_optimizer(name, kind, written, tmp_path):
    from onnxruntime.transformers.optimizer import optimize_model

    path, feeds = MODELS[name], feeds_of(MODELS[name])
    expected = run(str(path), feeds)
    optimize_model(str(path), kind, opt_level=0).save_model_to_file(str(tmp_path / "optimized.onnx"))
    graph = tx.load(tmp_path / "optimized.onnx")
    assert {node.op_type for node in graph.nodes if node.domain == "com.microsoft"} == written
    assert_close(graph.run(feeds, backend="numpy").values(), expected)
    for opset_version in (13, 23):
        model = to_model(tx.retarget(graph, opset_version, domains=["ai.onnx"]))
        onnx.checker.check_model(model, full_check=True)
        assert_close(run(model, feeds), expected)


# ----- blocked channels -----------------------------------------------------------------------------------------------


def convolutions(kernels, **attributes):
    """Return a model of successive NCHWc convolutions with these ``kernels``."""
    nodes, last = [], "x"
    for k in range(len(kernels)):
        nodes.append(onnx.helper.make_node("Conv", [last, f"w{k}"], [f"y{k}"], domain=NCHWC, **attributes))
        last = f"y{k}"
    channels = kernels[-1].shape[0]
    nodes.append(onnx.helper.make_node("ReorderOutput", [last], ["y"], domain=NCHWC, channels=channels))
    infos = [onnx.helper.make_tensor_value_info(name, 1, [1, 3, 5, 5] if name == "x" else None) for name in "xy"]
    weights = [onnx.numpy_helper.from_array(w, f"w{k}") for k, w in enumerate(kernels)]
    graph = onnx.helper.make_graph(nodes, "blocks", infos[:1], infos[1:], weights)
    imports = [onnx.helper.make_opsetid("", 13), onnx.helper.make_opsetid(NCHWC, 1)]
    return onnx.helper.make_model(graph, opset_imports=imports, ir_version=8)


def in_blocks(w, size, depth):
    results, channels, height, width = w.shape
    parts = w.reshape(results // size, size, channels // depth, depth, height, width)
    return parts.transpose(0, 2, 4, 5, 3, 1).reshape(w.shape)


def test_the_size_of_blocks_follows_from_all_kernels():
    """Blocks of 32 channels may have size 8 or 16; the next convolution has 24, so the size is 8."""
    random = np.random.default_rng(0)
    shapes = [(2 * block_of_this_machine(), 3, 3, 3), (3 * NARROW, 2 * block_of_this_machine(), 1, 1)]
    plain = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    graph = tx.load(convolutions([in_blocks(plain[0], NARROW, 1), in_blocks(plain[1], NARROW, NARROW)]))
    x = random.standard_normal((1, 3, 5, 5)).astype(np.float32)
    nodes = [onnx.helper.make_node("Conv", ["x", "w0"], ["y0"]), onnx.helper.make_node("Conv", ["y0", "w1"], ["y"])]
    infos = [onnx.helper.make_tensor_value_info(name, 1, [1, 3, 5, 5] if name == "x" else None) for name in "xy"]
    weights = [onnx.numpy_helper.from_array(w, f"w{k}") for k, w in enumerate(plain)]
    graph_of = onnx.helper.make_graph(nodes, "plain", infos[:1], infos[1:], weights)
    model = onnx.helper.make_model(graph_of, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
    assert_close(graph.run({"x": x}, backend="numpy").values(), run(model, {"x": x}))


def test_blocked_convolutions_are_lowered_to_plain_ones():
    kernels = [np.zeros((16, 3, 1, 1), np.float32), np.zeros((16, 16, 1, 1), np.float32)]
    moved = tx.retarget(tx.load(convolutions(kernels)), 13, domains=["ai.onnx"])
    convolutions_of = [node for node in moved.nodes if node.op_type == "Conv"]
    assert convolutions_of[1].inputs[0] is convolutions_of[0].outputs[0]
    assert moved.nodes[-1].inputs[0] is convolutions_of[1].outputs[0]


def test_channels_that_do_not_fill_blocks_are_rejected():
    graph = tx.load(convolutions([np.zeros((12, 3, 1, 1), np.float32)]))
    with pytest.raises(tx.TenonnxError, match="number of channels is not a multiple of 8 or 16"):
        graph.run({"x": np.zeros((1, 3, 5, 5), np.float32)}, backend="numpy")
