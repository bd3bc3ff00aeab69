"""Models as TFLite files, in float and in every quantization mode."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
from judging import Case, array

L = keras.layers


def converted(source: Any, shapes: Any = None, mode: str = "float", dtype: Any = None) -> Any:
    """Path to a file made by TensorFlow's converter."""
    if isinstance(source, keras.Model):
        converter = tf.lite.TFLiteConverter.from_keras_model(source)
        shapes = [[1 if n is None else n for n in each.shape] for each in source.inputs]
    else:
        specs = [tf.TensorSpec(s, dtype or tf.float32) for s in shapes]
        function = tf.function(source).get_concrete_function(*specs)
        converter = tf.lite.TFLiteConverter.from_concrete_functions([function])
    if mode != "float":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if mode == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if mode.startswith("int"):
        converter.representative_dataset = lambda: ([array(*s, seed=k) for s in shapes] for k in range(8))
        kinds = {
            "int8": tf.lite.OpsSet.TFLITE_BUILTINS_INT8,
            "int16": tf.lite.OpsSet.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8,
        }
        if mode in kinds:
            converter.target_spec.supported_ops = [kinds[mode]]
        if mode == "int8":
            converter.inference_input_type = converter.inference_output_type = tf.int8
    folder = Path(tempfile.mkdtemp())
    path = folder / "model.tflite"
    path.write_bytes(converter.convert())
    return path


def _network() -> Any:
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [
            keras.Input((12, 12, 3)),
            L.Conv2D(8, 3, padding="same", activation="relu"),
            L.DepthwiseConv2D(3, strides=2, padding="same"),
            L.BatchNormalization(),
            L.ReLU(6.0),
            L.MaxPooling2D(),
            L.Conv2D(6, 1),
            L.GlobalAveragePooling2D(),
            L.Dense(5, activation="softmax"),
        ]
    )


def _perceptron() -> Any:
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input((16,)), L.Dense(64, "relu"), L.Dense(64, "tanh"), L.Dense(4)])


def _residual() -> Any:
    keras.utils.set_random_seed(0)
    x = inputs = keras.Input((8, 8, 4))
    y = L.Conv2D(4, 3, padding="same", activation="relu")(x)
    x = L.Concatenate()([x + y, L.AveragePooling2D(3, 1, "same")(x)])
    return keras.Model(inputs, L.Reshape((-1,))(L.UpSampling2D(2)(x)))


