"""Unpacking of 4-bit weights into QDQ and into floats: seconds, and peak memory above start-up.

``python benchmarks/unpacking.py [GB] [folder]``; by default 1 GB of MatMulNBits nodes with 16 Mi weights each.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from measure import processes, python, table
from onnx import TensorProto, helper

SIDE, BLOCK = 4096, 32


def write_model(folder: Path, layers: int) -> Path:
    """Write a model of MatMulNBits nodes with quantized weights and scales in external data; returns its path."""
    random = np.random.default_rng(0)
    nodes, tensors, last, blocks = [], [], "x", SIDE // BLOCK
    quantized = random.integers(0, 256, (SIDE, blocks, BLOCK // 2)).astype(np.uint8)
    scales = random.uniform(0.001, 0.01, (SIDE, blocks)).astype(np.float32)
    with (folder / "weights.bin").open("wb") as data:
        for k in range(layers):
            for name, contents, dtype in (
                (f"w{k}", quantized, TensorProto.UINT8),
                (f"s{k}", scales, TensorProto.FLOAT),
            ):
                tensor = TensorProto(name=name, data_type=dtype, dims=contents.shape, data_location=1)
                entries = {"location": "weights.bin", "offset": data.tell(), "length": contents.nbytes}
                for key, value in entries.items():
                    tensor.external_data.add(key=key, value=str(value))
                data.write(contents.tobytes())
                tensors.append(tensor)
            attributes = {"K": SIDE, "N": SIDE, "bits": 4, "block_size": BLOCK, "domain": "com.microsoft"}
            nodes.append(
                helper.make_node("MatMulNBits", [last, f"w{k}", f"s{k}"], [f"v{k}"], f"layer_{k}", **attributes)
            )
            last = f"v{k}"
    x, y = (helper.make_tensor_value_info(name, 1, ["n", SIDE]) for name in ("x", last))
    graph = helper.make_graph(nodes, "layers", [x], [y], tensors)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), folder / "model.onnx")
    return folder / "model.onnx"


def main(gigabytes: str = "1", place: str | None = None) -> None:
    with tempfile.TemporaryDirectory(dir=place) as name:
        folder = Path(name)
        layer = SIDE * SIDE // 2 + SIDE * SIDE // BLOCK * 4
        path = write_model(folder, max(1, round(float(gigabytes) * 1e9 / layer)))
        size = (folder / "weights.bin").stat().st_size / 1e9
        forms = "tenonnx_quantized.forms"
        prepare = (
            f"import onnx, tenonnx as tx, {forms}.qdq as qdq, {forms}.dequantize as floats\n"
            "tx.default_registry().load('ai.onnx')\n"
        )
        made = str(folder / "made.onnx")
        write = f"tx.export({{}}(tx.load({str(path)!r})), {made!r}, external_data_threshold=1024, overwrite=True)"
        clean = ["sh", "-c", f"rm -f {made}*"]
        found = processes(
            {
                "start-up": python(prepare),
                "clean": clean,
                "in QDQ": python(prepare + write.format("qdq.to_qdq")),
                "clean again": clean,
                "as floats": python(prepare + write.format("floats.to_floats")),
            },
            count=1,
        )
    seconds, peak = found["start-up"]
    rows = [
        [f"{size:.1f} GB {kind}", found[kind][0] - seconds, found[kind][1] - peak] for kind in ("in QDQ", "as floats")
    ]
    table("Unpacking weights of four bits", ["", "seconds", "extra MiB at the peak"], rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
