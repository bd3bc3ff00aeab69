"""Sources: SavedModels, frozen graphs, Keras files, functions, with and without TensorFlow."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tenonnx as tx
from tenonnx_tensorflow import rule

L = keras.layers


@pytest.fixture
def network() -> Any:
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [keras.Input((4,), name="features"), L.Dense(5, "relu", name="hidden"), L.Dense(3, "softmax")]
    )


X = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)


def _frozen(function: Any, spec: Any, path: Path) -> Path:
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    concrete = tf.function(function).get_concrete_function(spec)
    path.write_bytes(convert_variables_to_constants_v2(concrete).graph.as_graph_def().SerializeToString())
    return path


def test_saved_model_of_keras(network: Any, tmp_path: Path) -> None:
    network.export(tmp_path / "model", verbose=False)
    graph = tx.load(tmp_path / "model")
    (inputs,), (outputs,) = graph.inputs, graph.outputs
    assert str(inputs.type) == "float32[batch, 4]"
    assert {v.name.rsplit("/", 1)[-1] for v in graph.variables} == {"kernel", "bias"}
    np.testing.assert_allclose(graph.run({inputs.name: X})[outputs.name], network(X), rtol=1e-5)


def test_saved_model_of_a_module(tmp_path: Path) -> None:
    class Module(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = tf.Variable(np.arange(8, dtype=np.float32).reshape(4, 2), name="w")
            self.table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a", "b"], [1.0, 2.0]), 0.0)

        @tf.function(
            input_signature=[tf.TensorSpec([None, 4], name="x"), tf.TensorSpec([None], tf.string, name="word")]
        )
        def score(self, x: Any, word: Any) -> Any:
            return {"score": x @ self.w + self.table.lookup(word)[:, None], "size": tf.shape(x)[0]}

    module = Module()
    tf.saved_model.save(module, str(tmp_path), signatures={"score": module.score})
    graph = tx.load(tmp_path, signature="score")
    assert [v.name for v in graph.inputs] == ["word", "x"]
    words = np.asarray(["a", "c", "b"], object)
    result = graph.run({"x": X, "word": words})
    np.testing.assert_allclose(result["score"], module.score(X, words)["score"], rtol=1e-6)
    assert result["size"] == 3
    with pytest.raises(tx.InvalidCall, match="available  score"):
        tx.load(tmp_path, signature="other")


def test_table_from_a_file(tmp_path: Path) -> None:
    vocabulary = tmp_path / "words.txt"
    vocabulary.write_text("red\ngreen\nblue\n")

    class Module(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            source = tf.lookup.TextFileInitializer(
                str(vocabulary),
                tf.string,
                tf.lookup.TextFileIndex.WHOLE_LINE,
                tf.int64,
                tf.lookup.TextFileIndex.LINE_NUMBER,
            )
            self.table = tf.lookup.StaticHashTable(source, -1)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="word")])
        def __call__(self, word: Any) -> Any:
            return self.table.lookup(word)

    module = Module()
    tf.saved_model.save(module, str(tmp_path / "model"), signatures=module.__call__)
    vocabulary.unlink()
    graph = tx.load(tmp_path / "model")
    result = graph.run({"word": np.asarray(["blue", "pink", "red"], object)})
    np.testing.assert_array_equal(result["output_0"], [2, -1, 0])


def test_frozen_graph(network: Any, tmp_path: Path) -> None:
    """Without any options."""
    path = _frozen(lambda x: network(x), tf.TensorSpec([None, 4], name="x"), tmp_path / "net.pb")
    graph = tx.load(path)
    np.testing.assert_allclose(next(iter(graph.run({"x": X}).values())), network(X), rtol=1e-5)


def test_part_of_a_frozen_graph(tmp_path: Path) -> None:
    path = _frozen(
        lambda x: tf.nn.relu(tf.nn.relu(x, name="first") * 2.0 - 1.0, name="second"),
        tf.TensorSpec([None, 4], name="x"),
        tmp_path / "net.pb",
    )
    graph = tx.load(path, outputs=["first"])
    np.testing.assert_array_equal(graph.run({"x": X})["first"], np.maximum(X, 0))
    graph = tx.load(path, inputs=["first"], outputs=["second"], shapes={"first": ["n", 4]}, verify=False)
    np.testing.assert_array_equal(graph.run({"first": X})["second"], np.maximum(X * 2 - 1, 0))
    with pytest.raises(tx.InvalidCall, match="available"):
        tx.load(path, outputs=["frist"])


def _graph_v1(build: Any, path: Path) -> Path:
    graph = tf.Graph()
    with graph.as_default():
        tf.compat.v1.disable_control_flow_v2()
        try:
            build()
        finally:
            tf.compat.v1.enable_control_flow_v2()
    path.write_bytes(graph.as_graph_def().SerializeToString())
    return path


def test_branches_and_loops_of_tensorflow_1(tmp_path: Path) -> None:
    def build() -> None:
        x = tf.compat.v1.placeholder(tf.float32, [None, 4], name="x")
        taken = tf.compat.v1.cond(tf.reduce_sum(x) > 0, lambda: x * 2, lambda: x - 1)
        _, total = tf.compat.v1.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 0.5 + taken), [0, x])
        tf.identity(total, name="y")

    path = _graph_v1(build, tmp_path / "old.pb")
    graph = tx.load(path)
    for x in (X, -X):
        taken = x * 2 if x.sum() > 0 else x - 1
        total = x
        for _ in range(3):
            total = total * 0.5 + taken
        np.testing.assert_allclose(graph.run({"x": x})["y"], total, rtol=1e-5)


def test_arrays_of_tensorflow_1(tmp_path: Path) -> None:
    def build() -> None:
        x = tf.compat.v1.placeholder(tf.float32, [5, 4], name="x")
        tf.identity(tf.map_fn(lambda r: r * 2 + tf.reduce_sum(r), x), name="y")

    graph = tx.load(_graph_v1(build, tmp_path / "old.pb"))
    x = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)
    np.testing.assert_allclose(graph.run({"x": x})["y"], x * 2 + x.sum(1, keepdims=True), rtol=1e-5)


def test_keras_file(network: Any, tmp_path: Path) -> None:
    network.save(tmp_path / "net.keras")
    graph = tx.load(tmp_path / "net.keras")
    assert [str(v.type) for v in graph.inputs] == ["float32[batch, 4]"]


def test_files_need_no_tensorflow(network: Any, tmp_path: Path) -> None:
    network.export(tmp_path / "model", verbose=False)
    _frozen(lambda x: network(x), tf.TensorSpec([None, 4], name="x"), tmp_path / "net.pb")
    (tmp_path / "net.tflite").write_bytes(tf.lite.TFLiteConverter.from_keras_model(network).convert())
    program = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("tensorflow", "keras"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Blocked())
import importlib.util
found = importlib.util.find_spec
missing = ("tensorflow", "keras", "ai_edge_litert")
importlib.util.find_spec = lambda name, package=None: None if name in missing else found(name, package)
import numpy as np, tenonnx as tx
x = np.load(sys.argv[4])
for path in sys.argv[1:4]:
    graph = tx.load(path)
    (value,) = graph.inputs
    print(next(iter(graph.run({value.name: x}).values())).round(5).tolist())
"""
    np.save(tmp_path / "x.npy", X)
    paths = [str(tmp_path / name) for name in ("model", "net.pb", "net.tflite", "x.npy")]
    done = subprocess.run([sys.executable, "-c", program, *paths], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    for line in lines:
        np.testing.assert_allclose(np.asarray(eval(line)), network(X), atol=2e-5)


def test_names_and_dims(network: Any) -> None:
    graph = tx.load(network, dims={"features": {0: "rows"}}, output_names=["scores"])
    assert [str(v.type) for v in (*graph.inputs, *graph.outputs)] == ["float32[rows, 4]", "float32[rows, 3]"]
    graph = tx.load(network, shapes={"features": [7, 4]}, input_names=["x"])
    assert [f"{v.name} {v.type}" for v in graph.inputs] == ["x float32[7, 4]"]


_RECURRENT = [
    *((layer, options) for layer in ("LSTM", "GRU", "SimpleRNN") for options in ({}, {"use_bias": False})),
    ("GRU", {"reset_after": False}),
    ("GRU", {"reset_after": False, "use_bias": False}),
]


@pytest.mark.parametrize(("layer", "options"), _RECURRENT)
@pytest.mark.parametrize("length", [5, None])
def test_recurrent_layers_are_those_of_onnx(layer: str, length: int | None, options: dict[str, bool]) -> None:
    model = keras.Sequential([keras.Input((length, 6)), getattr(L, layer)(4, return_sequences=True, **options)])
    kinds = {node.op_type for node in tx.load(model).nodes}
    assert "Loop" not in kinds
    assert kinds >= {layer.removeprefix("Simple")}


def test_roles_of_variables() -> None:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), L.Dense(4), L.ReLU(), L.BatchNormalization()])
    graph = tx.load(model)
    roles = {v.name.rsplit("/", 1)[-1]: v.role.kind for v in graph.variables if v.role is not None}
    assert roles["kernel"] == "parameter"


