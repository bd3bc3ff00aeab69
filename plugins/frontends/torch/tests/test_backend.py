"""The torch backend, beyond the results of single ops."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

import tenonnx as tx
import tenonnx_standard as ops
import tenonnx_training as tt

EXAMPLES = Path(__file__).parents[4] / "examples"


def layer(rows="n"):
    """``relu(x @ w)``, and the sum of its rows."""
    graph = tx.Graph(opsets={"ai.onnx": 18})
    weights = np.random.default_rng(0).standard_normal((3, 4)).astype("f4")
    hidden = ops.relu(ops.matmul(graph.input("x", "float32", (rows, 3)), graph.variable("w", weights)))
    graph.output("y", hidden)
    graph.output("total", ops.reduce_sum(hidden, [0], keepdims=0))
    return graph


def fed(rows, seed=0):
    return np.random.default_rng(seed).standard_normal((rows, 3)).astype("f4")


def assert_same(expected, found):
    assert list(found) == list(expected)
    for name, array in expected.items():
        np.testing.assert_allclose(np.asarray(found[name]), array, rtol=1e-5, atol=1e-5)
        assert np.asarray(found[name]).dtype == array.dtype


def test_shapes_may_change_from_call_to_call():
    graph = layer()
    program = graph.compile("torch", strict=True)
    for rows in (2, 5, 2, 7, 0, 1):
        feeds = {"x": fed(rows)}
        assert_same(graph.run(feeds, backend="numpy"), program(feeds))
    assert program.backend == "torch"


def test_threads_share_a_program():
    graph = layer()
    program = graph.compile("torch", strict=True)

    def work(thread):
        for k in range(20):
            feeds = {"x": fed(1 + (thread + k) % 5, seed=k)}
            assert_same(graph.run(feeds, backend="numpy"), program(feeds))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


# ----- arrays of other libraries --------------------------------------------------------------------------------------


def test_tensors_come_back_where_tensors_go_in():
    graph, x = layer(), torch.from_numpy(fed(2)).requires_grad_()
    result = graph.compile("torch", strict=True)({"x": x})
    assert all(isinstance(each, torch.Tensor) and not each.requires_grad for each in result.values())
    assert_same(graph.run({"x": fed(2)}, backend="numpy"), result)


class Array:
    """An array of a library that supports only DLPack."""

    def __init__(self, held):
        self.held = held
        self.shape = held.shape

    def __dlpack__(self, **keywords):
        return self.held.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.held.__dlpack_device__()

    def __array_namespace__(self):
        return Array

    @staticmethod
    def from_dlpack(other):
        return Array(np.from_dlpack(other))


def test_arrays_of_any_library_come_back_by_dlpack():
    graph = layer()
    result = graph.compile("torch", strict=True)({"x": Array(fed(2))})
    assert {type(each) for each in result.values()} == {Array}
    assert_same(graph.run({"x": fed(2)}, backend="numpy"), {name: each.held for name, each in result.items()})


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_results_share_no_memory_with_feeds_constants_or_each_other(kind):
    graph = tx.Graph(opsets={"ai.onnx": 18})
    x, w = graph.input("x", "float32", (3,)), graph.variable("w", np.ones(3, "f4"))
    y = x + 1.0
    for name, value in {"same": x, "fixed": w, "sum": y, "turned": ops.reshape(y, [3, 1])}.items():
        graph.output(name, ops.identity(value))
    program, given = graph.compile("torch", strict=True), kind(np.zeros(3, "f4"))
    for _ in range(2):
        result = program({"x": given})
        for each in result.values():
            assert np.asarray(each).tolist() in ([0, 0, 0], [1, 1, 1], [[1], [1], [1]])
            each[...] = 5
            assert sum(bool((np.asarray(other) == 5).all()) for other in result.values()) == 1
            each[...] = 1
        assert np.asarray(given).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("feed", "given"),
    [
        (torch.zeros(2, 4), "float32 array of shape \\(2, 4\\)"),
        (torch.zeros(2, 3, dtype=torch.complex64), "complex64 array"),
        (torch.zeros(2, 3, device="meta", dtype=torch.float16), "torch.float16 of shape .2, 3. on meta"),
        (np.zeros((2, 3), "c8"), "complex64"),
    ],
)
def test_tensors_of_another_type_are_refused(feed, given):
    with pytest.raises(tx.InvalidFeed, match='input "x" got a feed that is not float32') as caught:
        layer().compile("torch")({"x": feed})
    assert caught.match(given)
    with pytest.raises(tx.InvalidFeed, match='no input is called "z"'):
        layer().compile("torch")({"x": fed(1), "z": torch.zeros(1)})


def test_tensors_are_cast_with_a_warning():
    with pytest.warns(UserWarning, match='input "x": float64 is cast to float32'):
        result = layer().compile("torch", strict=True)({"x": torch.ones(2, 3, dtype=torch.float64)})
    assert result["y"].dtype is torch.float32


# ----- devices --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bert/bert", "digits/digits", "gpt2/gpt2"])
def test_everything_is_on_the_device(name):
    """On the device ``meta``, which has no contents, mixing with a CPU tensor raises an error."""
    graph = tx.load(EXAMPLES / f"{name}.onnx")
    with np.load(EXAMPLES / Path(name).parent / "samples.npz") as archive:
        feeds = {value.name: archive[value.name] for value in graph.inputs}
    expected = graph.run(feeds, backend="numpy")
    program = graph.compile("torch", device="meta", strict=True)
    result = program({key: torch.from_numpy(array).to("meta") for key, array in feeds.items()})
    for key, array in expected.items():
        assert (result[key].device.type, tuple(result[key].shape)) == ("meta", array.shape)


def test_nodes_that_numpy_computes_are_reported():
    graph = tx.Graph(opsets={"ai.onnx": 18})
    x = graph.input("x", "float32", (1, 1, 2, 2))
    graph.output("y", ops.cast(ops.cast(x, to="uint16"), to="float32"))
    assert graph.compile("torch", strict=True)({"x": np.ones((1, 1, 2, 2), "f4")})["y"].sum() == 4
    feeds = {"x": torch.ones(1, 1, 2, 2, device="meta")}
    with pytest.raises(tx.UnsupportedOp, match=r"PyTorch does not compute .*Cast.* on meta"):
        graph.compile("torch", device="meta", strict=True)(feeds)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"device": "cuda:7"}, "PyTorch does not find the device"),
        ({"device": "abacus"}, "PyTorch does not find the device"),
        ({"device": None}, "PyTorch does not find the device"),
        ({"compiled": "quickly"}, "compiled is not a backend of torch.compile"),
        ({"compiled": 3}, "compiled is neither True, False nor"),
        ({"threads": 1}, "the backend torch does not take these options"),
    ],
)
def test_wrong_options_are_refused(options, word):
    if options.get("device") == "cuda:7" and torch.cuda.device_count() > 7:
        pytest.skip("this machine has that many")
    with pytest.raises(tx.InvalidCall, match=word):
        layer().compile("torch", **options)


# ----- torch.compile --------------------------------------------------------------------------------------------------


def test_a_graph_is_compiled_for_two_kinds_of_feeds():
    graph = layer()
    program = graph.compile("torch", compiled="aot_eager", strict=True)
    for rows in (2, 5, 2, 7, 5):
        assert_same(graph.run({"x": fed(rows)}, backend="numpy"), program({"x": fed(rows)}))


def test_the_default_compiler_has_the_same_results():
    graph = layer(2)
    program = graph.compile("torch", compiled=True, strict=True)
    assert_same(graph.run({"x": fed(2)}, backend="numpy"), program({"x": fed(2)}))


def of_contents():
    graph = tx.Graph(opsets={"ai.onnx": 18})
    x = graph.input("x", "float32", (4,))
    graph.output("y", ops.expand(x, ops.cast(ops.reshape(ops.reduce_max(x), [1]), to="int64")))
    return graph


def of_numpy():
    graph = tx.Graph(opsets={"ai.onnx": 18})
    graph.output("y", ops.cast(ops.cast(graph.input("x", "float32", (4,)), to="uint16"), to="int64"))
    return graph


def drawn():
    graph = tx.Graph(opsets={"ai.onnx": 18})
    x = graph.input("x", "float32", (4,))
    graph.output("y", x + ops.random_normal_like(x))
    return graph


@pytest.mark.parametrize("make", [of_contents, of_numpy, drawn])
def test_uncompilable_graphs_are_reported_and_run(make):
    graph, feeds = make(), {"x": np.float32([0, 1, 4, 0])}
    with pytest.raises(tx.UnsupportedOp, match="nodes that PyTorch does not compute"):
        graph.compile("torch", compiled="aot_eager", strict=True)(feeds)
    program = graph.compile("torch", compiled="aot_eager")
    with pytest.warns(tx.FallbackWarning, match="PyTorch runs the graph node by node"):
        first = program(feeds)["y"]
    again = program(feeds)["y"]
    if make is drawn:
        assert (first != again).any()
    else:
        assert (again == graph.run(feeds, backend="numpy")["y"]).all()


# ----- unsimplified graphs --------------------------------------------------------------------------------------------


def test_text_and_what_pytorch_lacks_are_computed_by_numpy():
    graph = tx.Graph(opsets={"ai.onnx": 20})
    text, other = graph.input("text", "string", (2,)), graph.input("other", "string", (2,))
    graph.output("joined", ops.string_concat(text, other))
    result = graph.compile("torch", strict=True)(
        {"text": np.array(["a", "b"], object), "other": np.array(["c", "d"], object)}
    )
    assert result["joined"].tolist() == ["ac", "bd"]


def test_a_call_that_pytorch_refuses_is_rescued_or_explained():
    graph = tx.Graph(opsets={"ai.onnx": 18})
    graph.output("y", ops.gather(graph.input("x", "float32", (3,)), graph.input("k", "int64", ("n",))))
    program = graph.compile("torch")
    with pytest.raises(tx.TenonnxError, match="Gather"):
        program({"x": np.zeros(3, "f4"), "k": np.int64([7])})
    assert program({"x": np.float32([1, 2, 3]), "k": np.int64([-1])})["y"].tolist() == [3]


def test_a_call_ends_at_its_deadline():
    graph = tx.Graph(opsets={"ai.onnx": 18})
    y = graph.input("x", "float32", (400, 400))
    for _ in range(200):
        y = ops.matmul(y, y)
    graph.output("y", y)
    with pytest.raises(tx.LimitExceeded):
        graph.compile("torch", deadline=1e-4)({"x": np.zeros((400, 400), "f4")})


@pytest.mark.parametrize("options", [{}, {"compiled": "aot_eager"}], ids=["node by node", "compiled"])
def test_arithmetic_of_uint32_wraps_around(options):
    graph = tx.Graph(opsets={"ai.onnx": 18})
    a, b = graph.input("a", "uint32", ("n",)), graph.input("b", "uint32", ("n",))
    wide = ops.cast(a * (2 * a + 1) + b, to="int64")
    result = {"p": wide, "q": a * 7 / np.uint32(3)}
    result |= {side: ops.bitshift(a, b, direction=side) for side in ("LEFT", "RIGHT")}
    for name, value in result.items():
        graph.output(name, value)
    feeds = {"a": np.uint32([0, 1, 2**31 + 5, 2**32 - 1, 7]), "b": np.uint32([0, 31, 32, 5, 2**32 - 1])}
    assert_same(graph.run(feeds, backend="numpy"), graph.compile("torch", strict=True, **options)(feeds))


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


@pytest.mark.parametrize("name", MODELS)
def test_the_examples_agree_with_numpy(name):
    graph = tx.load(EXAMPLES / f"{name}.onnx")
    with np.load(EXAMPLES / f"{MODELS[name]}.npz") as archive:
        feeds = {value.name: archive[value.name] for value in graph.inputs}
    expected, result = graph.run(feeds, backend="numpy"), graph.compile("torch", strict=True)(feeds)
    for each in expected:
        np.testing.assert_allclose(result[each], expected[each], rtol=2e-5, atol=2e-5)


# ----- training -------------------------------------------------------------------------------------------------------


def digits():
    with np.load(EXAMPLES / "digits_cnn/digits.npz") as archive:
        return archive["images"][:200], archive["labels"][:200]


@pytest.mark.parametrize("options", [{}, {"compiled": "aot_eager"}], ids=["node by node", "compiled"])
def test_state_is_that_of_numpy_after_100_steps(options):
    images, labels = digits()
    trained = {}
    for backend, more in {"numpy": {}, "torch": options}.items():
        graph = tx.load(EXAMPLES / "digits_cnn/digits-cnn.onnx")
        step = tt.TrainingStep(
            graph, loss="softmax_cross_entropy", optimizer=tt.Momentum(1e-2), backend=backend, **more
        )
        for k in range(100):
            step({"images": images[k : k + 8], "labels": labels[k : k + 8]})
        step.write_back()
        trained[backend] = {value.name: np.asarray(value) for value in graph.variables}
    for name, array in trained["numpy"].items():
        bound = 1e-5 * np.abs(array).max(initial=0)
        np.testing.assert_allclose(trained["torch"][name], array, rtol=0, atol=bound, err_msg=name)


def test_fit_trains_on_a_device_and_refuses_a_missing_one():
    images, labels = digits()
    graph = tx.load(EXAMPLES / "digits_cnn/digits-cnn.onnx")
    options = {"loss": "softmax_cross_entropy", "optimizer": tt.Adam(8e-3), "epochs": 2, "batch_size": 24}
    history = tt.fit(graph, (images, labels), backend="torch", device="cpu", **options)
    assert history.epochs[-1]["loss"] < history.epochs[0]["loss"]
    with pytest.raises(tx.InvalidCall, match="does not find the device"):
        tt.fit(graph, (images, labels), backend="torch", device="abacus", **options)


# ----- comparison with other backends ---------------------------------------------------------------------------------


def test_reading_a_file_imports_no_pytorch():
    code = (
        "import sys, tenonnx as tx; from tenonnx_run.base import backends;"
        f"tx.load({str(EXAMPLES / 'digits/digits.onnx')!r}); assert backends()['torch'].load().speed;"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
