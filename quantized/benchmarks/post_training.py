"""Post-training quantization of small trained models, compared with other tools.

``python quantized/benchmarks/post_training.py FOLDER [--models NAME ...] [--onnxruntime PYTHON] [--onnxsim PYTHON]``

``FOLDER`` has the models of ``trained_models.py``; missing ones are trained first. ``PYTHON`` is the interpreter of an
environment with the tool: ``pip install onnxruntime onnx sympy``, ``pip install onnxsim==0.8.1 onnxruntime``.

Each file runs on held-out data in onnxruntime without optimizations. Its error is that of its outputs relative to those
of the float model. Lines named int8 are for int8 weights and activations, the others for 4-bit weights. Since other
tools quantize fewer layers, lines with a star are ours on only the layers of each other tool. Times and memory of other
tools are those of a process, without its imports. The last table has, for each model, the smallest error of the other
tools, and ours on the same layers or more.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
from rival_quantizers import METHODS, peak_memory

import tenonnx as tx

HERE = Path(__file__).parent
ROWS = 1024

#: Our methods at 4 bits: blocks of 32 for matrix products, per channel for convolutions.
FOUR_BITS = ("rtn", "hqq", "awq", "gptq", "quantease", "awq,gptq", "awq,quantease")
INT8: dict[str, dict[str, Any]] = {"rtn": {}, "mse ranges": {"calibration": "mse"}}

Array = np.ndarray[Any, Any]


def outputs(path: Path, x: Array) -> Array:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    parts = [session.run(None, {name: x[k : k + 128]})[0] for k in range(0, len(x), 128)]
    return np.concatenate(parts).astype(np.float64)


def metric(y: Array, labels: Array) -> tuple[str, float]:
    """Accuracy, perplexity or mean square error, depending on the shape and dtype of the labels."""
    if labels.dtype.kind == "f":
        return "mean square error", float(np.square(y - labels).mean())
    if labels.ndim == 1:
        return "accuracy", float((y.argmax(-1) == labels).mean())
    shifted = y - y.max(-1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    kept = labels >= 0
    picked = np.take_along_axis(logs, np.where(kept, labels, 0)[..., None], -1)[..., 0]
    return "perplexity", float(np.exp(-picked[kept].mean()))


class Line(NamedTuple):
    """Result of a method: its error, its metric, and the weights that stay in floating point."""

    label: str
    error: float
    metric: float
    floats: frozenset[str]


class Comparison:
    """A model with its data, and the measured results of its quantized files."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name, self.path = folder, name, folder / f"{name}.onnx"
        with np.load(folder / f"{name}.npz") as archive:
            self.data = {key: archive[key] for key in archive.files}
        self.lines: list[Line] = []
        self.layers = layers_of(self.path, floats=False)
        self.wanted = outputs(self.path, self.data["held/x"])
        self.metric, self.original = metric(self.wanted, self.data["held/labels"])

    def ours(self, label: str, **settings: Any) -> None:
        start = time.perf_counter()
        quantized, _ = tx.quantize(tx.load(self.path), {"x": self.data["x"][:ROWS]}, **settings)
        seconds, target = time.perf_counter() - start, self.folder / "made.onnx"
        tx.export(quantized, target, overwrite=True)
        self.say(f"ours {label}", target, seconds, peak_memory())

    def theirs(self, method: str) -> None:
        target = self.folder / f"{self.name}.{method}.onnx"
        if not (figures := target.with_suffix(".json")).is_file():
            return
        found = json.loads(figures.read_text("utf-8"))
        if found["error"]:
            print(f"{self.name:16} {method:20} {found['error'][:90]}", flush=True)
            return
        self.say(method, target, found["seconds"], found["memory"])

    def say(self, label: str, path: Path, seconds: float, peak: float) -> None:
        try:
            found = outputs(path, self.data["held/x"])
        except Exception as failure:  # the runtime may raise any error
            print(f"{self.name:16} {label:20} {str(failure)[:90]}", flush=True)
            return
        error = float(np.sqrt(np.square(found - self.wanted).mean() / np.square(self.wanted).mean()))
        value = metric(found, self.data["held/labels"])[1]
        floats = layers_of(path, floats=True)
        self.lines.append(Line(label, error, value, floats))
        print(
            f"{self.name:16} {label:20} error {error:7.2%}  {self.metric} {value:8.4f} (float {self.original:.4f})"
            f"  {len(floats)} of {len(self.layers)} layers in floating point  {seconds:6.2f} s  {peak:5.0f} MiB",
            flush=True,
        )

    def beside(self, method: str) -> None:
        """Measure our method on only the layers that another tool quantizes, for each tool that skips some."""
        sets = {line.floats & self.layers for line in self.lines if not line.label.startswith("ours") and line.floats}
        for floats in sets:
            if floats != self.layers:
                rules = [{"pattern": name, "keep_float": True} for name in sorted(floats)]
                self.ours(f"{method} *", mode="weights", bits=4, method=method, layers=[*rules, *KERNELS])

    def best(self) -> tuple[Line, Line | None]:
        """Return our 4-bit line with the smallest error, and the best line of the other tools.

        The latter may not leave more weights in floating point than ours.
        """
        lines = [line for line in self.lines if "int8" not in line.label and line.floats != self.layers]
        others = [line for line in lines if not line.label.startswith("ours")]
        other = min(others, key=lambda line: line.error, default=None)
        floats = frozenset() if other is None else other.floats
        ours = [line for line in lines if line.label.startswith("ours") and line.floats <= floats]
        return min(ours, key=lambda line: line.error), other


