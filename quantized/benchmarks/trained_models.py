"""Small models, trained on data of scikit-learn and on text of this repository.

``python quantized/benchmarks/trained_models.py FOLDER [NAME ...]`` trains models that are missing in the folder. Each
is written as ``NAME.onnx``, with inputs and labels in ``NAME.npz``: calibration data, and held-out data with the
prefix ``held/``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import datasets

import tenonnx as tx
import tenonnx_standard as ops
import tenonnx_training as tt

ROOT = Path(__file__).parents[2]
LENGTH, CLASSES = 48, 10

Array = np.ndarray[Any, Any]
SAME = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}


class Builder:
    """A graph under construction, with random weights."""

    def __init__(self) -> None:
        self.graph = tx.Graph(opsets={"ai.onnx": 21})
        self.random = np.random.default_rng(0)

    def weight(self, *shape: int, scale: float | None = None) -> Any:
        fan = int(np.prod(shape[1:])) if len(shape) > 2 else shape[0]
        drawn = self.random.standard_normal(shape) * (scale if scale is not None else (1.5 / fan) ** 0.5)
        return self.constant(drawn)

    def constant(self, contents: Any) -> Any:
        return self.graph.variable(f"w{len(self.graph.variables)}", np.asarray(contents, np.float32))

    def linear(self, x: Any, inner: int, outer: int) -> Any:
        return x @ self.weight(inner, outer) + self.constant(np.zeros(outer))

    def dense(self, x: Any, inner: int, outer: int) -> Any:
        return ops.gemm(x, self.weight(inner, outer), self.constant(np.zeros(outer)))

    def conv(self, x: Any, inner: int, outer: int, group: int = 1, **attributes: Any) -> Any:
        attributes = {**SAME, **attributes}
        kernels = self.weight(outer, inner // group, *attributes["kernel_shape"])
        return ops.conv(x, kernels, self.constant(np.zeros(outer)), group=group, **attributes)

    def pointwise(self, x: Any, inner: int, outer: int) -> Any:
        return self.conv(x, inner, outer, kernel_shape=[1, 1], pads=[0] * 4)

    def norm(self, x: Any, size: int) -> Any:
        return ops.layer_normalization(x, self.constant(np.ones(size)), self.constant(np.zeros(size)))[0]

    def attention(self, x: Any, size: int, heads: int, mask: Any = None) -> Any:
        def apart(y: Any) -> Any:
            return ops.transpose(ops.reshape(y, [0, -1, heads, size // heads]), perm=[0, 2, 1, 3])

        q, k, v = (apart(self.linear(x, size, size)) for _ in range(3))
        scores = q @ ops.transpose(k, perm=[0, 1, 3, 2]) / float(np.sqrt(size / heads))
        mixed = ops.softmax(scores if mask is None else scores + mask) @ v
        return self.linear(ops.reshape(ops.transpose(mixed, perm=[0, 2, 1, 3]), [0, -1, size]), size, size)

    def block(self, x: Any, size: int, heads: int = 4, mask: Any = None) -> Any:
        x = x + self.attention(self.norm(x, size), size, heads, mask)
        return x + self.linear(ops.gelu(self.linear(self.norm(x, size), size, 4 * size)), 4 * size, size)

    def pooled(self, x: Any, channels: int, outer: int = CLASSES) -> Any:
        return self.dense(ops.flatten(ops.global_average_pool(x)), channels, outer)


@dataclass
class Task:
    """Training and held-out data of a task, as arrays by name, with its loss and metric."""

    train: Mapping[str, Array]
    held: Mapping[str, Array]
    loss: Any
    metric: str


def _split(inputs: Array, labels: Array, loss: Any, metric: str) -> Task:
    order = np.random.default_rng(0).permutation(len(inputs))
    kept = order[: len(order) * 3 // 4], order[len(order) * 3 // 4 :]
    train, held = ({"x": inputs[part], "labels": labels[part]} for part in kept)
    return Task(train, held, loss, metric)


@cache
def digits() -> Task:
    found = datasets.load_digits()
    images = (found.images / 8 - 1).astype(np.float32)[:, None]
    return _split(images, found.target.astype(np.int64), "softmax_cross_entropy", "accuracy")


@cache
def rows_of_digits() -> Task:
    found = digits()
    rows = [{"x": each["x"][:, 0], "labels": each["labels"]} for each in (found.train, found.held)]
    return Task(rows[0], rows[1], found.loss, found.metric)


@cache
def noisy_digits() -> Task:
    """Noisy images, with the clean images as labels."""
    found, random = digits(), np.random.default_rng(1)
    images = []
    for each in (found.train, found.held):
        noise = random.standard_normal(each["x"].shape, np.float32)
        images.append({"x": each["x"] + 0.5 * noise, "labels": each["x"]})
    return Task(images[0], images[1], "mean_squared_error", "mean_squared_error")


@cache
def placed_digits() -> Task:
    """Images of 16 x 16 pixels with a digit at a random position, with its bounding box as label."""
    found, random = digits(), np.random.default_rng(2)
    canvases = []
    for each in (found.train, found.held):
        places = random.integers(0, 9, (len(each["x"]), 2))
        images = np.full((len(places), 1, 16, 16), -1, np.float32)
        for image, (row, column), digit in zip(images, places, each["x"], strict=True):
            image[:, row : row + 8, column : column + 8] = digit
        canvases.append({"x": images, "labels": (places / 4 - 1).astype(np.float32)})
    return Task(canvases[0], canvases[1], "mean_squared_error", "mean_squared_error")


def _table(load: Callable[[], Any], classes: bool) -> Task:
    found = load()
    rows = ((found.data - found.data.mean(0)) / found.data.std(0)).astype(np.float32)
    if classes:
        return _split(rows, found.target.astype(np.int64), "softmax_cross_entropy", "accuracy")
    target = ((found.target - found.target.mean()) / found.target.std()).astype(np.float32)[:, None]
    return _split(rows, target, "mean_squared_error", "mean_squared_error")


@cache
def text() -> tuple[Task, int]:
    """Characters of the documentation, with the next characters as labels."""
    files = sorted((ROOT / "docs").glob("how-to/*.md")) + sorted((ROOT / "docs").glob("why/*.md"))
    letters = "\n".join(file.read_text("utf-8") for file in files).lower()
    known = sorted(set(letters))
    kept = [each for each in known if letters.count(each) > 50]
    numbers = {each: k for k, each in enumerate(kept)}
    stream = np.array([numbers.get(each, 0) for each in letters], np.int64)
    count = (len(stream) - 1) // LENGTH
    x, labels = (stream[k : k + count * LENGTH].reshape(count, LENGTH) for k in (0, 1))
    loss = tt.SoftmaxCrossEntropy(class_axis=-1)
    return _split(x, labels, loss, "perplexity"), len(kept)


@cache
def masked_text() -> tuple[Task, int]:
    """Characters, some of them masked, whose labels are the originals; labels of the others are ignored."""
    found, count = text()
    random, sequences = np.random.default_rng(3), []
    for each in (found.train, found.held):
        hidden = random.random(each["x"].shape) < 0.15
        sequences.append({"x": np.where(hidden, count, each["x"]), "labels": np.where(hidden, each["x"], -100)})
    loss = tt.SoftmaxCrossEntropy(class_axis=-1, ignore_index=-100)
    return Task(sequences[0], sequences[1], loss, "perplexity"), count + 1


@dataclass
class Kind:
    """A model: its build function, task and training settings."""

    build: Callable[[Builder, Any], Any]
    task: Callable[[], Task]
    epochs: int = 12
    rate: float = 3e-3
    more: dict[str, Any] = field(default_factory=dict)


MODELS: dict[str, Kind] = {}


def model(task: Callable[[], Task], **settings: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(build: Callable[[Builder, Any], Any]) -> Callable[..., Any]:
        MODELS[build.__name__] = Kind(build, task, **settings)
        return build

    return add


@model(digits, epochs=30)
def perceptron(m: Builder, x: Any) -> Any:
    return m.dense(ops.relu(m.dense(ops.flatten(x), 64, 64)), 64, CLASSES)


@model(digits, epochs=20)
def deep_perceptron(m: Builder, x: Any) -> Any:
    x = ops.relu(m.linear(ops.flatten(x), 64, 96))
    for _ in range(4):
        x = ops.relu(m.linear(x, 96, 96))
    return m.linear(x, 96, CLASSES)


@model(noisy_digits, epochs=20)
def autoencoder(m: Builder, x: Any) -> Any:
    x = ops.relu(m.linear(ops.flatten(x), 64, 96))
    x = ops.relu(m.linear(m.linear(x, 96, 16), 16, 96))
    return ops.reshape(m.linear(x, 96, 64), [-1, 1, 8, 8])


@model(digits)
def cnn(m: Builder, x: Any) -> Any:
    x = ops.max_pool(ops.relu(m.conv(x, 1, 16)), kernel_shape=[2, 2], strides=[2, 2])
    return m.dense(ops.flatten(ops.relu(m.conv(x, 16, 32))), 512, CLASSES)


@model(digits)
def resnet(m: Builder, x: Any) -> Any:
    x = ops.relu(m.conv(x, 1, 16))
    for _ in range(3):
        x = ops.relu(x + m.conv(ops.relu(m.conv(x, 16, 16)), 16, 16))
    return m.pooled(x, 16)


@model(digits, epochs=20)
def mobilenet(m: Builder, x: Any) -> Any:
    x = ops.relu(m.conv(x, 1, 16))
    for _ in range(3):
        inner = ops.relu(m.conv(ops.relu(m.pointwise(x, 16, 48)), 48, 48, group=48))
        x = x + m.pointwise(inner, 48, 16)
    return m.pooled(x, 16)


@model(digits)
def squeezenet(m: Builder, x: Any) -> Any:
    x = ops.relu(m.conv(x, 1, 32))
    for _ in range(2):
        squeezed = ops.relu(m.pointwise(x, 32, 8))
        x = ops.concat(ops.relu(m.pointwise(squeezed, 8, 16)), ops.relu(m.conv(squeezed, 8, 16)), axis=1)
    return m.pooled(x, 32)


@model(digits)
def densenet(m: Builder, x: Any) -> Any:
    x = ops.relu(m.conv(x, 1, 16))
    for k in range(3):
        x = ops.concat(x, ops.relu(m.conv(x, 16 + 8 * k, 8)), axis=1)
    return m.pooled(x, 40)


@model(digits)
def resnext(m: Builder, x: Any) -> Any:
    x = ops.relu(m.conv(x, 1, 16))
    for _ in range(2):
        inner = ops.relu(m.conv(ops.relu(m.pointwise(x, 16, 32)), 32, 32, group=4))
        x = ops.relu(x + m.pointwise(inner, 32, 16))
    return m.pooled(x, 16)


@model(noisy_digits)
def unet(m: Builder, x: Any) -> Any:
    first = ops.relu(m.conv(x, 1, 16))
    inner = ops.relu(m.conv(first, 16, 32, strides=[2, 2]))
    inner = ops.relu(m.conv(inner, 32, 32))
    wide = ops.resize(inner, None, np.array([1, 1, 2, 2], np.float32), mode="nearest")
    return m.conv(ops.relu(m.conv(ops.concat(first, wide, axis=1), 48, 16)), 16, 1)


@model(placed_digits, epochs=16)
def detector(m: Builder, x: Any) -> Any:
    for inner, outer in ((1, 16), (16, 32), (32, 32)):
        x = ops.relu(m.conv(x, inner, outer, strides=[2, 2]))
    return m.dense(ops.relu(m.dense(ops.flatten(x), 128, 64)), 64, 2)


@model(digits)
def vit(m: Builder, x: Any) -> Any:
    x = ops.conv(x, m.weight(32, 1, 2, 2), m.constant(np.zeros(32)), kernel_shape=[2, 2], strides=[2, 2])
    x = ops.transpose(ops.reshape(x, [0, 32, 16]), perm=[0, 2, 1]) + m.weight(16, 32, scale=0.1)
    for _ in range(2):
        x = m.block(x, 32)
    return m.linear(ops.reduce_mean(m.norm(x, 32), [1], keepdims=0), 32, CLASSES)


@model(digits)
def mixer(m: Builder, x: Any) -> Any:
    x = m.linear(ops.reshape(x, [0, 8, 8]), 8, 32)
    for _ in range(2):
        turned = ops.transpose(m.norm(x, 32), perm=[0, 2, 1])
        x = x + ops.transpose(m.linear(ops.gelu(m.linear(turned, 8, 32)), 32, 8), perm=[0, 2, 1])
        x = x + m.linear(ops.gelu(m.linear(m.norm(x, 32), 32, 64)), 64, 32)
    return m.linear(ops.reduce_mean(x, [1], keepdims=0), 32, CLASSES)


@model(rows_of_digits)
def lstm(m: Builder, x: Any) -> Any:
    x = ops.transpose(m.linear(x, 8, 32), perm=[1, 0, 2])
    given = [m.weight(1, 128, 32), m.weight(1, 128, 32), m.constant(np.zeros((1, 256)))]
    last = ops.lstm(x, *given, hidden_size=32)[1]
    return m.linear(ops.squeeze(last, [0]), 32, CLASSES)


@model(rows_of_digits)
def gru(m: Builder, x: Any) -> Any:
    x = ops.transpose(m.linear(x, 8, 32), perm=[1, 0, 2])
    given = [m.weight(1, 96, 32), m.weight(1, 96, 32), m.constant(np.zeros((1, 192)))]
    last = ops.gru(x, *given, hidden_size=32)[1]
    return m.linear(ops.squeeze(last, [0]), 32, CLASSES)


@model(rows_of_digits)
def temporal_cnn(m: Builder, x: Any) -> Any:
    for inner in (8, 32):
        x = ops.relu(ops.conv(x, m.weight(32, inner, 3), m.constant(np.zeros(32)), kernel_shape=[3], pads=[1, 1]))
    return m.dense(ops.flatten(x), 256, CLASSES)


@model(lambda: _table(datasets.load_wine, classes=True), epochs=60)
def wine(m: Builder, x: Any) -> Any:
    return m.dense(ops.relu(m.dense(x, 13, 32)), 32, 3)


@model(lambda: _table(datasets.load_breast_cancer, classes=True), epochs=20)
def cancer(m: Builder, x: Any) -> Any:
    return m.dense(ops.tanh(m.dense(x, 30, 64)), 64, 2)


@model(lambda: _table(datasets.load_diabetes, classes=False), epochs=20)
def diabetes(m: Builder, x: Any) -> Any:
    return m.linear(ops.relu(m.linear(ops.relu(m.linear(x, 10, 64)), 64, 64)), 64, 1)


@model(lambda: text()[0], epochs=3)
def gpt(m: Builder, x: Any) -> Any:
    size, count = 64, text()[1]
    mask = m.graph.variable("mask", np.triu(np.full((LENGTH, LENGTH), -1e4, np.float32), 1))
    x = ops.gather(m.weight(count, size, scale=0.1), x) + m.weight(LENGTH, size, scale=0.1)
    for _ in range(2):
        x = m.block(x, size, mask=mask)
    return m.linear(m.norm(x, size), size, count)


@model(lambda: masked_text()[0], epochs=2)
def bert(m: Builder, x: Any) -> Any:
    size, count = 64, masked_text()[1]
    x = ops.gather(m.weight(count, size, scale=0.1), x) + m.weight(LENGTH, size, scale=0.1)
    for _ in range(2):
        x = m.block(x, size)
    return m.linear(m.norm(x, size), size, count)


def train(name: str, folder: Path) -> None:
    """Train a model and save it with its data, unless it exists in the folder."""
    if (folder / f"{name}.onnx").is_file():
        return
    kind, task, start = MODELS[name], MODELS[name].task(), time.perf_counter()
    m = Builder()
    x = m.graph.input("x", str(task.train["x"].dtype), ("batch", *task.train["x"].shape[1:]))
    m.graph.output("y", kind.build(m, x))
    history = tt.fit(
        m.graph,
        dict(task.train),
        loss=task.loss,
        optimizer=tt.Adam(kind.rate),
        epochs=kind.epochs,
        batch_size=32,
        metrics=[task.metric],
        validation=dict(task.held),
        seed=0,
        **kind.more,
    )
    tx.export(m.graph, folder / f"{name}.onnx")
    arrays: dict[str, Any] = {**task.train, **{f"held/{key}": each for key, each in task.held.items()}}
    np.savez(folder / f"{name}.npz", **arrays)
    print(f"{name}: {time.perf_counter() - start:.0f} s, {history.epochs[-1]}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help="by default all")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for each in given.names or MODELS:
        train(each, given.folder)
