"""tf2onnx: the four functions and the command."""

import zipfile

import numpy as np
import onnx
import pytest
import tensorflow as tf
from onnxruntime import InferenceSession

import tenonnx as tx
from tenonnx_compat import NotSupported, tf2onnx

IMAGES = np.random.default_rng(0).random((2, 6, 6, 3), np.float32)


@pytest.fixture(scope="module")
def model():
    tf.keras.utils.set_random_seed(0)
    layers = [
        tf.keras.Input((6, 6, 3), name="image"),
        tf.keras.layers.Conv2D(2, 3, activation="relu"),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(2, name="scores"),
    ]
    return tf.keras.Sequential(layers)


def run(message, *arrays):
    session = InferenceSession(message.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip([value.name for value in session.get_inputs()], arrays, strict=True)))[0]


def test_keras(model, tmp_path):
    path = str(tmp_path / "new" / "model.onnx")
    message, others = tf2onnx.convert.from_keras(model, opset=13, output_path=path)
    assert others is None
    assert (message.opset_import[0].version, onnx.load(path).graph.output[0].name) == (
        13,
        model.outputs[0].name.partition("/")[0],
    )
    np.testing.assert_allclose(run(message, IMAGES), model(IMAGES), atol=1e-5)
    large = tmp_path / "large.zip"
    message, storage = tf2onnx.convert.from_keras(model, large_model=True, output_path=str(large))
    with zipfile.ZipFile(large) as archive:
        assert {*archive.namelist()} == {"__MODEL_PROTO.onnx", *storage.name_to_tensor_data}
    signature = (tf.TensorSpec((None, 6, 6, 3), tf.float32, name="input"),)
    turned, _ = tf2onnx.convert.from_keras(model, signature, inputs_as_nchw=["input"])
    assert turned.opset_import[0].version == 15
    np.testing.assert_allclose(run(turned, IMAGES.transpose(0, 3, 1, 2)), model(IMAGES), atol=1e-5)


def test_a_keras_model_of_two_inputs():
    image, factor = tf.keras.Input((3,), name="image"), tf.keras.Input((1,), name="factor")
    model = tf.keras.Model([image, factor], image * factor)
    signature = [tf.TensorSpec((None, n), tf.float32, name=name) for n, name in ((3, "image"), (1, "factor"))]
    message, _ = tf2onnx.convert.from_keras(model, signature)
    assert [value.name for value in message.graph.input] == ["image", "factor"]
    np.testing.assert_array_equal(run(message, np.ones((2, 3), "f4"), np.float32([[2], [3]])), [[2] * 3, [3] * 3])
    with pytest.raises(tx.InvalidCall, match=r"Expected shape \(None, 1\)"):
        tf2onnx.convert.from_keras(model, [signature[0], tf.TensorSpec((), tf.float32)])


def test_the_rows_of_an_array_are_a_signature():
    root = tf.function(lambda x: tf.math.sqrt(x))
    message, _ = tf2onnx.convert.from_function(root, np.asarray([[1.0, 4.0]]))
    np.testing.assert_array_equal(run(message, np.asarray([4.0, 9.0])), [2, 3])


def test_functions_and_graphs():
    function = tf.function(lambda a, b: tf.matmul(a, b) + 1.0)
    signature = [tf.TensorSpec((2, 3), tf.float32, name="a"), tf.TensorSpec((3, 2), tf.float32, name="b")]
    message, _ = tf2onnx.convert.from_function(function, input_signature=signature)
    assert [value.name for value in (*message.graph.input, *message.graph.output)] == ["a", "b", "Identity:0"]
    a, b = np.ones((2, 3), np.float32), np.ones((3, 2), np.float32)
    np.testing.assert_allclose(run(message, a, b), 4.0)
    definition = function.get_concrete_function(*signature).graph.as_graph_def()
    message, _ = tf2onnx.convert.from_graph_def(definition, input_names=["a:0", "b:0"], output_names=["add:0"])
    assert [value.name for value in (*message.graph.input, *message.graph.output)] == ["a:0", "b:0", "add:0"]
    np.testing.assert_allclose(run(message, a, b), 4.0)
    with pytest.raises(ValueError, match="input_signature"):
        tf2onnx.convert.from_function(function)
    with pytest.raises(NotSupported, match="custom_ops"):
        tf2onnx.convert.from_function(function, signature, custom_ops={"MatMul": "a.b"})


def test_command(model, tmp_path, capsys):
    lite, saved, out = tmp_path / "m.tflite", tmp_path / "saved", tmp_path / "m.onnx"
    lite.write_bytes(tf.lite.TFLiteConverter.from_keras_model(model).convert())
    model.export(saved, verbose=False)
    for source in (["--tflite", str(lite)], ["--saved-model", str(saved), "--rename-outputs", "y"]):
        tf2onnx.convert.main([*source, "--output", str(out), "--opset", "12"])
        message = onnx.load(out)
        assert message.opset_import[0].version == 12
        np.testing.assert_allclose(run(message, IMAGES), model(IMAGES), atol=1e-5)
    assert message.graph.output[0].name == "y"
    assert "ONNX model is saved at" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ([], 1),
        (["--graphdef", "a.pb"], 2),
        (["--saved-model", "missing"], 1),
        (["--tflite", "missing.tflite", "--dequantize"], 1),
    ],
)
def test_exit_codes(arguments, status, capsys):
    with pytest.raises(SystemExit) as caught:
        tf2onnx.convert.main(arguments)
    assert caught.value.code == status
    assert "Traceback" not in capsys.readouterr().err
