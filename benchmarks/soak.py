"""Soak test: threads call one program for minutes while others load, export and fail; detects leaks.

    python benchmarks/soak.py --minutes 10
    python benchmarks/soak.py --minutes 10 --backend onnxruntime

Memory, file descriptors, threads and files at the end have to match those after a first round, which fills the caches.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

import tenonnx as tx

SIZE = 64


def model() -> onnx.ModelProto:
    """A perceptron whose weights have 64 KiB each."""
    weights = np.random.default_rng(0).standard_normal((4, SIZE, 4 * SIZE)).astype(np.float32)
    nodes, initializers = [], []
    value = "x"
    for k in range(4):
        initializers += [
            onnx.numpy_helper.from_array(weights[k], f"w{k}"),
            onnx.numpy_helper.from_array(weights[k].T.copy(), f"v{k}"),
        ]
        nodes += [
            helper.make_node("MatMul", [value, f"w{k}"], [f"a{k}"]),
            helper.make_node("Gelu", [f"a{k}"], [f"b{k}"]),
            helper.make_node("MatMul", [f"b{k}", f"v{k}"], [f"c{k}"]),
            helper.make_node("LayerNormalization", [f"c{k}", "scale"], [f"y{k}"]),
        ]
        value = f"y{k}"
    initializers.append(onnx.numpy_helper.from_array(np.ones(SIZE, np.float32), "scale"))
    x, y = (helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ["n", SIZE]) for n in ("x", value))
    graph = helper.make_graph(nodes, "soak", [x], [y], initializer=initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def state(folder: Path) -> dict[str, int]:
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)  # returns free memory that the allocator keeps
    resident = int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return {
        "resident_mib": resident >> 20,
        "objects": len(gc.get_objects()),
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "threads": threading.active_count(),
        "files": len(list(folder.iterdir())),
    }


class Soak:
    def __init__(self, folder: Path, backend: str) -> None:
        self.folder, self.backend = folder, backend
        self.path = folder / "soak.onnx"
        tx.export(tx.load(model()), self.path, external_data_threshold=1024)
        self.program = tx.load(self.path).compile(backend)
        self.x = np.random.default_rng(1).standard_normal((8, SIZE)).astype(np.float32)
        for _ in range(3):  # prepared kernels round differently, and are used from the third call on
            (self.expected,) = self.program({"x": self.x}).values()
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.lock = threading.Lock()

    def call(self) -> None:
        (found,) = self.program({"x": self.x}).values()
        assert np.array_equal(found, self.expected), "another result"

    def load(self) -> None:
        (found,) = tx.load(self.path).compile(self.backend)({"x": self.x}).values()
        assert np.allclose(found, self.expected, atol=1e-5), "another result after loading"

    def export(self) -> None:
        path = self.folder / "exported.onnx"
        tx.export(tx.load(self.path), path, opset_version=17, external_data_threshold=1024)
        tx.export(tx.load(path), path)  # overwrites its source
        path.unlink()
        for data in self.folder.glob(f"{path.name}*.data"):
            data.unlink()

    def fail(self) -> None:
        broken = onnx.ModelProto()
        broken.CopyFrom(model())
        broken.graph.node[0].op_type = "Unknown"
        for attempt in (
            lambda: self.program({"x": self.x[:, 1:]}),
            lambda: tx.load(b"no model"),
            lambda: tx.load(broken).run({"x": self.x}),
            lambda: tx.export(tx.load(self.path), self.folder / "none" / "m.onnx"),
            lambda: tx.retarget(tx.load(self.path), 6, domains=["ai.onnx.ml"]),
        ):
            try:
                attempt()
            except tx.TenonnxError:
                continue
            raise AssertionError("what is wrong was taken")

    def work(self, action: Callable[[], None], end: float) -> None:
        while time.monotonic() < end:
            try:
                action()
            except Exception as error:
                with self.lock:
                    self.wrong.append(f"{action.__name__}: {type(error).__name__}: {error}"[:300])
            with self.lock:
                self.counts[action.__name__] += 1

    def run(self, seconds: float, callers: int) -> None:
        end = time.monotonic() + seconds
        actions = [self.call] * callers + [self.load, self.export, self.fail]
        threads = [threading.Thread(target=self.work, args=(action, end)) for action in actions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--threads", type=int, default=8, help="that call the one program")
    parser.add_argument("--backend", default="numpy")
    parser.add_argument("--allowed", type=int, default=16, help="MiB that memory may differ in the end")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        soak = Soak(Path(name), arguments.backend)
        soak.run(min(15.0, arguments.minutes * 6), arguments.threads)  # fills caches and the allocator's pools
        soak.counts.clear()
        before = state(soak.folder)
        soak.run(arguments.minutes * 60, arguments.threads)
        after = state(soak.folder)
    kept = after["resident_mib"] - before["resident_mib"] <= arguments.allowed
    kept = kept and all(after[key] == before[key] for key in ("descriptors", "threads", "files"))
    summary = {"before": before, "after": after, "calls": dict(soak.counts), "wrong": len(soak.wrong)}
    print(json.dumps(summary | {"first_wrong": soak.wrong[:3]}, indent=2))
    return 0 if kept and not soak.wrong else 1


if __name__ == "__main__":
    sys.exit(main())
