"""Make quantised models with tenonnx: a BERT classifier, a ResNet and a decoder, in the forms that users have.

python examples/quantized/make.py [folder]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx_quantized.forms.qoperator import to_qoperator
from tenonnx_quantized.tuning.quantize import quantize

HIDDEN, HEADS, WORDS, LENGTH = 32, 2, 50, 12
RANDOM = np.random.default_rng(0)


def weight(graph: tx.Graph, name: str, *shape: int) -> tx.Value:
    """A variable of random numbers, as small as its inputs are many."""
    fan = int(np.prod(shape[1:])) if len(shape) == 4 else shape[0]
    return graph.variable(name, RANDOM.normal(0, fan**-0.5, shape).astype(np.float32))


def linear(graph: tx.Graph, name: str, x: tx.Value, inputs: int, outputs: int) -> tx.Value:
    bias = graph.variable(f"{name}.bias", RANDOM.normal(0, 0.1, outputs).astype(np.float32))
    return x @ weight(graph, f"{name}.weight", inputs, outputs) + bias


def normalized(graph: tx.Graph, name: str, x: tx.Value) -> tx.Value:
    scale, bias = (
        graph.variable(f"{name}.{n}", np.full(HIDDEN, v, np.float32)) for n, v in (("scale", 1), ("bias", 0))
    )
    return ops.layer_normalization(x, scale, bias)[0]


def heads(x: tx.Value) -> tx.Value:
    return ops.transpose(ops.reshape(x, [0, 0, HEADS, HIDDEN // HEADS]), perm=[0, 2, 1, 3])


def bert() -> tx.Graph:
    """One layer of BERT and a classifier of two classes."""
    graph = tx.Graph("bert", opsets={"ai.onnx": 21})
    words = graph.input("input_ids", "int64", ("batch", LENGTH))
    x = ops.gather(weight(graph, "words", WORDS, HIDDEN), words) + weight(graph, "places", LENGTH, HIDDEN)
    x = normalized(graph, "first_norm", x)
    q, k, v = (heads(linear(graph, f"attention.{n}", x, HIDDEN, HIDDEN)) for n in ("query", "key", "value"))
    seen = ops.softmax(q @ ops.transpose(k, perm=[0, 1, 3, 2]) * (HIDDEN // HEADS) ** -0.5) @ v
    seen = ops.reshape(ops.transpose(seen, perm=[0, 2, 1, 3]), [0, 0, HIDDEN])
    x = normalized(graph, "attention_norm", x + linear(graph, "attention.output", seen, HIDDEN, HIDDEN))
    inner = ops.gelu(linear(graph, "inner", x, HIDDEN, 2 * HIDDEN))
    x = normalized(graph, "output_norm", x + linear(graph, "outer", inner, 2 * HIDDEN, HIDDEN))
    graph.output("scores", linear(graph, "classifier", ops.tanh(x[:, 0]), HIDDEN, 2))
    return graph


def resnet() -> tx.Graph:
    """A convolution, two residual blocks and a classifier of ten classes, for images of 16 by 16."""
    graph = tx.Graph("resnet", opsets={"ai.onnx": 21})

    def convolved(name: str, x: tx.Value, channels: int, stride: int = 1, size: int = 3) -> tx.Value:
        w = weight(graph, f"{name}.weight", channels, x.shape[1], size, size)
        bias = graph.variable(f"{name}.bias", RANDOM.normal(0, 0.1, channels).astype(np.float32))
        return ops.conv(x, w, bias, strides=[stride] * 2, pads=[size // 2] * 4)

    x = ops.relu(convolved("stem", graph.input("image", "float32", ("batch", 3, 16, 16)), 8))
    x = ops.max_pool(x, kernel_shape=[2, 2], strides=[2, 2])
    for block, (channels, stride) in enumerate([(8, 1), (16, 2)]):
        y = convolved(f"block{block}.second", ops.relu(convolved(f"block{block}.first", x, channels, stride)), channels)
        short = x if stride == 1 else convolved(f"block{block}.short", x, channels, stride, 1)
        x = ops.relu(y + short)
    x = ops.flatten(ops.global_average_pool(x))
    bias = graph.variable("classifier.bias", np.zeros(10, np.float32))
    graph.output("scores", ops.gemm(x, weight(graph, "classifier.weight", 16, 10), bias))
    return graph


def main(folder: Path = Path(__file__).parent) -> None:
    """Write the models and their samples into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    words = [{"input_ids": RANDOM.integers(0, WORDS, (8, LENGTH))} for _ in range(4)]
    images = [{"image": RANDOM.normal(size=(8, 3, 16, 16)).astype(np.float32)} for _ in range(4)]
    np.savez(folder / "bert.npz", allow_pickle=False, **words[0])
    np.savez(folder / "resnet.npz", allow_pickle=False, **images[0])
    classifier, network = bert(), resnet()
    decoder = tx.load(Path(__file__).parents[1] / "decoder" / "decoder.onnx")
    prompt = [dict(np.load(Path(__file__).parents[1] / "decoder" / "samples.npz"))]
    static, _ = quantize(network, images, mode="static")
    made = {
        "bert": classifier,
        "bert-dynamic": quantize(classifier, words, mode="dynamic", form="qoperator")[0],
        "bert-static": quantize(classifier, words, mode="static")[0],
        "resnet": network,
        "resnet-qdq": static,
        "resnet-qoperator": to_qoperator(static),
        "decoder-4bit": quantize(decoder, prompt, mode="weights", form="qoperator", search="hqq")[0],
    }
    for name, graph in made.items():
        tx.export(graph, folder / f"{name}.onnx")
        print(f"{name}.onnx: {(folder / f'{name}.onnx').stat().st_size:,} bytes")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
