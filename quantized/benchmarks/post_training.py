"""Post-training quantization of small trained models: our methods beside those of other tools.

``python quantized/benchmarks/post_training.py FOLDER [--models NAME ...] [--onnxruntime PYTHON] [--onnxsim PYTHON]``

``FOLDER`` has the models of ``trained_models.py``; those that it lacks are trained first. ``PYTHON`` is the interpreter
of an environment with the tool: ``pip install onnxruntime onnx sympy``, ``pip install onnxsim==0.8.1 onnxruntime``.

Each file is run on the data held out, in onnxruntime without optimizations. Its error is that of its outputs, relative
to those of the float model; float weights are those that the tool leaves. Lines named int8 are for int8 weights and
activations, the others for 4-bit weights. Times of other tools are those of a process, without its start.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from rival_quantizers import peak_memory

import tenonnx as tx

HERE = Path(__file__).parent
ROWS = 1024

#: Our methods at 4 bits, in blocks of 32 of products of matrices and by channel of convolutions.
FOUR_BITS = ("rtn", "hqq", "gptq", "quantease", "auto-round", "awq", "awq,gptq", "awq,quantease")
OTHERS = {
    "onnxruntime": ("onnxruntime-rtn", "onnxruntime-k-quant"),
    "onnxsim": ("onnxsim-rtn", "onnxsim-hqq", "onnxsim-gptq", "onnxsim-quantease", "onnxsim-awq", "onnxsim-autoround"),
}
INT8: dict[str, dict[str, Any]] = {"rtn": {}, "mse ranges": {"calibration": "mse"}, "gptq": {"method": "gptq"}}

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
    """Accuracy, perplexity or mean square error, by the shapes and types of the labels."""
    if labels.dtype.kind == "f":
        return "mean square error", float(np.square(y - labels).mean())
    if labels.ndim == 1:
        return "accuracy", float((y.argmax(-1) == labels).mean())
    shifted = y - y.max(-1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    kept = labels >= 0
    picked = np.take_along_axis(logs, np.where(kept, labels, 0)[..., None], -1)[..., 0]
    return "perplexity", float(np.exp(-picked[kept].mean()))


class Comparison:
    """A model with its data and, once they are measured, the files made from it."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name, self.path = folder, name, folder / f"{name}.onnx"
        with np.load(folder / f"{name}.npz") as held:
            self.data = {key: held[key] for key in held.files}
        self.wanted = outputs(self.path, self.data["held/x"])
        self.metric, self.original = metric(self.wanted, self.data["held/labels"])

    def ours(self, label: str, **settings: Any) -> None:
        start = time.perf_counter()
        made, _ = tx.quantize(tx.load(self.path), {"x": self.data["x"][:ROWS]}, **settings)
        seconds, target = time.perf_counter() - start, self.folder / "made.onnx"
        tx.export(made, target, overwrite=True)
        self.say(f"ours {label}", target, seconds, peak_memory())

    def theirs(self, python: str, method: str) -> None:
        target = self.folder / "made.onnx"
        given = [method, str(self.path), str(self.folder / f"{self.name}.npz"), str(target)]
        ran = subprocess.run(
            [python, str(HERE / "rival_quantizers.py"), *given], capture_output=True, text=True, check=False
        )
        if ran.returncode:
            line = (ran.stderr.strip().splitlines() or ["failed"])[-1]
            print(f"{self.name:16} {method:20} {line[:90]}", flush=True)
            return
        seconds, peak = map(float, ran.stdout.splitlines()[-1].split())
        self.say(method, target, seconds, peak)

    def say(self, label: str, path: Path, seconds: float, peak: float) -> None:
        try:
            found = outputs(path, self.data["held/x"])
        except Exception as failure:  # of any kind, by the runtime
            print(f"{self.name:16} {label:20} {str(failure)[:90]}", flush=True)
            return
        error = float(np.sqrt(np.square(found - self.wanted).mean() / np.square(self.wanted).mean()))
        value = metric(found, self.data["held/labels"])[1]
        print(
            f"{self.name:16} {label:20} error {error:7.2%}  {self.metric} {value:8.4f} (float {self.original:.4f})"
            f"  float weights {float_weights(path):6.1%}  {seconds:6.2f} s  {peak:5.0f} MiB",
            flush=True,
        )


def float_weights(path: Path) -> float:
    """The share of the numbers of weights that are floats, of matrices and kernels."""
    sizes = {True: 0, False: 0}
    for value in tx.load(path).variables:
        if value.ndim > 1 and not value.name.endswith(("scale", "zero_point")):
            count = int(np.prod([d for d in value.shape if isinstance(d, int)]))
            packed = 2 if value.dtype is tx.DType.uint8 and value.ndim == 3 else 1
            sizes[value.dtype.is_float] += count * packed
    return sizes[True] / max(sum(sizes.values()), 1)


def compare(folder: Path, names: Sequence[str], pythons: Mapping[str, str]) -> None:
    for name in names:
        held = Comparison(folder, name)
        for method in FOUR_BITS:
            held.ours(method, mode="weights", bits=4, method=method, layers=KERNELS)
        for tool, methods in OTHERS.items():
            for method in methods if tool in pythons else ():
                held.theirs(pythons[tool], method)
        for label, settings in INT8.items():
            held.ours(f"int8 {label}", mode="static", **settings)
        if "onnxruntime" in pythons:
            held.theirs(pythons["onnxruntime"], "onnxruntime-int8")


#: Kernels have 4 bits, too.
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
