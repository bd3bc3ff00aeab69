"""The node tests of the onnx package on the backend ``jax``.

``python suite.py [PATTERN]`` counts the cases, except those of ImageDecoder: compiled as one function, run partly
outside of it, and failed. All packages of this repository must be installed.
"""

import fnmatch
import os
import sys
import warnings
from collections import Counter
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
sys.path.insert(0, str(Path(__file__).parents[4] / "tests"))

import numpy as np
import onnx_suites

import tenonnx as tx
from tenonnx.extend.backends import DefaultsProgram
from tenonnx_jax import programs


def run(case):
    """``compiled`` or ``at once``. Raises an error for wrong results."""
    model, stored = onnx_suites.load(case)
    graph = tx.load(model)
    made = []
    program = DefaultsProgram(graph, lambda form: made.append(programs.JaxProgram(form, None)) or made[-1])
    onnx_suites.compare_program(case, graph, program, stored)
    return "compiled" if all(each.compiled and not each.eager for each in made) else "at once"


def main():
    pattern = sys.argv[1] if len(sys.argv) > 1 else "*"
    counts, failed = Counter(), {}
    for name, case in onnx_suites.node_cases().items():
        if name.startswith("test_image_decoder") or not fnmatch.fnmatch(name, pattern):
            continue
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                counts[run(case)] += 1
        except BaseException as error:
            failed[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:250]}"
            print(f"{name}: {failed[name]}", flush=True)
    print(dict(counts), len(failed))


if __name__ == "__main__":
    main()