def test_state_is_an_input_and_an_output() -> None:
    class Counter(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.total = tf.Variable([0.0, 0.0], trainable=False, name="total")

        @tf.function(input_signature=[tf.TensorSpec([2], name="x")])
        def __call__(self, x: Any) -> Any:
            return self.total.assign_add(x) * 2.0

    graph = tx.load(Counter())
    assert {v.name for v in graph.outputs} == {"output", "total_next"}
    first = graph.run({"x": np.float32([1, 2])})
    np.testing.assert_array_equal(first["total_next"], [1, 2])
    second = graph.run({"x": np.float32([1, 2]), "total": first["total_next"]})
    np.testing.assert_array_equal(second["output"], [4, 8])


def test_a_rule_of_a_third_party() -> None:
    import tenonnx_standard as ops
    from tenonnx_tensorflow.rules import RULES

    def function(x: Any) -> Any:
        return tf.raw_ops.Betainc(a=x, b=x, x=x / 10)

    spec = tf.TensorSpec([3])
    with pytest.raises(tx.NotRepresentable, match="Betainc"):
        tx.load(tf.function(function), spec)
    rule("Betainc")(lambda node, a, b, x: ops.add(a, ops.mul(b, x)))
    try:
        graph = tx.load(tf.function(function), spec, verify=False)
        assert {node.op_type for node in graph.nodes} <= {"Add", "Mul", "Div"}
    finally:
        del RULES["Betainc"]


def test_ops_without_a_rule_are_named() -> None:
    def function(x: Any) -> Any:
        return (
            tf.raw_ops.Betainc(a=x, b=x, x=x) + tf.random.stateless_gamma([3], [1, 2], x) + tf.raw_ops.Igamma(a=x, x=x)
        )

    with pytest.raises(tx.NotRepresentable, match=r"(?s)Betainc \(1 node\).*Igamma \(1 node\)"):
        tx.load(tf.function(function), tf.TensorSpec([3]))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: tf.py_function(lambda a: a, [x], tf.float32), "not computed by TensorFlow"),
        (lambda x: tf.random.stateless_poisson([3], [1, 2], x), "nor seeded"),
        (
            lambda x: tf.io.decode_jpeg(tf.strings.as_string(tf.cast(x, tf.int32))[0]),
            "the model decodes or encodes images",
        ),
        (
            lambda x: tf.ragged.cross([tf.RaggedTensor.from_row_splits(tf.as_string(x > 0), [0, 2, 3])]).to_tensor(),
            r"(?s)RaggedCross \(1 node\).*test_sources.py:\d+.*to_tensor\(\) of a ragged one before",
        ),
        (
            lambda x: tf.RaggedTensor.from_row_splits(x, [0, 2, 3]),
            r"(?s)an output is not a dense.*return .to_tensor",
        ),
        (lambda x: tf.sparse.from_dense(x), r"(?s)an output is not a dense.*to_dense"),
    ],
)
def test_refusals(function: Any, message: str) -> None:
    with pytest.raises(tx.TenonnxError, match=message):
        tx.load(tf.function(function), tf.TensorSpec([3]))


