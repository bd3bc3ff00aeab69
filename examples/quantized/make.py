"""Generator of quantized models in common formats: a BERT classifier, a ResNet and decoders.

python examples/quantized/make.py [folder]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tenonnx as tx
import tenonnx_standard as ops
import tenonnx_training as tt
from tenonnx_quantized.forms.qoperator import to_qoperator
from tenonnx_quantized.tuning.quantize import quantize

HIDDEN, HEADS, WORDS, LENGTH = 32, 2, 50, 12
RANDOM = np.random.default_rng(0)


def weight(graph: tx.Graph, name: str, *shape: int) -> tx.Value:
    """A random weight, scaled by its number of inputs."""
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
    """A convolution, two residual blocks and a classifier of ten classes, for images of 16 x 16 pixels."""
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


TEXT = (
    "a model is a graph of operators, and each operator is a function of tensors. a quantized model holds codes in "
    "place of numbers: a code, less its zero point, times its scale is the number that it stands for. weights of four "
    "bits come in blocks, and each block has a scale of its own, so that one large number does not spoil the others. "
)
LETTERS = sorted(set(TEXT))
LLAMA_HEADS, KEYS, SIZE, INNER = 4, 2, 8, 64


def llama() -> tx.Graph:
    """A LLaMA-like model of letters with two layers: rotary embedding, grouped queries, RMSNormalization, SwiGLU."""
    graph = tx.Graph("llama", opsets={"ai.onnx": 23})
    letters = graph.input("input_ids", "int64", ("batch", "length"))
    angles = np.outer(np.arange(128), 10000.0 ** (-np.arange(0, SIZE, 2) / SIZE)).astype(np.float32)
    cosines, sines = graph.variable("cosines", np.cos(angles)), graph.variable("sines", np.sin(angles))
    length = ops.shape(letters, start=1, end=2)
    places = ops.expand(ops.range_(0, ops.squeeze(length), 1), ops.shape(letters))

    def scaled(name: str, x: tx.Value) -> tx.Value:
        return ops.rms_normalization(x, graph.variable(f"{name}.scale", np.ones(HIDDEN, np.float32)))

    def parted(name: str, x: tx.Value, count: int) -> tx.Value:
        y = ops.reshape(x @ weight(graph, f"{name}.weight", HIDDEN, count * SIZE), [0, 0, count, SIZE])
        return ops.transpose(y, perm=[0, 2, 1, 3])

    x = ops.gather(graph.variable("letters", RANDOM.normal(0, 1, (len(LETTERS), HIDDEN)).astype(np.float32)), letters)
    for layer in ("layers.0", "layers.1"):
        y = scaled(f"{layer}.attention_norm", x)
        q, k = (
            ops.rotary_embedding(parted(f"{layer}.{name}", y, count), cosines, sines, places)
            for name, count in (("query", LLAMA_HEADS), ("key", KEYS))
        )
        seen = ops.attention(q, k, parted(f"{layer}.value", y, KEYS), is_causal=1)[0]
        seen = ops.reshape(ops.transpose(seen, perm=[0, 2, 1, 3]), [0, 0, LLAMA_HEADS * SIZE])
        x = x + seen @ weight(graph, f"{layer}.output.weight", LLAMA_HEADS * SIZE, HIDDEN)
        y = scaled(f"{layer}.feed_norm", x)
        gate, up = (y @ weight(graph, f"{layer}.{name}.weight", HIDDEN, INNER) for name in ("gate", "up"))
        x = x + (ops.swish(gate) * up) @ weight(graph, f"{layer}.down.weight", INNER, HIDDEN)
    graph.output("logits", scaled("norm", x) @ weight(graph, "head.weight", HIDDEN, len(LETTERS)))
    return graph


def windows(length: int) -> tuple[np.ndarray, np.ndarray]:
    """All windows of ``length`` letters of the cyclic text, and the letters that follow each of them."""
    text = np.array([LETTERS.index(letter) for letter in TEXT])
    places = (np.arange(len(text))[:, None] + np.arange(length + 1)) % len(text)
    return text[places[:, :-1]], text[places[:, 1:]]


def learn(graph: tx.Graph, steps: int = 200) -> None:
    """Train the model until it has memorized the text."""

    def loss(logits: tx.Value, labels: tx.Value) -> tx.Value:
        rows = ops.reshape(logits, [-1, len(LETTERS)])
        return ops.softmax_cross_entropy_loss(rows, ops.reshape(labels, [-1]))[0]

    inputs, labels = windows(32)
    measure = tt.FunctionLoss(loss, labels=tx.TensorType(tx.DType.int64, ("batch", "length")))
    step = tt.TrainingStep(graph, measure, tt.Adam(1e-2), trainable=["letters", "*.weight", "*.scale"])
    for _ in range(steps):
        chosen = RANDOM.choice(len(inputs), 16, replace=False)
        found = step({"input_ids": inputs[chosen], "labels": labels[chosen]})
    print(f"llama: loss {float(found['loss']):.3f}")
    step.write_back()


def main(folder: Path = Path(__file__).parent) -> None:
    """Write the models and their samples into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    words = [{"input_ids": RANDOM.integers(0, WORDS, (8, LENGTH))} for _ in range(4)]
    images = [{"image": RANDOM.normal(size=(8, 3, 16, 16)).astype(np.float32)} for _ in range(4)]
    np.savez(folder / "bert.npz", allow_pickle=False, **words[0])
    np.savez(folder / "resnet.npz", allow_pickle=False, **images[0])
    letters = windows(32)[0][::32]
    np.savez(folder / "llama.npz", allow_pickle=False, input_ids=letters)
    classifier, network = bert(), resnet()
    static, _ = quantize(network, images, mode="static")
    models = {
        "bert": classifier,
        "bert-dynamic": quantize(classifier, words, mode="dynamic", form="qoperator")[0],
        "bert-static": quantize(classifier, words, mode="static")[0],
        "resnet": network,
        "resnet-qdq": static,
        "resnet-qoperator": to_qoperator(static),
        "llama": (decoder := llama()),
    }
    learn(decoder)
    packed, _ = quantize(decoder, [{"input_ids": letters}], mode="weights", bits=4, search="hqq")
    models |= {"llama-4bit": to_qoperator(packed), "llama-4bit-qdq": packed}
    for name, graph in models.items():
        tx.export(graph, folder / f"{name}.onnx")
        print(f"{name}.onnx: {(folder / f'{name}.onnx').stat().st_size:,} bytes")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
