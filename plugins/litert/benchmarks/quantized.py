"""Quantized networks as LiteRT files: operators that compute with floats, sizes, and outputs on both kinds of kernels.

    python plugins/litert/benchmarks/quantized.py [NAME ...]

Writes twelve networks, each quantized in six ways (``quantized_networks.py``), as ``.tflite``, and runs them with the
default and the reference kernels. A line has the operators that compute in float, the size relative to the float file,
and the largest difference of the output from the model's. Its unit is the scale of the output, or 1/255 of its range
for a float output. NAME selects the networks whose name contains it.
"""

from __future__ import annotations

import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import tflite
from quantized_networks import quantized_networks

import tenonnx as tx
from tenonnx.extend import TenonnxError
from tenonnx_litert.format import write
from tenonnx_litert.running import opened

_NAMES = {code: name for name, code in vars(tflite.BuiltinOperator).items() if isinstance(code, int)}

#: Maximum size, relative to the float file.
SIZE = 0.275


def float_operators(path: Path) -> Counter[str]:
    """Operators with float inputs or outputs, except QUANTIZE, DEQUANTIZE and hybrid kernels."""
    model = tflite.Model.GetRootAsModel(path.read_bytes(), 0)
    graph = model.Subgraphs(0)
    result: Counter[str] = Counter()
    for place in range(graph.OperatorsLength()):
        each = graph.Operators(place)
        name = _NAMES[model.OperatorCodes(each.OpcodeIndex()).BuiltinCode()]
        tensors = [graph.Tensors(int(k)) for k in (*each.InputsAsNumpy(), *each.OutputsAsNumpy()) if k >= 0]
        kinds = [tensor.Type() for tensor in tensors]
        is_hybrid = len(kinds) > 1 and kinds[1] in (tflite.TensorType.INT8, tflite.TensorType.INT4)
        if name not in ("QUANTIZE", "DEQUANTIZE") and tflite.TensorType.FLOAT32 in kinds and not is_hybrid:
            result[name] += 1
    return result


def difference(found: Any, expected: Any, step: float) -> float:
    return float(np.abs(np.asarray(found, np.float64) - np.asarray(expected, np.float64)).max() / step)


def measured(graph: tx.Graph, quantized: tx.Graph, feeds: dict[str, Any], folder: Path) -> dict[str, Any]:
    sizes = []
    for each in (graph, quantized):
        write(each, folder / "m.tflite")
        sizes.append((folder / "m.tflite").stat().st_size)
    names = [v.name for v in quantized.inputs], [v.name for v in quantized.outputs]
    expected = quantized.run(feeds, backend="numpy")["y"]
    output = quantized.outputs[0].producer
    is_rounded = output is not None and output.op_type == "DequantizeLinear"
    step = float(output.inputs[1].data.array()) if is_rounded else float(np.ptp(expected)) / 255
    steps: dict[str, str] = {}
    for kernels, reference in (("default", False), ("reference", True)):
        try:
            found = opened(folder / "m.tflite", *names, reference=reference)(feeds)["y"]
            steps[kernels] = f"{difference(found, expected, step):.2f}"
        except (TenonnxError, RuntimeError) as error:
            steps[kernels] = str(getattr(error, "given", error)).strip().splitlines()[-1][:80]
    return {"floats": float_operators(folder / "m.tflite"), "size": sizes[1] / sizes[0], "steps": steps}


def main() -> int:
    warnings.simplefilter("ignore")
    wanted, counts = sys.argv[1:], Counter[str]()
    for name, graph, quantized, feeds in quantized_networks():
        if wanted and not any(part in name for part in wanted):
            continue
        start = time.perf_counter()
        try:
            with tempfile.TemporaryDirectory() as folder:
                found = measured(graph, quantized, feeds[0], Path(folder))
        except TenonnxError as error:
            print(f"{name}: refused: {' '.join(str(error).split())[:120]}", flush=True)
            counts["refused"] += 1
            continue
        counts["in integers"] += not found["floats"]
        counts["small"] += found["size"] <= SIZE
        steps = ", ".join(f"{kernels} {each}" for kernels, each in found["steps"].items())
        floats = " ".join(f"{op} {count}" for op, count in found["floats"].items()) or "none"
        seconds = time.perf_counter() - start
        print(f"{name}: floats {floats}; size {found['size']:.3f}; steps: {steps}; {seconds:.1f} s", flush=True)
        counts["files"] += 1
    print(dict(counts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