def test_ragged_inputs_are_refused() -> None:
    function = tf.function(lambda x: tf.reduce_sum(x, axis=1))
    with pytest.raises(tx.NotRepresentable, match=r"(?s)an input is not a dense tensor.*give .to_tensor"):
        tx.load(function, tf.RaggedTensorSpec([None, None], tf.float32))


@pytest.mark.parametrize("contents", [b"", b"no graph at all", b"\x0a\xff\xff\xff\xff"])
def test_broken_files(contents: bytes, tmp_path: Path) -> None:
    for name in ("net.pb", "net.tflite"):
        (tmp_path / name).write_bytes(contents)
        with pytest.raises(tx.TenonnxError):
            tx.load(tmp_path / name)
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "saved_model.pb").write_bytes(contents)
    with pytest.raises(tx.TenonnxError):
        tx.load(folder)


def test_damaged_checkpoint(network: Any, tmp_path: Path) -> None:
    network.export(tmp_path, verbose=False)
    index = tmp_path / "variables" / "variables.index"
    whole = index.read_bytes()
    for damaged in (whole[:-9], whole[:40], b"\x00" * len(whole)):
        index.write_bytes(damaged)
        with pytest.raises(tx.TenonnxError):
            tx.load(tmp_path, verify=False)
    index.unlink()
    with pytest.raises(tx.TenonnxError):
        tx.load(tmp_path, verify=False)


