"""Quantize models with another tool, in the environment of that tool.

``python rival_quantizers.py TOOL FOLDER NAME ...`` quantizes ``FOLDER/NAME.onnx`` by each method of ``onnxruntime`` or
``onnxsim``. It writes ``FOLDER/NAME.METHOD.onnx``, and ``NAME.METHOD.json`` with seconds, peak memory in MiB, and the
exception if there was one. Existing files are skipped. Each model and method runs in a child process, forked after the
import of the tool.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx

BATCH, BLOCK = 32, 32

#: Limit of CPU time for one model and method.
SECONDS = 30

METHODS = {
    "onnxruntime": ("rtn", "k-quant", "int8"),
    "onnxsim": ("rtn", "hqq", "gptq", "quantease", "awq", "autoround"),
}


def batches(path: str, model: str) -> Iterator[dict[str, Any]]:
    name = onnx.load(model).graph.input[0].name
    rows = np.load(path)["x"][:1024]
    for start in range(0, len(rows), BATCH):
        yield {name: rows[start : start + BATCH]}


def peak_memory() -> float:
    """Peak memory of this process in MiB. (The resource module would include that of the parent.)"""
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def by_onnxruntime(method: str, model: str, data: str, output: str) -> None:
    from onnxruntime import quantization
    from onnxruntime.quantization import matmul_nbits_quantizer as nbits

    if method == "int8":

        class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
            def __init__(self) -> None:
                self.batches = batches(data, model)

            def get_next(self) -> dict[str, Any] | None:
                return next(self.batches, None)

        quantization.quantize_static(model, output, Reader(), per_channel=True)
        return
    form = quantization.QuantFormat.QDQ
    config = nbits.DefaultWeightOnlyQuantConfig(block_size=BLOCK, is_symmetric=False, bits=4, quant_format=form)
    if method == "k-quant":
        config = nbits.KQuantWeightOnlyQuantConfig()
    quantizer = nbits.MatMulNBitsQuantizer(model, block_size=BLOCK, algo_config=config)
    quantizer.process()
    quantizer.model.save_model_to_file(output)


def by_onnxsim(method: str, model: str, data: str, output: str) -> None:
    onnxsim: Any = importlib.import_module("onnxsim")

    source = onnx.shape_inference.infer_shapes(onnx.load(model))  # it needs inferred shapes
    if method == "hqq":
        onnx.save(onnxsim.quantize_weight_only_int4_hqq(source, block_size=BLOCK), output)
        return
    quantized = onnxsim.quantize_weight_only_int4(source)
    if method != "rtn":
        apply = getattr(onnxsim, f"apply_{method}")
        quantized = apply(source, quantized, calibration_data=list(batches(data, model)))
    onnx.save(quantized, output)


def measure(tool: str, folder: Path, name: str, method: str) -> None:
    """Quantize one model by one method in this process, and write time, memory and error."""
    quantized_file, found = folder / f"{name}.{tool}-{method}.onnx", {"error": ""}
    start = time.perf_counter()
    try:
        BY[tool](method, str(folder / f"{name}.onnx"), str(folder / f"{name}.npz"), str(quantized_file))
    except Exception as error:  # the tool may raise any error
        found["error"] = f"{type(error).__name__}: {error}"
    figures = {"seconds": time.perf_counter() - start, "memory": peak_memory()}
    quantized_file.with_suffix(".json").write_text(json.dumps(found | figures), "utf-8")


BY = {"onnxruntime": by_onnxruntime, "onnxsim": by_onnxsim}

if __name__ == "__main__":
    logging.disable(logging.WARNING)
    tool, folder = sys.argv[1], Path(sys.argv[2])
    importlib.import_module("onnxsim" if tool == "onnxsim" else "onnxruntime.quantization.matmul_nbits_quantizer")
    for name in sys.argv[3:]:
        for method in METHODS[tool]:
            figures = folder / f"{name}.{tool}-{method}.json"
            if figures.is_file():
                continue
            child = os.fork()
            if child == 0:
                resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
                measure(tool, folder, name, method)
                os._exit(0)
            if os.waitpid(child, 0)[1]:
                figures.write_text(json.dumps({"error": f"not done in {SECONDS} s of processor time"}), "utf-8")
