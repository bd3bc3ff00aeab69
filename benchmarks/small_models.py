"""Forty small handmade models of many kinds with random weights, and their feeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx_quantized import quantize as quantized

SAME = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
HALVED = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}


class Model:
    """A builder of graphs with random weights and feeds."""

    def __init__(self, name: str) -> None:
        self.graph = tx.Graph(name, opsets={"ai.onnx": 21})
        self.random = np.random.default_rng(len(name))
        self.feeds: dict[str, Any] = {}

    def input(self, *shape: int, dims: tuple[Any, ...] | None = None, high: int = 0) -> Any:
        name = f"x{len(self.feeds)}"
        self.feeds[name] = (
            self.random.integers(high, size=shape) if high else self.random.standard_normal(shape, np.float32)
        )
        return self.graph.input(name, "int64" if high else "float32", dims or shape)

    def weight(self, *shape: int, scale: float | None = None) -> Any:
        fan = int(np.prod(shape[1:])) if len(shape) > 2 else shape[0]
        drawn = self.random.standard_normal(shape, np.float32) * np.float32(scale or fan**-0.5)
        return self.graph.variable(f"w{len(self.graph.variables)}", drawn)

    def fixed(self, array: Any) -> Any:
        return self.graph.variable(f"w{len(self.graph.variables)}", np.asarray(array))

    def dense(self, x: Any, inner: int, outer: int) -> Any:
        return ops.gemm(x, self.weight(outer, inner), self.weight(outer), transB=1)

    def linear(self, x: Any, inner: int, outer: int) -> Any:
        return x @ self.weight(inner, outer) + self.weight(outer)

    def conv(self, x: Any, inner: int, outer: int, size: int = 3, group: int = 1, **attributes: Any) -> Any:
        attributes = {"kernel_shape": [size] * 2, "pads": [size // 2] * 4, **attributes}
        kernels = self.weight(outer, inner // group, *attributes["kernel_shape"])
        return ops.conv(x, kernels, self.weight(outer), group=group, **attributes)

    def batch_norm(self, x: Any, channels: int) -> Any:
        ones = self.fixed(np.ones(channels, np.float32))
        return ops.batch_normalization(x, ones, self.weight(channels), self.weight(channels), ones)

    def layer_norm(self, x: Any, size: int) -> Any:
        return ops.layer_normalization(x, self.fixed(np.ones(size, np.float32)), self.weight(size))[0]

    def heads(self, x: Any, size: int, heads: int, keys: Any = None) -> Any:
        """Multi-head attention in primitive ops, as exporters write it."""
        q, k, v = (self.linear(y, size, size) for y in (x, *([x if keys is None else keys] * 2)))
        q, k, v = (ops.transpose(ops.reshape(y, [0, -1, heads, size // heads]), perm=[0, 2, 1, 3]) for y in (q, k, v))
        scores = q @ ops.transpose(k, perm=[0, 1, 3, 2]) / float(np.sqrt(size / heads))
        mixed = ops.transpose(ops.softmax(scores) @ v, perm=[0, 2, 1, 3])
        return self.linear(ops.reshape(mixed, [0, -1, size]), size, size)


MODELS: dict[str, Callable[[Model], Any]] = {}


def model(function: Callable[[Model], Any]) -> Callable[[Model], Any]:
    MODELS[function.__name__] = function
    return function


# ----- dense ----------------------------------------------------------------------------------------------------------


@model
def logistic_regression(m: Model) -> Any:
    return ops.sigmoid(m.dense(m.input(1, 30), 30, 1))


@model
def mlp_of_20_inputs(m: Model) -> Any:
    x = ops.relu(m.dense(m.input(64, 20, dims=("n", 20)), 20, 64))
    return ops.softmax(m.dense(ops.relu(m.dense(x, 64, 64)), 64, 5))


@model
def wide_mlp(m: Model) -> Any:
    x = ops.tanh(m.dense(m.input(16, 256), 256, 512))
    return m.dense(ops.tanh(m.dense(x, 512, 512)), 512, 10)


@model
def deep_mlp(m: Model) -> Any:
    x = m.input(1, 64)
    for _ in range(20):
        x = ops.relu(m.dense(x, 64, 64))
    return x


@model
def residual_mlp(m: Model) -> Any:
    x = m.input(32, 96)
    for _ in range(4):
        x = x + m.linear(ops.gelu(m.linear(m.layer_norm(x, 96), 96, 192)), 192, 96)
    return x


@model
def autoencoder(m: Model) -> Any:
    x = m.input(8, 128)
    for inner, outer in ((128, 64), (64, 16), (16, 64), (64, 128)):
        x = ops.elu(m.dense(x, inner, outer))
    return ops.sigmoid(x)


@model
def mixture_of_experts(m: Model) -> Any:
    x = m.input(16, 32)
    shares = ops.softmax(m.linear(x, 32, 4))
    parts = [ops.unsqueeze(ops.relu(m.linear(x, 32, 32)), [1]) for _ in range(4)]
    return ops.reduce_sum(ops.concat(*parts, axis=1) * ops.unsqueeze(shares, [2]), [1], keepdims=0)


@model
def activations(m: Model) -> Any:
    x = m.input(4, 1000)
    for function in (ops.leaky_relu, ops.selu, ops.softplus, ops.softsign, ops.hard_swish, ops.mish, ops.erf):
        x = function(x) * 0.9 + 0.1
    return x


@model
def elementwise_chain(m: Model) -> Any:
    x, y = m.input(1, 64, 56, 56), m.input(1, 64, 1, 1)
    z = (x * y + 1.0) / 2.0 - y
    return ops.clip(ops.sqrt(ops.absolute(z)) * z + ops.exp(-z * z), 0.0, 6.0)


@model
def scaled_features(m: Model) -> Any:
    x = (m.input(100, 12) - m.weight(12)) / ops.absolute(m.weight(12))
    return ops.concat(ops.clip(x, -3.0, 3.0), ops.log(ops.absolute(x) + 1.0), axis=1)


# ----- images ---------------------------------------------------------------------------------------------------------


@model
def lenet(m: Model) -> Any:
    x = m.input(1, 1, 28, 28)
    for inner, outer in ((1, 6), (6, 16)):
        x = ops.max_pool(ops.relu(m.conv(x, inner, outer, 5)), kernel_shape=[2, 2], strides=[2, 2])
    return ops.softmax(m.dense(ops.relu(m.dense(ops.flatten(x), 784, 84)), 84, 10))


@model
def batch_of_digits(m: Model) -> Any:
    x = m.input(32, 1, 8, 8, dims=("n", 1, 8, 8))
    x = ops.relu(m.conv(ops.relu(m.conv(x, 1, 8)), 8, 16))
    return m.dense(ops.flatten(ops.max_pool(x, kernel_shape=[2, 2], strides=[2, 2])), 256, 10)


@model
def bottleneck_resnet(m: Model) -> Any:
    x = ops.relu(m.batch_norm(m.conv(m.input(1, 3, 48, 48), 3, 16), 16))
    width = 16
    for channels, stride in ((32, 1), (64, 2), (64, 1)):
        y = ops.relu(m.batch_norm(m.conv(x, width, channels // 4, 1), channels // 4))
        y = ops.relu(m.batch_norm(m.conv(y, channels // 4, channels // 4, strides=[stride] * 2), channels // 4))
        y = m.batch_norm(m.conv(y, channels // 4, channels, 1), channels)
        x = ops.relu(y + (x if width == channels else m.conv(x, width, channels, 1, strides=[stride] * 2)))
        width = channels
    return m.dense(ops.flatten(ops.global_average_pool(x)), 64, 10)


@model
def basic_resnet(m: Model) -> Any:
    x = m.conv(m.input(1, 3, 32, 32), 3, 32)
    for _ in range(4):
        x = x + m.conv(ops.relu(m.conv(ops.relu(x), 32, 32)), 32, 32)
    return m.dense(ops.flatten(ops.global_average_pool(x)), 32, 10)


@model
def mobile_blocks(m: Model) -> Any:
    x = ops.clip(m.conv(m.input(1, 3, 64, 64), 3, 16, strides=[2, 2]), 0.0, 6.0)
    for _ in range(3):
        y = ops.clip(m.conv(x, 16, 64, 1), 0.0, 6.0)
        y = ops.clip(m.conv(y, 64, 64, group=64), 0.0, 6.0)
        x = x + m.conv(y, 64, 16, 1)
    return ops.global_average_pool(x)


@model
def squeeze_and_excite(m: Model) -> Any:
    x = ops.hard_swish(m.conv(m.input(1, 3, 40, 40), 3, 24, strides=[2, 2]))
    for _ in range(2):
        y = ops.hard_swish(m.conv(m.conv(x, 24, 48, 1), 48, 48, 5, group=48))
        s = ops.hard_sigmoid(m.conv(ops.relu(m.conv(ops.global_average_pool(y), 48, 12, 1)), 12, 48, 1))
        x = x + m.conv(y * s, 48, 24, 1)
    return x


@model
def inception_block(m: Model) -> Any:
    x = m.input(1, 32, 24, 24)
    pooled = ops.max_pool(x, **SAME)
    ways = [m.conv(x, 32, 16, 1), m.conv(m.conv(x, 32, 12, 1), 12, 16), m.conv(m.conv(x, 32, 8, 1), 8, 16, 5)]
    return ops.relu(ops.concat(*ways, m.conv(pooled, 32, 16, 1), axis=1))


@model
def dense_block(m: Model) -> Any:
    x, width = m.input(1, 16, 20, 20), 16
    for _ in range(5):
        x = ops.concat(x, m.conv(ops.relu(m.batch_norm(x, width)), width, 8), axis=1)
        width += 8
    return ops.average_pool(x, kernel_shape=[2, 2], strides=[2, 2])


@model
def shuffle_unit(m: Model) -> Any:
    x = m.input(1, 32, 28, 28)
    for _ in range(2):
        y = ops.relu(m.conv(x, 32, 32, 1, group=4))
        y = ops.reshape(ops.transpose(ops.reshape(y, [1, 4, 8, 28, 28]), perm=[0, 2, 1, 3, 4]), [1, 32, 28, 28])
        x = ops.relu(x + m.conv(m.conv(y, 32, 32, group=32), 32, 32, 1, group=4))
    return x


@model
def unet(m: Model) -> Any:
    a = ops.relu(m.conv(m.input(1, 1, 64, 64), 1, 8))
    b = ops.relu(m.conv(ops.max_pool(a, kernel_shape=[2, 2], strides=[2, 2]), 8, 16))
    c = ops.relu(m.conv(ops.max_pool(b, kernel_shape=[2, 2], strides=[2, 2]), 16, 32))
    up = {"kernel_shape": [2, 2], "strides": [2, 2]}
    b = ops.relu(m.conv(ops.concat(b, ops.conv_transpose(c, m.weight(32, 16, 2, 2), **up), axis=1), 32, 16))
    a = ops.relu(m.conv(ops.concat(a, ops.conv_transpose(b, m.weight(16, 8, 2, 2), **up), axis=1), 16, 8))
    return ops.sigmoid(m.conv(a, 8, 1, 1))


@model
def upsampler(m: Model) -> Any:
    x = ops.relu(m.conv(m.input(1, 3, 24, 24), 3, 16))
    scales = m.fixed(np.array([1, 1, 2, 2], np.float32))
    x = ops.relu(m.conv(ops.resize(x, None, scales, mode="linear"), 16, 12))
    return ops.depth_to_space(x, blocksize=2) + ops.resize(m.conv(x, 12, 3, 1), None, scales, mode="nearest")


@model
def generator(m: Model) -> Any:
    x = ops.reshape(m.dense(m.input(1, 32), 32, 512), [1, 32, 4, 4])
    for inner, outer in ((32, 16), (16, 8), (8, 3)):
        weights = m.weight(inner, outer, 4, 4)
        x = ops.conv_transpose(ops.relu(x), weights, kernel_shape=[4, 4], strides=[2, 2], pads=[1, 1, 1, 1])
    return ops.tanh(x)


@model
def style_transfer(m: Model) -> Any:
    x = m.input(1, 3, 40, 40)
    for inner, outer in ((3, 16), (16, 16), (16, 3)):
        x = ops.pad(x, [0, 0, 1, 1, 0, 0, 1, 1], mode="reflect")
        ones = m.fixed(np.ones(outer, np.float32))
        x = ops.relu(ops.instance_normalization(m.conv(x, inner, outer, pads=[0] * 4), ones, m.weight(outer)))
    return x


@model
def group_normalized(m: Model) -> Any:
    x = m.conv(m.input(1, 3, 24, 24), 3, 32)
    for _ in range(2):
        ones = m.fixed(np.ones(32, np.float32))
        y = ops.group_normalization(x, ones, m.weight(32), num_groups=8)
        x = x + m.conv(y * ops.sigmoid(y), 32, 32)
    return x


@model
def volumes(m: Model) -> Any:
    x = m.input(1, 1, 12, 20, 20)
    for inner, outer in ((1, 8), (8, 8)):
        x = ops.relu(ops.conv(x, m.weight(outer, inner, 3, 3, 3), m.weight(outer), pads=[1] * 6))
    return ops.max_pool(x, kernel_shape=[2, 2, 2], strides=[2, 2, 2])


@model
def detection_head(m: Model) -> Any:
    x = m.conv(m.input(1, 16, 20, 20), 16, 6, 1)
    boxes = ops.transpose(ops.reshape(x, [1, 6, 400]), perm=[0, 2, 1])
    centers, sizes, scores = boxes[..., 0:2], ops.exp(boxes[..., 2:4]), ops.sigmoid(boxes[..., 4:6])
    corners = ops.concat(centers - sizes * 0.5, centers + sizes * 0.5, axis=-1)
    best, places = ops.top_k(ops.reduce_max(scores, [2], keepdims=0), [50], axis=1)
    return ops.gather_elements(corners, ops.expand(ops.unsqueeze(places, [2]), [1, 50, 4]), axis=1), best


# ----- sequences ------------------------------------------------------------------------------------------------------


def recurrent(m: Model, function: Any, gates: int, size: int, directions: int = 1, length: int = 16) -> Any:
    x = m.input(length, 2, 24)
    w, r = (m.weight(directions, gates * size, inner, scale=0.2) for inner in (24, size))
    attributes = {"direction": "bidirectional"} if directions == 2 else {}
    b = m.weight(directions, 2 * gates * size)
    return function(x, w, r, b, hidden_size=size, **attributes)[0]


@model
def lstm(m: Model) -> Any:
    return m.linear(ops.squeeze(recurrent(m, ops.lstm, 4, 48), [1]), 48, 8)


@model
def two_way_lstm(m: Model) -> Any:
    y = ops.transpose(recurrent(m, ops.lstm, 4, 32, directions=2), perm=[0, 2, 1, 3])
    return m.linear(ops.reshape(y, [16, 2, 64]), 64, 8)


@model
def gru(m: Model) -> Any:
    return recurrent(m, ops.gru, 3, 48)


@model
def long_rnn(m: Model) -> Any:
    return recurrent(m, ops.rnn, 1, 32, length=100)


@model
def text_cnn(m: Model) -> Any:
    words = ops.gather(m.weight(500, 32, scale=1.0), m.input(4, 40, high=500))
    x = ops.transpose(words, perm=[0, 2, 1])
    ways = [ops.relu(ops.conv(x, m.weight(16, 32, size), m.weight(16))) for size in (3, 4, 5)]
    pooled = [ops.reduce_max(way, [2], keepdims=0) for way in ways]
    return ops.softmax(m.dense(ops.concat(*pooled, axis=1), 48, 3))


@model
def temporal_convolutions(m: Model) -> Any:
    x = ops.conv(m.input(1, 8, 200), m.weight(16, 8, 1))
    for dilation in (1, 2, 4, 8):
        y = ops.conv(x, m.weight(16, 16, 3), m.weight(16), dilations=[dilation], pads=[2 * dilation, 0])
        x = x + ops.relu(y)
    return x


@model
def bag_of_words(m: Model) -> Any:
    words = ops.gather(m.weight(1000, 64, scale=1.0), m.input(32, 50, dims=("n", 50), high=1000))
    return ops.log_softmax(m.dense(ops.reduce_mean(words, [1], keepdims=0), 64, 20))


@model
def transformer_encoder(m: Model) -> Any:
    x = m.input(1, 32, 64, dims=(1, "length", 64))
    for _ in range(2):
        x = m.layer_norm(x + m.heads(x, 64, 4), 64)
        x = m.layer_norm(x + m.linear(ops.gelu(m.linear(x, 64, 256)), 256, 64), 64)
    return x


@model
def cross_attention(m: Model) -> Any:
    x, memory = m.input(2, 8, 48), m.input(2, 20, 48)
    return m.layer_norm(x + m.heads(x, 48, 4, memory), 48)


@model
def vision_transformer(m: Model) -> Any:
    patches = ops.conv(m.input(1, 3, 32, 32), m.weight(48, 3, 8, 8), kernel_shape=[8, 8], strides=[8, 8])
    x = ops.transpose(ops.reshape(patches, [1, 48, 16]), perm=[0, 2, 1])
    x = ops.concat(m.weight(1, 1, 48), x, axis=1) + m.weight(1, 17, 48)
    for _ in range(3):
        x = x + m.heads(m.layer_norm(x, 48), 48, 4)
        x = x + m.linear(ops.gelu(m.linear(m.layer_norm(x, 48), 48, 96)), 96, 48)
    return m.linear(x[:, 0], 48, 10)


@model
def gated_decoder(m: Model) -> Any:
    """A decoder step with RMS norms and gated units, in primitive ops."""
    x, past = m.input(1, 1, 64), m.input(1, 30, 64, dims=(1, "past", 64))
    for _ in range(2):
        scale = ops.reciprocal(ops.sqrt(ops.reduce_mean(x * x, [2]) + 1e-5))
        h = x * scale * m.fixed(np.ones(64, np.float32))
        x = x + m.heads(h, 64, 4, ops.concat(past, h, axis=1))
        gate = m.linear(x, 64, 128)
        x = x + m.linear(gate * ops.sigmoid(gate) * m.linear(x, 64, 128), 128, 64)
    return x


# ----- others ---------------------------------------------------------------------------------------------------------


@model
def nearest_neighbors(m: Model) -> Any:
    x, known = m.input(20, 16), m.weight(300, 16, scale=1.0)
    squares = ops.reduce_sum(known * known, [1], keepdims=0)
    distances = squares - 2.0 * (x @ ops.transpose(known, perm=[1, 0])) + ops.reduce_sum(x * x, [1])
    return ops.top_k(distances, [5], largest=0)


@model
def graph_network(m: Model) -> Any:
    nodes = m.input(50, 16)
    ends = m.random.integers(50, size=(2, 200))
    for _ in range(2):
        messages = ops.relu(m.linear(ops.gather(nodes, m.fixed(ends[0])), 16, 16))
        places = m.fixed(np.repeat(ends[1][:, None], 16, axis=1))
        summed = ops.scatter_elements(nodes * 0.0, places, messages, axis=0, reduction="add")
        nodes = ops.tanh(m.linear(ops.concat(nodes, summed, axis=1), 32, 16))
    return nodes


@model
def spectrum(m: Model) -> Any:
    frames = ops.gather(m.input(4, 512), m.fixed(np.arange(0, 449, 32)[:, None] + np.arange(64)), axis=1)
    angle = 2 * np.pi * np.outer(np.arange(64), np.arange(33)) / 64
    parts = [frames @ m.fixed(f(angle).astype(np.float32)) for f in (np.cos, np.sin)]
    return ops.log(parts[0] * parts[0] + parts[1] * parts[1] + 1e-6)


@model
def quantized_dense(m: Model) -> Any:
    x = m.input(16, 64)
    for _ in range(2):
        scale, zero = m.fixed(np.float32(0.05)), m.fixed(np.uint8(128))
        x = quantized.dequantize_linear(quantized.quantize_linear(x, scale, zero), scale, zero)
        w = m.fixed(m.random.integers(-128, 128, (64, 64)).astype(np.int8))
        x = ops.relu(x @ quantized.dequantize_linear(w, m.fixed(np.float32(0.002)), m.fixed(np.int8(0))))
    return x


def small_models() -> dict[str, tuple[tx.Graph, dict[str, Any]]]:
    """The models by name, each with its feeds."""
    result = {}
    for name, function in MODELS.items():
        model = Model(name)
        with model.graph.building():
            results = function(model)
        for k, value in enumerate(results if isinstance(results, tuple) else (results,)):
            model.graph.output(f"y{k}", value)
        result[name] = (model.graph, model.feeds)
    return result