def layers_of(path: Path, *, floats: bool) -> frozenset[str]:
    """Weights of products, convolutions and recurrent ops; with ``floats``, only those that are not quantized."""
    graph = tx.load(path)
    dequantized = {value for node in graph.nodes if "Dequantize" in node.op_type for value in node.outputs}
    places = {"Conv": (1,), "MatMul": (1,), "Gemm": (1,), "LSTM": (1, 2), "GRU": (1, 2)}
    weights = [node.inputs[place] for node in graph.nodes for place in places.get(node.op_type, ())]
    known = [value for value in weights if value is not None and value.is_constant]
    return frozenset(value.name for value in known if not floats or value not in dequantized)


def compare(folder: Path, names: Sequence[str], pythons: Mapping[str, str]) -> None:
    for tool, python in pythons.items():
        subprocess.run([python, str(HERE / "rival_quantizers.py"), tool, str(folder), *names], check=False)
    comparisons = [Comparison(folder, name) for name in names]
    for each in comparisons:
        for method in FOUR_BITS:
            each.ours(method, mode="weights", bits=4, method=method, layers=KERNELS)
        for label, settings in INT8.items():
            each.ours(f"int8 {label}", mode="static", **settings)
        for tool in pythons:
            for method in METHODS[tool]:
                each.theirs(f"{tool}-{method}")
        each.beside(FOUR_BITS[-1])
    print(
        "\nmodel            floats  ours                     error    metric  others                   error    metric"
    )
    for each in comparisons:
        ours, other = each.best()
        cells = [f"{line.label:22} {line.error:7.2%}  {line.metric:8.4f}" for line in (ours, other) if line is not None]
        print(f"{each.name:16} {len(ours.floats):6}  {'  '.join(cells)}")


#: Settings that quantize convolution kernels to 4 bits, too.
KERNELS: list[dict[str, Any]] = [{"pattern": "Conv*", "bits": 4}]

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", nargs="*")
    parser.add_argument("--onnxruntime", metavar="PYTHON")
    parser.add_argument("--onnxsim", metavar="PYTHON")
    given = parser.parse_args()
    sys.path.insert(0, str(HERE))
    from trained_models import MODELS, train

    chosen = given.models or list(MODELS)
    given.folder.mkdir(parents=True, exist_ok=True)
    for each in chosen:
        train(each, given.folder)
    tools = {"onnxruntime": given.onnxruntime, "onnxsim": given.onnxsim}
    compare(given.folder, chosen, {name: python for name, python in tools.items() if python})
