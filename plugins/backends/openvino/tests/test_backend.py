"""Graphs on OpenVINO, beyond the results of single ops."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx_training import Adam, TrainingStep


def layer(rows="n"):
    """``relu(x @ w)``, and the sum of its rows."""
    graph = tx.Graph(opsets={"ai.onnx": 18})
    weights = np.random.default_rng(0).standard_normal((3, 4)).astype("f4")
    hidden = ops.relu(ops.matmul(graph.input("x", "float32", (rows, 3)), graph.variable("w", weights)))
    graph.output("y", hidden)
    graph.output("total", ops.reduce_sum(hidden, [0], keepdims=0))
    return graph


def fed(rows, seed=0):
    return {"x": np.random.default_rng(seed).standard_normal((rows, 3)).astype("f4")}


def assert_same(graph, program, feeds):
    expected = graph.run(feeds, backend="numpy")
    result = program(feeds)
    assert result.keys() == expected.keys()
    for name, array in expected.items():
        assert result[name].dtype == array.dtype
        np.testing.assert_allclose(result[name], array, rtol=1e-5, atol=1e-5)


def test_shapes_may_change_from_call_to_call():
    graph = layer()
    program = graph.compile("openvino", strict=True)
    for rows in (2, 5, 2, 7, 0, 1, 7, 5):
        assert_same(graph, program, fed(rows))
    assert program.backend == "openvino"


def test_threads_share_a_program_through_changing_shapes():
    graph = layer()
    program = graph.compile("openvino", strict=True)

    def work(thread):
        for k in range(20):
            assert_same(graph, program, fed(1 + (thread + k) % 5, seed=k))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


def test_results_belong_to_the_caller():
    program = layer(2).compile("openvino", strict=True)
    first = program(fed(2))
    kept = first["y"].copy()
    program(fed(2, seed=1))
    assert (first["y"] == kept).all()
    first["y"][:] = 0


def test_an_input_that_nothing_reads_may_be_fed():
    graph = layer(2)
    graph.input("spare", "int64", ())
    assert_same(graph, graph.compile("openvino", strict=True), {**fed(2), "spare": np.int64(1)})


def test_integers_beyond_32_bits_are_refused():
    graph = tx.Graph(opsets={"ai.onnx": 18})
    graph.output("y", graph.input("x", "int64", (1,)) + 1)
    program = graph.compile("openvino", strict=True)
    assert program({"x": np.int64([5])})["y"].tolist() == [6]
    with pytest.raises(tx.InvalidCall, match='the feed of "x" does not fit in 32 bits') as caught:
        program({"x": np.int64([2**31])})
    assert str(2**31) in caught.value.given
    falling_back = graph.compile("openvino")
    with pytest.warns(tx.FallbackWarning, match="numpy computes what openvino refuses.*32 bits"):
        assert falling_back({"x": np.int64([2**31])})["y"].tolist() == [2**31 + 1]
    assert falling_back({"x": np.int64([5])})["y"].tolist() == [6]


@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_bytes_are_shifted_without_rounding(direction):
    graph = tx.Graph(opsets={"ai.onnx": 18})
    x, count = graph.input("x", "uint8", (256, 1)), graph.input("count", "uint8", (4,))
    graph.output("y", ops.bitshift(x, count, direction=direction))
    feeds = {"x": np.arange(256, dtype="u1")[:, None], "count": np.array([0, 1, 4, 7], "u1")}
    assert_same(graph, graph.compile("openvino", strict=True), feeds)


EXAMPLES = Path(__file__).parents[4] / "examples"


#: Models and their sample inputs.
MODELS = {
    "bert/bert": "bert/samples",
    "decoder/decoder": "decoder/samples",
    "experts/experts": "experts/samples",
    "gpt2/gpt2": "gpt2/samples",
    "llama/llama": "llama/samples",
    "whisper/whisper": "whisper/samples",
    "quantized/llama-4bit": "quantized/llama",
    "quantized/resnet-qdq": "quantized/resnet",
}


#: Allowed difference of outputs: two quantization steps, where OpenVINO's int8 kernels round differently.
STEPS = {"quantized/resnet-qdq": 0.019}


@pytest.mark.parametrize("name", MODELS)
def test_the_examples_agree_with_numpy(name):
    """Includes ops of com.microsoft, which are lowered before the list of deviating ops is applied."""
    graph = tx.load(EXAMPLES / f"{name}.onnx")
    with np.load(EXAMPLES / f"{MODELS[name]}.npz") as archive:
        feeds = {value.name: archive[value.name] for value in graph.inputs}
    expected, result = graph.run(feeds, backend="numpy"), graph.compile("openvino", strict=True)(feeds)
    for each in expected:
        np.testing.assert_allclose(result[each], expected[each], rtol=1e-3, atol=STEPS.get(name, 1e-4))


@pytest.mark.parametrize("dtype", ["float64", "string", "complex64"])
def test_types_that_it_lacks_are_left_to_numpy(dtype):
    graph = tx.Graph(opsets={"ai.onnx": 18})
    graph.output("y", ops.identity(graph.input("x", dtype, (1,))))
    with pytest.raises(tx.UnsupportedOp, match="does not support these types") as caught:
        graph.compile("openvino", strict=True)
    assert f"x: {dtype}[1]" in caught.value.given
    with pytest.warns(tx.FallbackWarning, match="OpenVINO"):
        assert graph.compile("openvino").backend == "numpy"


def test_ops_that_it_lacks_are_expanded():
    graph = tx.load(
        onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 20]>
        g (float[1,1,4,4] x) => (float[1,1,4,4] y) {
            pooled, places = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)
            y = MaxUnpool <kernel_shape = [2, 2], strides = [2, 2]> (pooled, places)
        }""")
    )
    x = np.random.default_rng(0).standard_normal((1, 1, 4, 4)).astype("f4")
    assert_same(graph, graph.compile("openvino", strict=True), {"x": x})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "TOASTER"}, "device"),
        ({"properties": ["f32"]}, "mapping"),
        ({"threads": 0}, "threads is not a positive integer"),
        ({"properties": {"SPEED": 1}}, "the device CPU does not have"),
        ({"properties": {"INFERENCE_NUM_THREADS": "many"}}, "INFERENCE_NUM_THREADS"),
        ({"speed": 2}, "backend openvino does not take these options"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(tx.InvalidCall, match=message):
        layer(2).compile("openvino", **options)


def test_properties_reach_the_device():
    graph = layer(2)
    program = graph.compile("openvino", strict=True, properties={"INFERENCE_NUM_THREADS": 1})
    assert_same(graph, program, fed(2))


def test_unsupported_models_raise_our_errors():
    graph = tx.Graph(opsets={"ai.onnx": 18})
    x, places = graph.input("x", "float32", (4,)), graph.input("places", "int64", (2,))
    graph.output("y", ops.gather_elements(x, places))
    program = graph.compile("openvino", strict=True)
    feeds = {"x": np.arange(4, dtype="f4"), "places": np.int64([1, -1])}
    assert program(feeds)["y"].tolist() == [1, 3]
    with pytest.raises(tx.InvalidCall, match="OpenVINO cannot compute"):
        program({**feeds, "places": np.int64([1, 4])})
    assert program(feeds)["y"].tolist() == [1, 3]


def test_a_shape_that_is_fed_is_left_to_numpy():
    graph = tx.Graph(opsets={"ai.onnx": 18})
    graph.output("y", ops.reshape(graph.input("x", "float32", (4,)), graph.input("shape", "int64", (2,))))
    with pytest.raises(tx.UnsupportedOp, match="Reshape"):
        graph.compile("openvino", strict=True)


def test_a_run_ends_at_its_deadline():
    program = layer().compile("openvino", deadline=1e-9)
    with pytest.raises(tx.LimitExceeded, match="deadline"):
        program(fed(2))


def network():
    """An image through a convolution, a pooling and a dense layer."""
    random = np.random.default_rng(0)
    graph = tx.Graph(opsets={"ai.onnx": 18})
    image = graph.input("x", "float32", ("n", 1, 6, 6))
    kernel = graph.variable("kernel", random.standard_normal((2, 1, 3, 3)).astype("f4"))
    pooled = ops.max_pool(ops.relu(ops.conv(image, kernel)), kernel_shape=[2, 2], strides=[2, 2])
    weights = graph.variable("weights", random.standard_normal((8, 3)).astype("f4"))
    graph.output("scores", ops.matmul(ops.flatten(pooled), weights))
    return graph


def test_training_in_halves_is_refused_by_name():
    """OpenVINO removes casts to float16 and back on CPUs: losses would be those of float32."""
    graph = tx.Graph(opsets={"ai.onnx": 17})
    w = graph.variable("w", np.ones((3, 2), np.float32))
    graph.output("y", ops.matmul(graph.input("x", "float32", ("batch", 3)), w))
    with pytest.raises(tx.errors.InvalidCall, match="does not compute in float16") as caught:
        TrainingStep(graph, "mean_squared_error", Adam(0.1), precision="float16", backend="openvino")
    assert "openvino" in str(caught.value.given)


def test_training_has_the_losses_of_numpy():
    random = np.random.default_rng(1)
    batches = [
        {"x": random.standard_normal((rows, 1, 6, 6)).astype("f4"), "labels": random.integers(0, 3, rows)}
        for rows in (4, 4, 3, 4)
    ]
    losses, trained = {}, {}
    for backend in ("numpy", "openvino"):
        step = TrainingStep(network(), "softmax_cross_entropy", Adam(1e-2), backend=backend)
        losses[backend] = [step(batch)["loss"] for batch in batches]
        assert step.program.backend == backend
        trained[backend] = {v.name: v.data.array() for v in step.write_back().variables}
    np.testing.assert_allclose(losses["openvino"], losses["numpy"], rtol=1e-4)
    for name, array in trained["numpy"].items():
        np.testing.assert_allclose(trained["openvino"][name], array, atol=1e-4)


@pytest.mark.parametrize(("kind", "gates"), [("lstm", 4), ("gru", 3), ("rnn", 1)])
def test_recurrences_of_any_length_are_trained(kind, gates):
    draw, losses = np.random.default_rng(0), {}
    weights = [draw.normal(size=(1, gates * 4, size)).astype(np.float32) * 0.3 for size in (3, 4)]
    batches = [draw.normal(size=(length, 2, 3)).astype(np.float32) for length in (5, 7)]
    for backend in ("numpy", "openvino"):
        graph = tx.Graph(opsets={"ai.onnx": 17})
        x = graph.input("x", "float32", ("s", "b", 3))
        w, r = (graph.variable(name, each) for name, each in zip("wr", weights, strict=True))
        graph.output("y", ops.squeeze(getattr(ops, kind)(x, w, r, hidden_size=4)[1], [0]))
        step = TrainingStep(graph, "mean_squared_error", Adam(1e-2), backend=backend)  # a fallback would warn
        losses[backend] = [step({"x": x, "labels": np.zeros((2, 4), np.float32)})["loss"] for x in batches]
    assert losses["openvino"] == pytest.approx(losses["numpy"], rel=1e-5)
