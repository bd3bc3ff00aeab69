"""Variables across calls, and in checkpoints."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

sys.path.insert(0, str(Path(__file__).parent))

from cases.lite_others import counter
from cases.lite_recurrent import lstm, rnn, svdf

import tenonnx as tx
from tenonnx_litert.interpreter_process import opened

v1 = tf.compat.v1


class Memory(tf.Module):
    """A number that selects a row and a branch, so its initial value must not be folded."""

    def __init__(self) -> None:
        super().__init__()
        self.mean, self.count = tf.Variable([0.0, 0.0, 0.0]), tf.Variable(0)
        self.rows = tf.Variable(np.zeros((4, 3), np.float32))

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
    def __call__(self, x: Any) -> Any:
        before = self.mean.read_value()
        self.mean.assign(0.9 * self.mean + 0.1 * tf.reduce_mean(x, 0))
        self.count.assign_add(1)
        self.rows.scatter_nd_update([[self.count % 4]], [self.mean.read_value()])
        if self.count > 2:
            self.mean.assign_sub([1.0, 1.0, 1.0])
        return {"y": x - self.mean, "before": before, "count": self.count.read_value(), "rows": self.rows.read_value()}

    @tf.function(input_signature=[])
    def reset(self) -> Any:
        self.mean.assign([5.0, 5.0, 5.0])
        self.count.assign(7)
        return self.count.read_value()


def _states(graph: tx.Graph) -> dict[str, str]:
    names = {value.name for value in graph.outputs}
    return {value.name: f"{value.name}_next" for value in graph.all_inputs if f"{value.name}_next" in names}


def _compare_calls(graph: tx.Graph, source: Callable[[Any], dict[str, Any]], shape: tuple[int, ...] = (3, 3)) -> None:
    program = graph.compile(state=_states(graph))
    for call in range(5):
        x = np.random.default_rng(call).normal(size=shape).astype(np.float32)
        result = program({graph.inputs[0].name: x})
        for name, expected in source(x).items():
            np.testing.assert_allclose(result[name], expected, rtol=1e-5, atol=1e-6, err_msg=f"{name}, call {call}")


def test_module_from_call_to_call() -> None:
    module = Memory()
    graph = tx.load(module)
    assert module.count.numpy() == 0  # verification left the module unchanged
    assert len(_states(graph)) == 3
    _compare_calls(graph, lambda x: module(tf.constant(x)))


def test_saved_model_from_call_to_call(tmp_path: Path) -> None:
    module = Memory()
    tf.saved_model.save(module, str(tmp_path), signatures={"serving_default": module.__call__, "reset": module.reset})
    function = tf.saved_model.load(str(tmp_path)).signatures["serving_default"]
    _compare_calls(tx.load(str(tmp_path)), lambda x: function(x=tf.constant(x)))

    reset = tx.load(str(tmp_path), signature="reset")
    result = reset.run({})
    assert len(_states(reset)) == 2
    assert sorted(float(np.max(each)) for each in result.values()) == [5.0, 7.0, 7.0]


LITE: dict[str, Callable[[], Path]] = {
    "lstm": lambda: lstm("float", norm=True),
    "lstm_hybrid": lambda: lstm("hybrid"),
    "lstm_int8": lambda: lstm("int8"),
    "rnn": lambda: rnn("hybrid", "UNIDIRECTIONAL_SEQUENCE_RNN"),
    "svdf": lambda: svdf("int8", activation=1),
    "counter": counter,
}


@pytest.mark.parametrize("make", LITE.values(), ids=LITE)
def test_file_of_tflite_from_call_to_call(make: Callable[[], Path]) -> None:
    path = make()
    graph, interpreter = tx.load(path), opened(str(path))
    program = graph.compile(state=_states(graph))
    assert _states(graph)
    (value,) = graph.inputs
    (given,), (result,) = interpreter.get_input_details(), interpreter.get_output_details()
    for call in range(4):
        random = np.random.default_rng(call)
        shape = tuple(given["shape"])
        is_code = given["dtype"] is np.int8
        x = (
            random.integers(-100, 100, shape).astype(np.int8)
            if is_code
            else random.normal(size=shape).astype(np.float32)
        )
        interpreter.set_tensor(given["index"], x)
        interpreter.invoke()
        found = program({value.name: x})[graph.outputs[0].name]
        expected = interpreter.get_tensor(result["index"])
        np.testing.assert_allclose(found, expected, rtol=0 if is_code else 1e-4, atol=1 if is_code else 1e-5)


def test_a_variable_in_parts(tmp_path: Path) -> None:
    """A TensorFlow 1 partitioner stores a tensor in slices, and restores each of them."""
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [None, 300], name="x")
        with v1.variable_scope("layer", partitioner=v1.fixed_size_partitioner(3)):
            w = v1.get_variable("w", [300, 5], initializer=v1.random_normal_initializer(seed=1))
        y = tf.identity(tf.nn.relu(tf.matmul(x, w)), name="y")
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            feeds = np.random.default_rng(0).normal(size=(2, 300)).astype(np.float32)
            expected = session.run(y, {x: feeds})
            v1.saved_model.simple_save(session, str(tmp_path / "model"), {"x": x}, {"y": y})
    result = tx.load(str(tmp_path / "model")).run({"x": feeds})
    np.testing.assert_allclose(result["y"], expected, rtol=1e-4, atol=1e-4)


def test_variables_in_several_files(tmp_path: Path) -> None:
    module = Memory()
    module.count.assign(2)
    tf.saved_model.save(module, str(tmp_path / "one"), signatures=module.__call__)
    one = tmp_path / "one" / "variables" / "variables"
    reader = tf.train.load_checkpoint(str(one))
    names = sorted(reader.get_variable_to_shape_map())
    files = []
    for part in (names[::2], names[1::2]):
        files.append(str(tmp_path / f"part{len(files)}"))
        tensors = [tf.constant(reader.get_tensor(name)) for name in part]
        tf.raw_ops.SaveV2(prefix=files[-1], tensor_names=part, shape_and_slices=[""] * len(part), tensors=tensors)
    graph = tx.load(str(tmp_path / "one"))
    for file in one.parent.iterdir():
        file.unlink()
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=files, destination_prefix=str(one), delete_old_dirs=False)
    assert len(list(one.parent.glob("*.data-*-of-00002"))) == 2
    x = np.ones((2, 3), np.float32)
    result = tx.load(str(tmp_path / "one")).run({"x": x})
    for name, expected in graph.run({"x": x}).items():
        np.testing.assert_array_equal(result[name], expected)
    next(one.parent.glob("*.data-00001-of-00002")).unlink()
    with pytest.raises(tx.InvalidModel, match="external data"):
        tx.load(str(tmp_path / "one"))