_X = (2, 6, 6, 4)
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": lambda x: x + x * 2.0,
    "sub": lambda x: x - 1.5,
    "div": lambda x: x / (tf.abs(x) + 1),
    "relus": lambda x: tf.nn.relu(x) + tf.nn.relu6(x) + tf.minimum(tf.maximum(x, -1.0), 1.0),
    "unary": lambda x: tf.abs(x) + tf.exp(x) + tf.sin(x) + tf.cos(x) + tf.floor(x) + tf.math.ceil(x) + tf.square(x),
    "roots": lambda x: tf.sqrt(tf.abs(x) + 1) + tf.math.rsqrt(tf.abs(x) + 1) + tf.math.log(tf.abs(x) + 1),
    "tanh": lambda x: tf.tanh(x) * tf.sigmoid(x),
    "elu": tf.nn.elu,
    "leaky": lambda x: tf.nn.leaky_relu(x, 0.3),
    "hard_swish": lambda x: x * tf.nn.relu6(x + 3) * (1 / 6),
    "gelu": tf.nn.gelu,
    "softmax": tf.nn.softmax,
    "log_softmax": tf.nn.log_softmax,
    "maximum": lambda x: tf.maximum(x, 0.1) + tf.minimum(x, 0.2),
    "pow": lambda x: tf.pow(tf.abs(x) + 0.1, 1.7),
    "squared_difference": lambda x: tf.math.squared_difference(x, x[:, ::-1]),
    "floor_div": lambda x: tf.math.floordiv(x, 0.7) + tf.math.floormod(x, 0.7),
    "compare": lambda x: tf.where(x > 0, x, -x),
    "logic": lambda x: tf.cast(tf.logical_and(x > 0, tf.logical_not(x > 1)), tf.float32),
    "sum": lambda x: tf.reduce_sum(x, [1, 2]),
    "mean": lambda x: tf.reduce_mean(x, [1, 2], keepdims=True),
    "max": lambda x: tf.reduce_max(x, 3) + tf.reduce_min(x, 3) + tf.reduce_prod(x, 3),
    "any": lambda x: tf.reduce_any(x > 1, 3),
    "argmax": lambda x: tf.argmax(x, 3),
    "argmin": lambda x: tf.argmin(x, 1, output_type=tf.int32),
    "cumsum": lambda x: tf.cumsum(x, 2, exclusive=True),
    "reshape": lambda x: tf.reshape(x, [2, -1]),
    "transpose": lambda x: tf.transpose(x, [0, 3, 1, 2]),
    "concat": lambda x: tf.concat([x, x * 2], 3),
    "stack": lambda x: tf.stack([x, x], 1),
    "unstack": lambda x: tf.unstack(x, axis=3),
    "split": lambda x: tf.split(x, 2, 3),
    "split_v": lambda x: tf.split(x, [1, 3], 3),
    "slice": lambda x: tf.slice(x, [0, 1, 2, 0], [-1, 3, 2, 4]),
    "strided": lambda x: x[:, ::-1, 1:4:2, -1],
    "pad": lambda x: tf.pad(x, [[0, 0], [1, 2], [0, 1], [0, 0]]),
    "pad_value": lambda x: tf.pad(x, [[0, 0], [1, 2], [0, 1], [0, 0]], constant_values=3.0),
    "mirror": lambda x: tf.pad(x, [[0, 0], [1, 2], [2, 1], [0, 0]], "SYMMETRIC"),
    "reflect": lambda x: tf.pad(x, [[0, 0], [1, 2], [2, 1], [0, 0]], "REFLECT"),
    "tile": lambda x: tf.tile(x, [1, 2, 1, 1]),
    "expand": lambda x: tf.expand_dims(x, 1),
    "gather": lambda x: tf.gather(x, [2, 0], axis=1),
    "gather_nd": lambda x: tf.gather_nd(x, [[0, 1], [1, 3]]),
    "scatter_nd": lambda x: tf.scatter_nd([[1], [3]], x, [5, 6, 6, 4]),
    "reverse": lambda x: tf.reverse(x, [1]),
    "reverse_sequence": lambda x: tf.reverse_sequence(x, [2, 5], seq_axis=1),
    "one_hot": lambda x: tf.one_hot(tf.cast(tf.abs(x[0, 0, 0]), tf.int32), 4),
    "fill": lambda x: tf.fill(tf.shape(x)[:2], 2.0) + x[..., 0, 0],
    "range": lambda x: tf.cast(tf.range(tf.shape(x)[1]), tf.float32) + x[0, 0, :, 0],
    "top_k": lambda x: tf.math.top_k(x, 2),
    "where": lambda x: tf.where(x > 1),
    "cast": lambda x: tf.cast(x * 3, tf.int32),
    "space": lambda x: tf.nn.depth_to_space(tf.nn.space_to_depth(x, 2), 2),
    "batch_space": lambda x: tf.batch_to_space(
        tf.space_to_batch(x, [2, 2], [[0, 0], [0, 0]]), [2, 2], [[0, 1], [0, 0]]
    ),
    "broadcast": lambda x: tf.broadcast_to(x[:1], [2, 6, 6, 4]),
    "bilinear": lambda x: tf.image.resize(x, [9, 4]),
    "nearest": lambda x: tf.image.resize(x, [9, 4], method="nearest"),
    "bilinear_corners": lambda x: tf.compat.v1.image.resize_bilinear(x, [9, 4], align_corners=True),
    "conv": lambda x: tf.nn.conv2d(x, array(3, 3, 4, 5), 2, "SAME"),
    "conv_dilated": lambda x: tf.nn.conv2d(x, array(3, 3, 4, 5), 1, "VALID", dilations=2),
    "depthwise": lambda x: tf.nn.depthwise_conv2d(x, array(3, 3, 4, 2), [1, 1, 1, 1], "SAME"),
    "transpose_conv": lambda x: tf.nn.conv2d_transpose(x, array(3, 3, 5, 4), [2, 12, 12, 5], 2, "SAME"),
    "max_pool": lambda x: tf.nn.max_pool2d(x, 3, 2, "SAME"),
    "avg_pool": lambda x: tf.nn.avg_pool2d(x, 3, 2, "SAME"),
    "l2_norm": lambda x: tf.nn.l2_normalize(x, -1),
    "lrn": lambda x: tf.nn.local_response_normalization(x, 2, 1.0, 0.1, 0.5),
    "matmul": lambda x: tf.matmul(x, x, transpose_b=True),
    "dense": lambda x: tf.matmul(tf.reshape(x, [2, 144]), array(144, 5)) + array(5),
    "batch_matmul": lambda x: tf.linalg.matmul(x, x, adjoint_a=True),
    "segment_sum": lambda x: tf.math.segment_sum(x, [0, 1]),
    "while": lambda x: tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 0.5), [0, x])[1],
    "cond": lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: x * 2, lambda: x - 1),
    "atan2": lambda x: tf.atan2(x, x[:, ::-1]),
    "rfft": lambda x: tf.abs(tf.signal.rfft2d(tf.reshape(x, [2, 8, 18])[..., :16])),
    "sign": tf.sign,
    "fake_quant": lambda x: tf.quantization.fake_quant_with_min_max_args(x, -1, 2),
}