def test_damaged_tflite(network: Any, tmp_path: Path) -> None:
    whole = tf.lite.TFLiteConverter.from_keras_model(network).convert()
    random = np.random.default_rng(0)
    path = tmp_path / "net.tflite"
    for _ in range(150):
        damaged = bytearray(whole)
        for place in random.integers(8, len(whole), 3):
            damaged[place] = int(random.integers(256))
        path.write_bytes(damaged)
        with contextlib.suppress(tx.TenonnxError):
            tx.load(path, verify=False)


def test_command_line(network: Any, tmp_path: Path) -> None:
    (tmp_path / "net.tflite").write_bytes(tf.lite.TFLiteConverter.from_keras_model(network).convert())
    network.export(tmp_path / "model", verbose=False)
    network.save(tmp_path / "net.keras")
    for name in ("net.tflite", "model", "net.keras"):
        out = tmp_path / "out.onnx"
        command = [
            sys.executable,
            "-c",
            "from tenonnx_cli import main; main()",
            "convert",
            str(tmp_path / name),
            "-o",
            str(out),
            "--opset",
            "13",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        graph = tx.load(out)
        assert graph.opsets["ai.onnx"] == 13
        (value,) = graph.inputs
        np.testing.assert_allclose(next(iter(graph.run({value.name: X[:1]}).values())), network(X[:1]), atol=1e-5)


@pytest.mark.parametrize("kind", ["dense", "conv", "lstm"])
def test_files_are_tuned(kind: str) -> None:
    training = pytest.importorskip("tenonnx_training")
    keras.utils.set_random_seed(0)
    random = np.random.default_rng(0)
    model = {
        "dense": lambda: keras.Sequential([keras.Input((4,)), L.Dense(8, "relu"), L.Dense(3)]),
        "conv": lambda: keras.Sequential(
            [keras.Input((8, 8, 1)), L.Conv2D(4, 3, activation="relu"), L.GlobalAveragePooling2D(), L.Dense(3)]
        ),
        "lstm": lambda: keras.Sequential([keras.Input((5, 4)), L.LSTM(6), L.Dense(3)]),
    }[kind]()
    graph = tx.load(model)
    (value,) = graph.inputs
    x = random.normal(size=(48, *[d for d in value.type.shape if isinstance(d, int)])).astype(np.float32)
    labels = (x.reshape(48, -1).sum(1) > 0).astype(np.int64)
    history = training.fit(graph, (x, labels), loss="softmax_cross_entropy", optimizer=training.Adam(1e-2), epochs=6)
    assert history.epochs[-1]["loss"] < history.epochs[0]["loss"]


def test_convolution_of_any_length_by_onednn() -> None:
    """oneDNN returns the input of a convolution smaller than its kernel; in a subprocess with oneDNN enabled."""
    code = (
        "import keras, tenonnx as tx\n"
        "graph = tx.load(keras.Sequential([keras.Input((None, 3)), keras.layers.Conv1D(4, 3)]))\n"
        "print(graph.outputs[0].type)"
    )
    environment = {**os.environ, "TF_ENABLE_ONEDNN_OPTS": "1"}
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=120)
    assert made.returncode == 0, made.stderr
    assert "float32[batch" in made.stdout


def test_a_function_without_a_result_for_a_name() -> None:
    graph = tx.load(tf.function(lambda x: {"a": x * 2, "b": None, "c": x + 1}), X)
    assert [value.name for value in graph.outputs] == ["a", "c"]


TUNED = {
    "dense": lambda: [L.Flatten(), L.Dense(5, "relu")],
    "dense of channels": lambda: [L.Dense(5, "relu"), L.Flatten()],
    "convolution": lambda: [L.Conv2D(4, 3, activation="relu"), L.Flatten()],
    "pooled": lambda: [L.Conv2D(4, 3, activation="relu"), L.MaxPooling2D(), L.Flatten()],
    "depthwise": lambda: [L.DepthwiseConv2D(3, activation="relu"), L.Flatten()],
    "separable": lambda: [L.SeparableConv2D(4, 3, activation="relu"), L.Flatten()],
    "transposed": lambda: [L.Conv2DTranspose(4, 3, activation="relu"), L.Flatten()],
    "one axis": lambda: [L.Reshape((36, 2)), L.Conv1D(4, 3, activation="relu"), L.Flatten()],
    "normalized": lambda: [L.Dense(5), L.LayerNormalization(), L.Activation("relu"), L.Flatten()],
}


