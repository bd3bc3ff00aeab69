"""The node tests of the onnx package on the backend ``torch``, compiled.

``python compiled.py [--backend aot_eager] [--every N] [--offset K] [PATTERN]`` counts the cases, except those of
ImageDecoder: compiled as one function; run node by node, because numpy computes a part or shapes depend on contents;
and failed. ``aot_eager`` traces like every compiler, but generates no code; ``inductor``, PyTorch's default, takes some
seconds for each case. All packages of this repository must be installed.
"""

import argparse
import fnmatch
import os
import sys
import warnings
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[4] / "tests"))

import numpy as np
import onnx_suites

import tenonnx as tx


def run(case, compiler):
    """``compiled`` or ``node by node``. Raises an error for wrong results."""
    model, stored = onnx_suites.load(case)
    graph = tx.load(model)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program = graph.compile("torch", compiled=compiler)
        onnx_suites.compare_program(case, graph, program, stored)
    fell_back = any(issubclass(each.category, tx.FallbackWarning) for each in caught)
    return "node by node" if fell_back else "compiled"


def main(pattern, compiler, every, offset):
    counts, failed = Counter(), {}
    names = [name for name in onnx_suites.node_cases() if not name.startswith("test_image_decoder")]
    for name in fnmatch.filter(names, pattern)[offset::every]:
        try:
            with np.errstate(all="ignore"):
                counts[run(onnx_suites.node_cases()[name], compiler)] += 1
        except BaseException as error:
            failed[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:250]}"
            print(f"{name}: {failed[name]}", flush=True)
    print(dict(counts), len(failed))


if __name__ == "__main__":
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pattern", nargs="?", default="*")
    parser.add_argument("--backend", default="aot_eager")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--offset", type=int, default=0)
    chosen = parser.parse_args()
    main(chosen.pattern, chosen.backend, chosen.every, chosen.offset)
