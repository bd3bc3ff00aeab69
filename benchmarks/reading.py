"""Loading large graphs, compared with onnx_ir and with parsing the protobuf only: time by size, and memory."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnx_ir
from measure import processes, python, rounds, table
from onnx import helper

import tenonnx as tx

SIZES = (1_000, 10_000, 50_000)


def chain(count: int) -> onnx.ModelProto:
    """A chain of nodes with and without attributes and weights."""
    nodes, weights, last = [], [], "x"
    for k in range(count):
        match k % 4:
            case 0:
                weights.append(onnx.numpy_helper.from_array(np.ones(8, np.float32), f"w{k}"))
                nodes.append(helper.make_node("Add", [last, f"w{k}"], [f"v{k}"], f"add_{k}"))
            case 1:
                nodes.append(helper.make_node("Softmax", [last], [f"v{k}"], f"softmax_{k}", axis=1))
            case 2:
                nodes.append(helper.make_node("Transpose", [last], [f"v{k}"], f"transpose_{k}", perm=[0, 1]))
            case _:
                nodes.append(helper.make_node("Relu", [last], [f"v{k}"], f"relu_{k}"))
        last = f"v{k}"
    x, y = (helper.make_tensor_value_info(name, 1, ["n", 8]) for name in ("x", last))
    graph = helper.make_graph(nodes, "chain", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main() -> None:
    rows, ours = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            path = Path(folder, f"{size}.onnx")
            onnx.save(chain(size), path)
            found = rounds(
                {
                    "tenonnx": lambda path=path: tx.load(path),
                    "onnx_ir": lambda path=path: onnx_ir.load(path),
                    "protobuf": lambda path=path: onnx.load(path),
                }
            )
            ours[size] = found["tenonnx"]
            per_node = [seconds / size * 1e6 for seconds in found.values()]
            rows.append([f"{size:,}", *per_node, found["tenonnx"] / found["onnx_ir"]])
        code = "import tenonnx as tx, onnx; tx.default_registry().load('ai.onnx')"
        read = f"{code}; g = tx.load({str(Path(folder, '50000.onnx'))!r})"
        peaks = processes({"read": python(read), "idle": python(code)}, count=3)
    table("Reading, microseconds a node", ["nodes", "tenonnx", "onnx_ir", "protobuf", "tenonnx / onnx_ir"], rows)
    exponent = math.log(ours[50_000] / ours[1_000]) / math.log(50)
    extra = peaks["read"][1] - peaks["idle"][1]
    print(f"\ngrowth exponent {exponent:.2f} from 1,000 to 50,000 nodes; {extra:.0f} MiB more at 50,000")


if __name__ == "__main__":
    main()
