"""Comparison of tenonnx and onnx2tf as writers of LiteRT files: correctness, time, and speed of the files.

    python plugins/litert/benchmarks/writers.py FOLDER --onnx2tf PATH [--limit SECONDS]

FOLDER has ONNX files; PATH is the program onnx2tf in a separate environment. Dynamic dims are fixed to 2, since onnx2tf
requires static shapes. A file is ``right`` if LiteRT computes the same as onnxruntime for the model, with channels
first or last, else ``wrong``, ``no run`` or ``refused``. Latencies are medians in one process.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter

import tenonnx as tx
from tenonnx.extend import TenonnxError

RUNS = 30


def fixed(path: Path, folder: Path) -> tuple[Path, tx.Graph]:
    """Save a copy of the model with all dynamic dims fixed to 2."""
    graph = tx.load(path)
    shapes = {v.name: [n if isinstance(n, int) else 2 for n in v.shape] for v in graph.inputs}
    copy = folder / path.name
    static = tx.fix_shapes(graph, shapes)
    static.save(copy)
    return copy, static


def by_tenonnx(path: Path, folder: Path, _: argparse.Namespace) -> Path:
    file = folder / "ours.tflite"
    tx.convert(path, file, verify=False)
    return file


def by_onnx2tf(path: Path, folder: Path, options: argparse.Namespace) -> Path:
    command = [options.onnx2tf, "-i", str(path), "-o", str(folder / "theirs"), "-n"]
    sample = folder / "calibration_image_sample_data_20x128x128x3_float32.npy"  # onnx2tf would download it
    np.save(sample, np.random.default_rng(0).random((20, 128, 128, 3), np.float32))
    subprocess.run(command, check=True, capture_output=True, timeout=options.limit, cwd=folder)
    (file,) = (folder / "theirs").glob("*_float32.tflite")
    return file


def judged(path: Path, feeds: dict[str, Any], expected: dict[str, Any]) -> tuple[str, Callable[[], None] | None]:
    interpreter = Interpreter(str(path), num_threads=1)
    interpreter.allocate_tensors()
    details = interpreter.get_input_details()
    left = dict(feeds)
    for detail in details:
        shape = tuple(detail["shape"])
        name = next((n for n in left if n == detail["name"].removeprefix("serving_default_").split(":")[0]), None)
        name = name or next(iter(left))
        array = left.pop(name)
        array = array if array.shape == shape else np.moveaxis(array, 1, -1)
        interpreter.set_tensor(detail["index"], array.astype(detail["dtype"]))
    interpreter.invoke()
    found = [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]
    right = all(any(_same(array, each) for each in found) for array in expected.values())
    return ("right" if right else "wrong"), interpreter.invoke


def _same(expected: Any, found: Any) -> bool:
    arrays = [found] if found.ndim < 3 else [found, np.moveaxis(found, -1, 1)]
    return any(a.shape == expected.shape and np.allclose(a, expected, rtol=1e-3, atol=1e-3) for a in arrays)


def latency(run: Callable[[], None]) -> float:
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--onnx2tf", required=True)
    parser.add_argument("--limit", type=float, default=120)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    counts: dict[str, Counter[str]] = {"tenonnx": Counter(), "onnx2tf": Counter()}
    times: dict[str, list[float]] = {"tenonnx": [], "onnx2tf": []}
    ratios = []
    for source in sorted(options.folder.glob("*.onnx")):
        with tempfile.TemporaryDirectory() as name:
            path, graph = fixed(source, Path(name))
            feeds = _feeds(graph)
            expected = graph.run(feeds, backend="onnxruntime")
            runs = {}
            line = [source.stem]
            for tool, write in (("tenonnx", by_tenonnx), ("onnx2tf", by_onnx2tf)):
                start = time.perf_counter()
                try:
                    file = write(path, Path(name), options)
                except (TenonnxError, subprocess.SubprocessError, ValueError):
                    verdict = "refused"
                else:
                    times[tool].append(time.perf_counter() - start)
                    try:
                        verdict, run = judged(file, feeds, expected)
                        if run is not None and verdict == "right":
                            runs[tool] = latency(run)
                    except (RuntimeError, ValueError):
                        verdict = "no run"
                counts[tool][verdict] += 1
                line.append(f"{tool} {verdict} {time.perf_counter() - start:.1f} s")
            if len(runs) == 2:
                ratios.append(runs["tenonnx"] / runs["onnx2tf"])
                line.append(f"latency ratio {ratios[-1]:.2f}")
            print("; ".join(line), flush=True)
    for tool, found in counts.items():
        print(tool, dict(found), f"median of {statistics.median(times[tool] or [0]):.1f} s for a file that was written")
    if ratios:
        print(f"latency of our file by theirs: median {statistics.median(ratios):.2f}, most {max(ratios):.2f}")
    return 0


def _feeds(graph: tx.Graph) -> dict[str, Any]:
    draw = np.random.default_rng(0)
    feeds: dict[str, Any] = {}
    for value in graph.inputs:
        kind = value.dtype.numpy
        if value.dtype.is_float:
            feeds[value.name] = draw.standard_normal(value.shape).astype(kind)
        else:
            feeds[value.name] = draw.integers(0, 2, value.shape).astype(kind)
    return feeds


if __name__ == "__main__":
    sys.exit(main())