@pytest.mark.parametrize("kind", TUNED)
def test_tuning_is_that_of_keras(kind: str) -> None:
    """Zero biases are trained, too."""
    training = pytest.importorskip("tenonnx_training")
    keras.utils.set_random_seed(0)
    layers = TUNED[kind]()
    model = keras.Sequential([keras.Input((6, 6, 2)), *layers, L.Dense(3)])
    graph = tx.load(model)
    random = np.random.default_rng(0)
    x, labels = random.normal(size=(32, 6, 6, 2)).astype(np.float32), random.integers(0, 3, 32)
    how = {"loss": "softmax_cross_entropy", "epochs": 3, "batch_size": 8, "shuffle": False}
    training.fit(graph, (x, labels), optimizer=training.SGD(0.1), **how)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss=loss)
    model.fit(x, labels, batch_size=8, epochs=3, shuffle=False, verbose=0)
    (result,) = graph.run({graph.inputs[0].name: x}).values()
    np.testing.assert_allclose(result, model(x), atol=1e-4)


def roles(graph: tx.Graph) -> dict[str, str]:
    """Roles of variables in training, by the last two parts of their names."""
    result = {}
    for value in graph.variables:
        assert value.role is not None
        result["/".join(value.name.split("/")[-2:])] = value.role.kind
    return result


def half_frozen() -> keras.Sequential:
    """An untrained model, whose biases and statistics are equal arrays."""
    first = L.Dense(5, "relu", trainable=False, name="first")
    layers = [first, L.BatchNormalization(name="norm"), L.Flatten(), L.Dense(5, name="last")]
    return keras.Sequential([keras.Input((6, 8)), *layers])


HALF_FROZEN = {
    "first/kernel": "frozen",
    "first/bias": "frozen",
    "norm/gamma": "parameter",
    "norm/beta": "parameter",
    "last/kernel": "parameter",
    "last/bias": "parameter",
}


@pytest.mark.parametrize("kept", ["model", "model.keras", "exported"])
def test_layers_that_are_not_trainable_are_frozen(kept: str, tmp_path: Path) -> None:
    model = half_frozen()
    if kept == "exported":
        model.export(tmp_path / kept, verbose=False)
    elif kept != "model":
        model.save(tmp_path / kept)
    graph = tx.load(model if kept == "model" else tmp_path / kept)
    assert roles(graph) == HALF_FROZEN
    x = np.random.default_rng(0).normal(size=(2, 6, 8)).astype(np.float32)
    np.testing.assert_allclose(next(iter(graph.run({graph.inputs[0].name: x}).values())), model(x), atol=1e-5)


def test_freezing_later_and_of_models_within_models_counts() -> None:
    model = half_frozen()
    outer = keras.Sequential([keras.Input((6, 8)), model, L.Dense(2, name="head")])
    model.trainable = False
    assert roles(tx.load(outer)) == dict.fromkeys(HALF_FROZEN, "frozen") | dict.fromkeys(
        ["head/kernel", "head/bias"], "parameter"
    )


def test_a_fit_leaves_frozen_layers() -> None:
    training = pytest.importorskip("tenonnx_training")
    graph = tx.load(half_frozen())
    before = {value.name: np.array(value) for value in graph.variables}
    x = np.random.default_rng(0).normal(size=(8, 6, 8)).astype(np.float32)
    data = x, np.arange(8) % 5
    training.fit(graph, data, loss="softmax_cross_entropy", optimizer=training.SGD(0.1), epochs=1, batch_size=8)
    moved = {value.name for value in graph.variables if not np.array_equal(value, before[value.name])}
    assert {"/".join(name.split("/")[-2:]) for name in moved} == {n for n, k in HALF_FROZEN.items() if k != "frozen"}


def test_a_model_of_keras_that_tensorflow_saved(tmp_path: Path) -> None:
    """The graph restores only copies of its variables, which are found by their names."""
    model = half_frozen()
    tf.saved_model.save(model, str(tmp_path / "model"))
    graph = tx.load(tmp_path / "model")
    x = np.random.default_rng(0).normal(size=(2, 6, 8)).astype(np.float32)
    np.testing.assert_allclose(next(iter(graph.run({graph.inputs[0].name: x}).values())), model(x), atol=1e-5)
    assert roles(graph).keys() == HALF_FROZEN.keys()
