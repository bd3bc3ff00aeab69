"""Benchmark models with their data: two layers, a forest, a pipeline of numbers and words, a convolutional network."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import parquet

import tenonnx as tx
import tenonnx_standard as ops

FEATURES, NUMBERS, WORDS, SIZE = 20, 8, 4, 96

#: Files of a table, and row groups per file.
FILES, GROUPS = 10, 8


class Case(NamedTuple):
    """Functions that make the model and the input, the number of rows at full size, and options of ``tenonnx
    score``."""

    model: Callable[[Path], None]
    rows: int
    input: Callable[[Path, int, int], None]
    pattern: str
    options: tuple[str, ...]


def forest(path: Path) -> None:
    """100 trees on 20 numbers."""
    from sklearn.ensemble import RandomForestClassifier

    draw = np.random.default_rng(0)
    rows = draw.normal(size=(4000, FEATURES)).astype(np.float32)
    y = (rows[:, :4].sum(axis=1) + rows[:, 4] * rows[:, 5] > 0).astype(int)
    _exported(RandomForestClassifier(100, max_depth=10, n_jobs=1, random_state=0).fit(rows, y), path)


def mixed(path: Path) -> None:
    """Imputed and scaled numbers and one-hot words, followed by 1,000 rounds of boosting."""
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    frame = _mixed_rows(np.random.default_rng(0), 4000).to_pandas()
    y = (frame["n0"].fillna(0) + frame["c0"].eq("word 3") > 0).astype(int)
    numbers = make_pipeline(SimpleImputer(), StandardScaler()), [f"n{k}" for k in range(NUMBERS)]
    words = [f"c{k}" for k in range(WORDS)]
    frame[words] = frame[words].fillna("")
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    boosting = HistGradientBoostingClassifier(max_iter=1000, random_state=0)
    _exported(make_pipeline(make_column_transformer(numbers, (encoder, words)), boosting).fit(frame, y), path)


def layers(path: Path) -> None:
    """Two layers on 20 numbers, which take less time than reading and writing."""
    draw = np.random.default_rng(0)
    graph = tx.Graph(opsets={"ai.onnx": 17})
    weights = [draw.normal(size=size).astype(np.float32) for size in ((FEATURES, 32), (32, 3))]
    hidden = ops.relu(graph.input("x", "float32", ("rows", FEATURES)) @ graph.variable("first", weights[0]))
    probabilities = ops.softmax(hidden @ graph.variable("second", weights[1]), axis=-1)
    graph.output("label", ops.argmax(probabilities, axis=1, keepdims=0))
    graph.output("probabilities", probabilities)
    tx.export(graph, path)


def net(path: Path) -> None:
    """Six convolutions on images of 96 by 96, 65 million multiplications per image, and a softmax."""
    draw = np.random.default_rng(0)
    graph = tx.Graph(opsets={"ai.onnx": 17})
    x = graph.input("image", "float32", ("rows", 3, SIZE, SIZE))
    layers = [(3, 32, 2), (32, 64, 2), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 128, 1)]
    for k, (before, after, stride) in enumerate(layers):
        weight = draw.normal(size=(after, before, 3, 3)).astype(np.float32) * np.float32(np.sqrt(2 / (9 * before)))
        x = ops.relu(ops.conv(x, graph.variable(f"weight{k}", weight), pads=[1] * 4, strides=[stride] * 2))
    weight = graph.variable("weight", draw.normal(size=(128, 10)).astype(np.float32))
    probabilities = ops.softmax(ops.reduce_mean(x, [2, 3], keepdims=0) @ weight, axis=-1)
    graph.output("label", ops.argmax(probabilities, axis=1, keepdims=0))
    graph.output("probabilities", probabilities)
    tx.export(graph, path)


def _exported(estimator: Any, path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tx.export(tx.load(estimator, verify=False), path)


def _numbers(draw: np.random.Generator, rows: int) -> pa.Table:
    return pa.table({f"f{k:02}": draw.standard_normal(rows, np.float32) for k in range(FEATURES)})


def _mixed_rows(draw: np.random.Generator, rows: int) -> pa.Table:
    columns: dict[str, Any] = {}
    for k in range(NUMBERS):
        gaps = draw.random(rows) < 0.05
        columns[f"n{k}"] = pa.array(draw.standard_normal(rows, np.float32), mask=gaps)
    words = np.asarray([f"word {n}" for n in range(12)], object)
    for k in range(WORDS):
        columns[f"c{k}"] = pa.array(words[draw.integers(0, 12, rows)], pa.string(), mask=draw.random(rows) < 0.05)
    return pa.table(columns)


def _tables(rows_of: Callable[[np.random.Generator, int], pa.Table]) -> Callable[[Path, int, int], None]:
    def write(folder: Path, rows: int, seed: int) -> None:
        size = -(-rows // FILES)
        group = -(-size // GROUPS)
        for number, first in enumerate(range(0, rows, size)):
            draw = np.random.default_rng([seed, number])
            with parquet.ParquetWriter(folder / f"{number}.parquet", _with_id(rows_of(draw, 1), 0).schema) as file:
                stop = min(first + size, rows)
                for at in range(first, stop, group):
                    file.write_table(_with_id(rows_of(draw, min(group, stop - at)), at))

    return write


def _with_id(table: pa.Table, first: int) -> pa.Table:
    return table.add_column(0, "id", pa.array(np.arange(first, first + table.num_rows)))


def _images(folder: Path, rows: int, seed: int) -> None:
    from PIL import Image

    for k in range(rows):
        draw = np.random.default_rng([seed, k])
        small = Image.fromarray(draw.integers(0, 256, (8, 8, 3), np.uint8))
        large = folder / f"{k // 1000}"
        large.mkdir(exist_ok=True)
        small.resize((SIZE, SIZE), Image.Resampling.BICUBIC).save(large / f"{k}.jpg", quality=90)


CASES: Mapping[str, Case] = {
    "small": Case(layers, 10_000_000, _tables(_numbers), "*.parquet", ("--keep", "id")),
    "forest": Case(forest, 10_000_000, _tables(_numbers), "*.parquet", ("--keep", "id")),
    "mixed": Case(mixed, 2_000_000, _tables(_mixed_rows), "*.parquet", ("--keep", "id")),
    "images": Case(net, 20_000, _images, "*", ("--keep", "path", "--pixels", "0:1")),
}


def made(case: str, folder: Path, rows: int, seed: int = 34) -> tuple[Path, Path]:
    """The files of a model and its input, created on first use. Raises the errors of writing."""
    model, input = folder / f"{case}.onnx", folder / f"{case}-{rows}-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    if not model.exists():
        CASES[case].model(model)
    whole = input / "_whole"
    if not whole.exists():
        input.mkdir(exist_ok=True)
        CASES[case].input(input, rows, seed)
        whole.touch()
    return model, input
