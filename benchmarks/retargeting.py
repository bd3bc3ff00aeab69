"""Retargeting of large graphs, compared with loading them with onnx_ir: time by size, and memory.

The minimum of the rounds counts, since other processes disturb the longest measurements most.
"""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import onnx
import onnx_ir
from measure import processes, python, rounds, table
from reading import SIZES, chain

import tenonnx as tx


def main() -> None:
    rows, taken = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            path = Path(folder, f"{size}.onnx")
            onnx.save(chain(size), path)
            graph = tx.load(path)
            implementations = {
                "to 13": lambda graph=graph: tx.retarget(graph, 13),
                "to 11": lambda graph=graph: tx.retarget(graph, 11),
                "onnx_ir": lambda path=path: onnx_ir.load(path),
            }
            found = rounds(implementations, count=max(2, min(20, 20_000 // size)), summary=min)
            taken[size] = found
            per_node = [seconds / size * 1e6 for seconds in found.values()]
            rows.append([f"{size:,}", *per_node, *(found[name] / found["onnx_ir"] for name in ("to 13", "to 11"))])
        code = f"import tenonnx as tx, onnx; g = tx.load({str(Path(folder, '50000.onnx'))!r})"
        peaks = processes({"moved": python(f"{code}; m = tx.retarget(g, 13)"), "read": python(code)}, count=1)
    columns = ["nodes", "17 to 13", "17 to 11", "onnx_ir.load", "to 13 / onnx_ir", "to 11 / onnx_ir"]
    table("Retargeting, microseconds a node", columns, rows)
    exponents = [
        f"{name} {math.log(most / taken[1_000][name]) / math.log(50):.2f}" for name, most in taken[50_000].items()
    ]
    extra = peaks["moved"][1] - peaks["read"][1]
    print(f"\ngrowth exponents from 1,000 to 50,000 nodes: {', '.join(exponents)}; {extra:.0f} MiB more at 50,000")
    print("At 13 every node stays as it is written; at 11 a quarter of them, each Softmax, is said by an older one.")


if __name__ == "__main__":
    main()
