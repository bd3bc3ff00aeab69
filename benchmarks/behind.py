"""Operators on which the numpy backend is slowest compared with onnxruntime, at realistic sizes, on one thread.

``OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 python benchmarks/behind.py [NAME ...]``. The goal is a factor of at most 8.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import onnx
import onnxruntime
from measure import rounds, table
from small_models import Model

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.formats.onnx.writer import to_model
from tenonnx_quantized.tuning.quantize import quantize


def clipped(x: Any) -> Any:
    return ops.clip(x, 0.0, 6.0)


def deeplab(model: Model) -> Any:
    """MobileNetV2 with output stride 16, dilated last blocks, and pooling at several rates."""
    x, inner = clipped(model.conv(model.input(1, 3, 257, 257), 3, 32, strides=[2, 2])), 32
    plan = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 1), (6, 320, 1, 1))
    for row, (widening, outer, count, stride) in enumerate(plan):
        rate = 2 if row > 4 else 1
        for k in range(count):
            wide, step = inner * widening, stride if k == 0 else 1
            y = x if widening == 1 else clipped(model.conv(x, inner, wide, 1))
            y = model.conv(y, wide, wide, group=wide, strides=[step] * 2, dilations=[rate] * 2, pads=[rate] * 4)
            y = model.conv(clipped(y), wide, outer, 1)
            x, inner = (x + y if step == 1 and inner == outer else y), outer
    parts = [ops.relu(model.conv(x, inner, 256, 1))]
    parts += [ops.relu(model.conv(x, inner, 256, dilations=[r] * 2, pads=[r] * 4)) for r in (6, 12, 18)]
    y = ops.relu(model.conv(ops.concat(*parts, axis=1), 1024, 256, 1))
    return ops.resize(model.conv(y, 256, 21, 1), None, None, [1, 21, 257, 257], mode="linear")


def squeezenet(model: Model) -> Any:
    def fire(x: Any, inner: int, small: int, outer: int) -> Any:
        s = ops.relu(model.conv(x, inner, small, 1))
        return ops.concat(ops.relu(model.conv(s, small, outer, 1)), ops.relu(model.conv(s, small, outer)), axis=1)

    def pooled(x: Any) -> Any:
        return ops.max_pool(x, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)

    x = ops.relu(model.conv(model.input(1, 3, 224, 224), 3, 64, strides=[2, 2], pads=[0] * 4))
    x = fire(fire(pooled(x), 64, 16, 64), 128, 16, 64)
    x = fire(fire(pooled(x), 128, 32, 128), 256, 32, 128)
    x = fire(fire(pooled(x), 256, 48, 192), 384, 48, 192)
    x = fire(fire(x, 384, 64, 256), 512, 64, 256)
    return ops.global_average_pool(ops.relu(model.conv(x, 512, 1000, 1)))


LOOP = """
<ir_version: 10, opset_import: ["": 21]>
loop (float[1, 64] x0, float[64, 64] w, float[64, 64] v) => (float[1, 64] y)
{
  count = Constant <value_int = 100> ()
  true = Constant <value = bool {1}> ()
  y = Loop (count, true, x0) <body = step (int64 i, bool on, float[1, 64] s) => (bool still, float[1, 64] next)
  {
    two = Constant <value_int = 2> ()
    zero = Constant <value_int = 0> ()
    rest = Mod (i, two)
    even = Equal (rest, zero)
    next = If (even) <
      then_branch = even () => (float[1, 64] a) { p = MatMul (s, w) a = Tanh (p) },
      else_branch = odd () => (float[1, 64] b) { q = MatMul (s, v) r = Relu (q) b = Add (r, x0) }
    >
    still = Identity (on)
  }>
}
"""


def loop() -> tuple[tx.Graph, dict[str, Any]]:
    """A loop of 100 steps with an If in each, over a vector of 64 elements."""
    random = np.random.default_rng(0)
    shapes = {"x0": (1, 64), "w": (64, 64), "v": (64, 64)}
    feeds = {name: np.float32(random.normal(0, 0.1, shape)) for name, shape in shapes.items()}
    return tx.load(onnx.parser.parse_model(LOOP)), feeds


def decoder(model: Model, length: int = 1) -> Any:
    """Two decoder layers of 1024 channels; the caller quantizes their weights to four bits."""
    x = model.input(1, length, 1024)
    for _ in range(2):
        h = model.layer_norm(x, 1024)
        q, k, v = (ops.reshape(h @ model.weight(1024, 1024), [0, 0, 16, 64]) for _ in range(3))
        q, k, v = (ops.transpose(each, perm=[0, 2, 1, 3]) for each in (q, k, v))
        scores = ops.softmax(q @ ops.transpose(k, perm=[0, 1, 3, 2]) * 0.125, axis=-1)
        joined = ops.reshape(ops.transpose(scores @ v, perm=[0, 2, 1, 3]), [0, 0, 1024])
        x = x + joined @ model.weight(1024, 1024)
        h = model.layer_norm(x, 1024)
        gate, up = h @ model.weight(1024, 2816), h @ model.weight(1024, 2816)
        x = x + (gate * ops.sigmoid(gate) * up) @ model.weight(2816, 1024)
    return x


def rnn(model: Model) -> Any:
    x = model.input(64, 4, 128)
    w, r, b = model.weight(1, 256, 128), model.weight(1, 256, 256, scale=0.02), model.weight(1, 512)
    return ops.rnn(x, w, r, b, hidden_size=256, activations=["Relu"])[0]


MODELS: dict[str, Callable[[Model], Any]] = {
    "DeepLab on MobileNetV2, 257": deeplab,
    "SqueezeNet 1.1, 224": squeezenet,
    "decoder, 4 bits, one token": decoder,
    "decoder, 4 bits, 16 tokens": lambda model: decoder(model, 16),
    "RNN with Relu": rnn,
}


def drawn() -> Iterator[tuple[str, tx.Graph, dict[str, Any]]]:
    """The selected models with their feeds."""
    for name, make in MODELS.items():
        model = Model("m")
        model.graph.output("y", make(model))
        graph = model.graph
        yield name, quantize(graph, mode="weights", backend="numpy")[0] if "4 bits" in name else graph, model.feeds
    yield "If in a Loop", *loop()


def main() -> None:
    rows: list[list[object]] = []
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    for name, graph, feeds in drawn():
        if sys.argv[1:] and not any(each in name for each in sys.argv[1:]):
            continue
        session = onnxruntime.InferenceSession(to_model(graph).SerializeToString(), options, ["CPUExecutionProvider"])
        calls = {"numpy": partial(graph.compile("numpy"), feeds), "runtime": partial(session.run, None, feeds)}
        np.testing.assert_allclose(calls["numpy"]()["y"], calls["runtime"]()[0], rtol=0, atol=0.2)
        found = rounds(calls, 15, 3, min, time.process_time)
        rows.append([name, found["numpy"] * 1e3, found["runtime"] * 1e3, found["numpy"] / found["runtime"]])
    table("numpy beside onnxruntime", ["model", "numpy ms", "onnxruntime ms", "numpy / onnxruntime"], rows)


if __name__ == "__main__":
    main()
