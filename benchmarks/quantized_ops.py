"""Outputs of quantized ops on numpy compared with onnxruntime's kernels, for random calls with many ties.

``python benchmarks/quantized_ops.py [--calls 10000] [--first 0] [op ...]``. The calls are those of
``quantized/tests/test_values_of_onnxruntime.py``, which tests the first 60 of each op.
"""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from measure import table

import tenonnx as tx

TEST = Path(__file__).parents[1] / "quantized" / "tests" / "test_values_of_onnxruntime.py"


def drawn() -> Any:
    """The test module, which draws the calls."""
    spec = importlib.util.spec_from_file_location(TEST.stem, TEST)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compared(calls: Any, op: str, seed: int, options: Any) -> np.ndarray[Any, Any]:
    """Differences of the quantized outputs of a call, in steps."""
    model, feeds = calls.built(op, *calls.OPS[op](calls.Draw(seed)))
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    expected = session.run(["y"], feeds)[0]
    found = tx.load(model).run(feeds, backend="numpy")["y"]
    return np.abs(found.astype(np.int64) - expected.astype(np.int64))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("op", nargs="*")
    given = parser.parse_args()
    calls = drawn()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    rows = []
    for op in given.op or calls.OPS:
        steps = [compared(calls, op, seed, options) for seed in range(given.first, given.first + given.calls)]
        off = [seed for seed, each in enumerate(steps, given.first) if each.any()]
        several = sum(int((each > 1).sum()) for each in steps)
        quantized = sum(each.size for each in steps)
        rows.append(
            [op, quantized, sum(int((each > 0).sum()) for each in steps), several, ", ".join(map(str, off[:5]))]
        )
    table(
        f"Quantized values over {given.calls} calls an op",
        ["op", "quantized values", "off", "by more than a step", "seeds"],
        rows,
    )


if __name__ == "__main__":
    main()
