"""The node tests of the onnx package through ``tenonnx_torch.module``.

``python suite.py`` counts the cases, except those of ImageDecoder: run by PyTorch only, run partly by numpy, and
failed. The counts and the names of failures go to ``suite.json``, from which ``table.py`` updates
docs/how-to/pytorch.md. All packages of this repository must be installed.
"""

import json
import sys
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import torch

sys.path.insert(0, str(Path(__file__).parents[4] / "tests"))

import onnx_suites

import tenonnx as tx
import tenonnx_torch
from tenonnx_torch.plan import Plan
from tenonnx_torch.values import to_arrays


def steps(plan: Plan):
    for step in plan._steps:
        yield step
        for inner in step.plans.values():
            yield from steps(inner)


def run(case):
    """``torch`` or ``numpy``. Raises an error for wrong results."""
    model, stored = onnx_suites.load(case)
    network = tenonnx_torch.module(tx.load(model))
    for inputs, outputs in stored:
        with torch.no_grad():
            found = network(*inputs)
        found = found if isinstance(found, tuple) else (found,)
        onnx_suites.compare_outputs(case, map(to_arrays, found), outputs)
    return "torch" if all(step.torch is not None for step in steps(network._whole.plan)) else "numpy"


def main():
    torch.set_num_threads(1)
    counts, failed = Counter(), {}
    for name, case in onnx_suites.node_cases().items():
        if name.startswith("test_image_decoder"):
            continue
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                counts[run(case)] += 1
        except BaseException as error:
            failed[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:250]}"
            print(f"{name}: {failed[name]}", flush=True)
    found = {"onnx": onnx.__version__, **counts, "failed": failed}
    Path(__file__).with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")
    print(dict(counts), len(failed))


if __name__ == "__main__":
    main()
