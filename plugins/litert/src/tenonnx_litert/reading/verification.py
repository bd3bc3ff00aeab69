"""Verification against the TFLite interpreter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tenonnx.extend import DType, Graph, counted
from tenonnx.extend.checks import Allowed, SourceProcess, Tolerance, Verification, size_of
from tenonnx_litert.reading.layers import DETECTION, custom_options
from tenonnx_litert.reading.reader import read_file
from tenonnx_litert.running import PROCESS
from tenonnx_tensorflow.verification import verify_against

#: Steps by which quantized outputs may differ: 8-bit ones, since the interpreter's integer arithmetic breaks ties
#: differently, and 16-bit ones, for which it interpolates functions linearly between the entries of a table.
_STEPS, _STEPS_OF_16_BITS = 1, 4

#: Tolerance of float outputs that depend on quantized values, in multiples of the largest scale of the graph.
_STEPS_OF_FLOATS = 3


class Interpreter:
    """A function that runs a signature of a file in a worker process; inputs and outputs are in the order of the file."""

    def __init__(self, path: Path, signature: str | None = None) -> None:
        self._path, self._signature = path, signature
        self._process = SourceProcess(*PROCESS, size_of(path))

    def start(self) -> None:
        """Start the worker, which imports the interpreter in the background."""
        self._process.start()

    def __call__(self, arrays: Sequence[Any]) -> list[Any]:
        path = str(self._path.absolute())
        if self._signature is None:
            results: list[Any] = self._process("outputs_of", path, list(arrays))
            return results
        file = read_file(self._path)
        number, inputs, outputs = file.signatures[self._signature]
        subgraph = file.subgraphs[number]
        feeds = dict(zip([inputs[k] for k in subgraph.inputs], arrays, strict=True))
        by_name = self._process("outputs_of_signature", path, self._signature, feeds)
        return [by_name[outputs[k]] for k in subgraph.outputs]


def verify_file(path: Path, interpreter: Interpreter, graph: Graph, allowed: Allowed) -> Verification:
    """Compare ``graph`` with a file; quantized outputs may differ by a few steps, which a note of the result states."""
    step = _step_of(graph)
    names = [value.name for value in graph.inputs]

    if wrong := _misread(path):
        return Verification("TFLite", unverified=dict.fromkeys((value.name for value in graph.outputs), wrong))
    detections = list(_detections(path))

    def run(feeds: Mapping[str, Any]) -> Sequence[Any]:
        results = interpreter([feeds[name] for name in names])
        for places, count, of_box in detections:
            for place in places:
                results[place][:, of_box * int(results[count][0]) :] = 0
        return results

    wide = any(value.dtype is DType.int16 for value in graph.outputs)
    is_quantized = step > 0 or any(value.dtype is DType.int8 for value in graph.outputs)
    steps = (_STEPS_OF_16_BITS if wide else _STEPS) if is_quantized else 0
    coarse = Tolerance(_STEPS_OF_FLOATS * step, 1e-4, "steps of quantized values inside") if step else None
    verification = verify_against("TFLite", run, graph, allowed, coarse=coarse, steps=steps)
    if steps:
        verification.notes.append(f"quantized values may differ by {counted(steps, 'step')} where a rounding is a tie")
    return verification


def _step_of(graph: Graph) -> float:
    """The largest scale of a QuantizeLinear node; 0 if there is none."""
    steps = [0.0]
    for node in graph.nodes:
        scale = node.inputs[1] if node.op_type == "QuantizeLinear" else None
        if scale is not None and scale.data is not None:
            steps.append(float(np.max(scale.data.array())))
    return max(steps)


def _misread(path: Path) -> str:
    """Reason why the interpreter computes wrong results for a file; empty if it does not.

    BATCH_MATMUL on quantized values reads one scale per operand. For weights with per-column scales it reads 0, so that
    all results are zero.
    """
    for subgraph in read_file(path).subgraphs:
        for operator in subgraph.operators:
            factors = [subgraph.tensors[k] for k in operator.inputs if k >= 0]
            if operator.name != "BATCH_MATMUL" or any(each.quantization is None for each in factors):
                continue
            if any(each.quantization is not None and len(each.quantization.scales) > 1 for each in factors):
                return (
                    f"the interpreter multiplies by a scale of 0 in {operator.title}, whose weights have one by column"
                )
    return ""


def _detections(path: Path) -> Iterator[tuple[Sequence[int], int, int]]:
    """For each detection operator: outputs with uninitialized rows after the last box, the count output, rows per box."""
    subgraph = read_file(path).subgraphs[0]
    for operator in subgraph.operators:
        if operator.name == DETECTION and all(k in subgraph.outputs for k in operator.outputs):
            *places, count = (list(subgraph.outputs).index(k) for k in operator.outputs)
            options = custom_options(operator)
            regular = options.get("use_regular_nms", False)
            yield places, count, 1 if regular else int(options.get("max_classes_per_detection", 1))
