"""Differences between quantized TFLite models and the interpreter, in quantization steps, over our cases.

``python plugins/frontends/tensorflow/benchmarks/quantized.py``. Inputs of quantized values are random over their full
range.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections import Counter
from importlib import import_module
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
warnings.simplefilter("ignore")

import numpy as np

import tenonnx as tx
from tenonnx_litert.reading.verification import Interpreter
from tenonnx_tensorflow.verification import drawn

_MODULES = ("lite", "lite_recurrent", "lite_quantized", "lite_others")


def main() -> None:
    apart: dict[str, Counter[int]] = {}
    for module in _MODULES:
        for name, case in import_module(f"cases.{module}").CASES.items():
            path = case.make()
            graph = tx.load(path, verify=False)
            feeds = drawn(graph, {})
            expected = Interpreter(path)([feeds[value.name] for value in graph.inputs])
            for found, wanted in zip(graph.run(feeds).values(), expected, strict=False):
                if wanted.dtype not in (np.int8, np.uint8, np.int16):
                    continue
                steps = np.abs(found.astype(np.int64) - wanted.astype(np.int64))
                apart.setdefault(wanted.dtype.name, Counter()).update(steps.reshape(-1).tolist())
                if steps.max() > 1:
                    print(f"{module}.{name}: {int((steps > 1).sum())} of {steps.size} by up to {steps.max()} steps")
    for kind, counts in apart.items():
        print(
            f"{kind}: {counts.total()} quantized values, "
            + ", ".join(f"{counts[n]} by {n}" for n in sorted(counts) if n)
        )


if __name__ == "__main__":
    main()