_FIRST = {f"{n}": Case(lambda f=f: converted(f, [_X])) for n, f in _FUNCTIONS.items()}
_SECOND = {
    f"{name}_{mode}": Case(lambda make=make, mode=mode: converted(make(), mode=mode))
    for name, make in {"network": _network, "perceptron": _perceptron, "residual": _residual}.items()
    for mode in ("float", "float16", "dynamic", "int8", "int16", "int8_float")
    if (name, mode) != ("residual", "int16")  # TFLite has no 16-bit TILE
}
_THIRD = {
    f"{n}_int8": Case(lambda n=n: converted(_FUNCTIONS[n], [_X], "int8"))
    for n in (
        "add",
        "sub",
        "tanh",
        "softmax",
        "mean",
        "reshape",
        "concat",
        "pad",
        "strided",
        "max_pool",
        "avg_pool",
        "bilinear",
        "nearest",
        "transpose",
        "gather",
        "split",
        "leaky",
        "maximum",
        "sum",
        "conv",
        "depthwise",
        "transpose_conv",
        "mirror",
        "hard_swish",
        "l2_norm",
    )
}

_WIDE = {
    f"{n}_int16": Case(lambda n=n: converted(_FUNCTIONS[n], [_X], "int16"))
    for n in (
        "add",
        "tanh",
        "softmax",
        "mean",
        "pad",
        "bilinear",
        "max_pool",
        "avg_pool",
        "conv",
        "depthwise",
        "dense",
        "batch_matmul",
    )
}


def _lstm() -> Any:
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input((5, 6), batch_size=1), L.LSTM(4, return_sequences=True), L.Dense(2)])


def _rnn() -> Any:
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input((5, 6), batch_size=1), L.GRU(4), L.Dense(2)])


_FOURTH = {
    "lstm": Case(lambda: converted(_lstm())),
    "gru": Case(lambda: converted(_rnn())),
    "embedding": Case(
        lambda: converted(keras.Sequential([keras.Input((5,), dtype="int32"), L.Embedding(9, 4), L.Flatten()]))
    ),
}

CASES = _FIRST | _SECOND | _THIRD | _WIDE | _FOURTH
