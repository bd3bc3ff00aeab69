"""Small networks, and six ways to quantize them, for ``quantized.py``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.extend import DType, TensorType, Value, constant
from tenonnx.extend.transforms import Call, Rewriter
from tenonnx_quantized.quantize import dequantize_linear, quantize_linear

_DRAW = np.random.default_rng(0)


def _weights(*shape: int) -> Value:
    fan_in = int(np.prod(shape[1:])) if len(shape) > 2 else shape[0]
    return constant((_DRAW.standard_normal(shape) * (1.5 / fan_in) ** 0.5).astype(np.float32))


def _bias(count: int) -> Value:
    return constant((_DRAW.standard_normal(count) * 0.1).astype(np.float32))


def _conv(x: Value, count: int, size: int = 3, stride: int = 1, group: int = 1) -> Any:
    channels = int(x.shape[1])
    kernel = [size] * (x.ndim - 2)
    weights = _weights(count, channels // group, *kernel)
    pads = [size // 2] * 2 * len(kernel)
    return ops.conv(x, weights, _bias(count), pads=pads, strides=[stride] * len(kernel), group=group)


def _dense(x: Value, count: int) -> Any:
    return ops.matmul(x, _weights(int(x.shape[-1]), count)) + _bias(count)


def _pooled(x: Value) -> Any:
    return ops.flatten(ops.global_average_pool(x))


def _relu6(x: Value) -> Any:
    return ops.clip(x, 0.0, 6.0)


def cnn(x: Value) -> Any:
    y = ops.max_pool(ops.relu(_conv(x, 32)), kernel_shape=[2, 2], strides=[2, 2])
    y = ops.relu(_conv(ops.relu(_conv(y, 64)), 96))
    return _dense(_pooled(y), 100)


def residual(x: Value) -> Any:
    y = ops.relu(_conv(x, 64))
    for _ in range(2):
        y = ops.relu(_conv(ops.relu(_conv(y, 64)), 64) + y)
    return _dense(_pooled(y), 100)


def mobilenet(x: Value) -> Any:
    y = _relu6(_conv(x, 48, stride=2))
    for count in (48, 96, 96):
        inner = _relu6(_conv(y, 4 * int(y.shape[1]), 1))
        inner = _conv(_relu6(_conv(inner, int(inner.shape[1]), group=int(inner.shape[1]))), count, 1)
        y = inner + y if inner.shape[1] == y.shape[1] else inner
    return _dense(_pooled(y), 100)


def mlp(x: Value) -> Any:
    y = ops.flatten(x)
    for count in (256, 256, 128):
        y = ops.relu(_dense(y, count))
    return _dense(y, 100)


def _attention(x: Value, heads: int) -> Any:
    size = int(x.shape[-1])

    def split(y: Value) -> Any:
        return ops.transpose(ops.reshape(y, [0, 0, heads, size // heads]), perm=[0, 2, 1, 3])

    query, key, value = (split(_dense(x, size)) for _ in range(3))
    scores = ops.matmul(query, ops.transpose(key, perm=[0, 1, 3, 2])) * (size // heads) ** -0.5
    found = ops.matmul(ops.softmax(scores), value)
    return _dense(ops.reshape(ops.transpose(found, perm=[0, 2, 1, 3]), [0, 0, size]), size)


def _normalized(x: Value) -> Any:
    size = int(x.shape[-1])
    scale, shift = constant(np.ones(size, np.float32)), constant(np.zeros(size, np.float32))
    return ops.layer_normalization(x, scale, shift)[0]


def transformer(x: Value) -> Any:
    y = x
    for _ in range(2):
        y = _normalized(y + _attention(y, 4))
        y = _normalized(y + _dense(ops.gelu(_dense(y, 256)), 96))
    return _dense(y, 96)


def attention(x: Value) -> Any:
    return _dense(ops.relu(x + _attention(x, 4)), 256)


def mixer(x: Value) -> Any:
    y = x
    for _ in range(2):
        mixed = ops.transpose(_dense(ops.relu(_dense(ops.transpose(y, perm=[0, 2, 1]), 64)), 16), perm=[0, 2, 1])
        y = y + mixed
        y = y + _dense(ops.relu(_dense(y, 256)), 96)
    return y


def unet(x: Value) -> Any:
    first = ops.relu(_conv(x, 32))
    second = ops.relu(_conv(ops.max_pool(first, kernel_shape=[2, 2], strides=[2, 2]), 64))
    third = ops.relu(_conv(ops.max_pool(second, kernel_shape=[2, 2], strides=[2, 2]), 96))
    up = ops.resize(
        third,
        None,
        [1.0, 1.0, 2.0, 2.0],
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    y = ops.relu(_conv(ops.concat(up, second, axis=1), 64))
    up = ops.conv_transpose(y, _weights(64, 32, 2, 2), _bias(32), strides=[2, 2])
    return _conv(ops.relu(_conv(ops.concat(up, first, axis=1), 32)), 8, 1)


def squeeze_excite(x: Value) -> Any:
    y = ops.relu(_conv(x, 64))
    for _ in range(2):
        inner = _conv(y, 64)
        gate = ops.sigmoid(_conv(ops.relu(_conv(ops.global_average_pool(inner), 16, 1)), 64, 1))
        y = inner * gate + y
    return _dense(_pooled(y), 100)


def detector(x: Value) -> Any:
    y = ops.relu(_conv(x, 64, stride=2))
    small = ops.relu(_conv(y, 96, stride=2))
    found = []
    for each in (y, small):
        head = _conv(ops.leaky_relu(_conv(each, 64), alpha=0.1), 12)
        found.append(ops.reshape(ops.transpose(head, perm=[0, 2, 3, 1]), [0, -1, 6]))
    both = ops.concat(*found, axis=1)
    return ops.sigmoid(both)


def waves(x: Value) -> Any:
    y = ops.relu(_conv(x, 64, 5))
    for dilation in (1, 2):
        pads = [2 * dilation] * 2
        inner = ops.conv(y, _weights(64, 64, 5), _bias(64), pads=pads, dilations=[dilation])
        y = ops.tanh(inner) * ops.sigmoid(_conv(y, 64)) + y
    return _dense(ops.reduce_mean(y, [2], keepdims=0), 100)


def recurrent(x: Value) -> Any:
    shapes = (1, 384, 96), (1, 384, 96), (1, 768)
    weights = [constant((_DRAW.standard_normal(shape) * 0.1).astype(np.float32)) for shape in shapes]
    y, _, _ = ops.lstm(ops.transpose(_dense(x, 96), perm=[1, 0, 2]), *weights, hidden_size=96)
    return _dense(ops.relu(_dense(ops.transpose(ops.squeeze(y, [1]), perm=[1, 0, 2]), 256)), 100)


_IMAGE, _ROWS, _WAVES = (2, 3, 16, 16), (2, 16, 96), (2, 8, 64)

NETWORKS: dict[str, tuple[Callable[[Value], Any], tuple[int, ...]]] = {
    **{each.__name__: (each, _IMAGE) for each in (cnn, residual, mobilenet, mlp, unet, squeeze_excite, detector)},
    **{each.__name__: (each, _ROWS) for each in (transformer, attention, mixer, recurrent)},
    "waves": (waves, _WAVES),
}


def network(name: str) -> tuple[tx.Graph, list[dict[str, Any]]]:
    """A float network with random weights, and calibration data."""
    global _DRAW
    _DRAW = np.random.default_rng(0)
    function, shape = NETWORKS[name]
    graph = tx.Graph(name, opsets={"ai.onnx": 21})
    x = graph.input("x", "float32", shape)
    with graph.building():
        graph.output("y", function(x))
    return graph, [{"x": _DRAW.standard_normal(shape).astype(np.float32)} for _ in range(4)]


# ----- ways to quantize -----------------------------------------------------------------------------------------------

OWN = {
    "channel": {"recipe": "litert"},
    "tensor": {"recipe": "litert", "granularity": "tensor"},
    "int16": {"mode": "static", "activation_type": "int16", "symmetric": True},
    "int4": {"mode": "static", "activation_type": "int8", "weight_type": "int4", "granularity": "channel"},
    "dynamic": {"mode": "dynamic"},
}

WAYS = [*OWN, "everywhere"]


def quantized(graph: tx.Graph, feeds: list[dict[str, Any]], way: str) -> tx.Graph:
    """Quantize ``graph`` by a mode of ``tx.quantize``, or round every float activation to int8."""
    if way != "everywhere":
        return tx.quantize(graph, feeds, **OWN[way])[0]
    chosen = tx.quantize(graph, feeds, **OWN["channel"])[0]
    return everywhere(chosen, feeds)


def everywhere(graph: tx.Graph, feeds: list[dict[str, Any]]) -> tx.Graph:
    """``graph`` with every float result rounded to int8, unless it is rounded already."""
    ranges = _ranges(graph, feeds)
    done = {"QuantizeLinear", "DequantizeLinear"}

    def decide(rewriter: Rewriter, call: Call) -> Any:
        node = call.node
        if node is None or node.op_type in done or call.outputs != 1 or node.outputs[0] is None:
            return None
        readers = rewriter.readers.get(node.outputs[0], [])
        if node.outputs[0].name not in ranges or any(map(_takes_in, readers)):
            return None
        low, high = ranges[node.outputs[0].name]
        scale = np.float32(max((high - low) / 255, 1e-6))
        zero = constant(np.int8(np.clip(np.rint(-128 - low / scale), -128, 127)))
        result = call.op(*call.inputs, **call.attributes)
        return (dequantize_linear(quantize_linear(result, constant(scale), zero), constant(scale), zero),)

    return Rewriter(graph, decide).run()


def _takes_in(node: Any) -> bool:
    """Whether a node is fused into the kernel of the node before it, or quantizes its result."""
    has_constant = any(v is not None and v.is_constant for v in node.inputs)
    return node.op_type in ("Relu", "Clip", "QuantizeLinear") or (node.op_type == "Add" and has_constant)


def _ranges(graph: tx.Graph, feeds: list[dict[str, Any]]) -> dict[str, tuple[float, float]]:
    """The range, extended to 0, of each float result."""
    probed = graph.copy()
    for node in probed.nodes:
        value = node.outputs[0]
        kind = None if value is None else value.type
        if (
            value is not None
            and isinstance(kind, TensorType)
            and kind.dtype is DType.float32
            and value not in probed.outputs
        ):
            probed.outputs.append(value)
    ranges: dict[str, tuple[float, float]] = {}
    for each in feeds:
        for name, array in probed.run(each, backend="numpy").items():
            low, high = ranges.get(name, (0.0, 0.0))
            ranges[name] = min(low, float(array.min(initial=0))), max(high, float(array.max(initial=0)))
    return ranges


def quantized_networks() -> Iterator[tuple[str, tx.Graph, tx.Graph, list[dict[str, Any]]]]:
    """Names, float graphs, quantized graphs and inputs."""
    for name in NETWORKS:
        graph, feeds = network(name)
        for way in WAYS:
            yield f"{name}-{way}", graph, quantized(graph, feeds, way), feeds
