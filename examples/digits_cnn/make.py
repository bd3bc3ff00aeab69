"""Generator of a small convolutional network for handwritten digits, trained with tenonnx.

Run ``python make.py [folder]``. It writes ``digits-cnn.onnx``, trained on half of scikit-learn's digits, and
``digits.npz`` with the other half, images and labels, for fine-tuning.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import tenonnx as tx
import tenonnx_training as tt
from tenonnx import Graph, Value
from tenonnx_standard.activation import relu
from tenonnx_standard.batch_norm import batch_normalization
from tenonnx_standard.convolution import conv
from tenonnx_standard.linear_algebra import gemm
from tenonnx_standard.max_pooling import max_pool
from tenonnx_standard.regularization import dropout
from tenonnx_standard.shapes import flatten

OPSET = 21
INPUT, OUTPUT = "images", "scores"


def network(random: np.random.Generator) -> Graph:
    """Two blocks of convolution, normalization and pooling on 8 x 8 pixels, and a linear layer."""
    graph = Graph("digits-cnn")
    x = graph.input(INPUT, "float32", ("batch", 1, 8, 8))
    x = block(graph, "block1", x, 1, 16, random)
    x = block(graph, "block2", x, 16, 32, random)
    x = dropout(flatten(x), graph.variable("dropout.ratio", np.float32(0.25)), _outputs=1)
    weight = weights(graph, "classifier.weight", (10, 128), 128, random)
    bias = graph.variable("classifier.bias", np.zeros(10, np.float32))
    graph.output(OUTPUT, gemm(x, weight, bias, transB=1))
    return graph


def block(graph: Graph, name: str, x: Value, channels: int, filters: int, random: np.random.Generator) -> Value:
    kernel = weights(graph, f"{name}.conv.weight", (filters, channels, 3, 3), channels * 9, random)
    start = {"scale": 1.0, "shift": 0.0, "mean": 0.0, "variance": 1.0}
    parameters = [graph.variable(f"{name}.norm.{k}", np.full(filters, v, np.float32)) for k, v in start.items()]
    x = conv(x, kernel, pads=[1, 1, 1, 1])
    x = batch_normalization(x, *parameters, _outputs=1)
    return max_pool(relu(x), kernel_shape=[2, 2], strides=[2, 2], _outputs=1)


def weights(graph: Graph, name: str, shape: tuple[int, ...], inputs: int, random: np.random.Generator) -> Value:
    """Random normal weights that preserve the variance of ReLU outputs (He et al. 2015)."""
    scale = np.sqrt(2 / inputs)
    return graph.variable(name, (scale * random.standard_normal(shape)).astype(np.float32))


def main(folder: Path = Path(__file__).parent) -> None:
    """Train the network on half of the digits; write it and the other half into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    images, labels = load_digits(return_X_y=True)
    pixels = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    half, other, half_labels, other_labels = train_test_split(
        pixels, labels.astype(np.int64), test_size=0.5, random_state=0, stratify=labels
    )
    graph = network(np.random.default_rng(0))
    history = tt.fit(
        graph,
        (half, half_labels),
        loss="softmax_cross_entropy",
        optimizer=tt.Adam(3e-3),
        trainable=["*.weight", "*.bias", "*.scale", "*.shift"],
        epochs=4,
        metrics=["accuracy"],
        validation=(other, other_labels),
        backend="numpy",
    )
    print(f"{history.epochs[-1]['validation_accuracy']:.1%} of {len(other)} held-out images")
    tx.export(graph, folder / "digits-cnn.onnx", opset_version=OPSET)
    np.savez_compressed(folder / "digits.npz", **{INPUT: other, "labels": other_labels})


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
