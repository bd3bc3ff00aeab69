"""Verification against the interpreter of TFLite."""

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

#: By how many steps quantized values of 8 bits may differ behind ties, whose rounding the interpreter's integers decide otherwise,
#: and those of 16 bits, for which it looks functions up in tables and draws straight lines between their entries.
_STEPS, _STEPS_OF_16_BITS = 1, 4

#: By how many of the largest steps floats may differ that quantized values inside lead to.
_STEPS_OF_FLOATS = 3


class Interpreter:
    """A signature of a file in the interpreter, in a worker process: a function of inputs in the order of the file."""

    def __init__(self, path: Path, signature: str | None = None) -> None:
        self._path, self._signature = path, signature
        self._process = SourceProcess(*PROCESS, size_of(path))

    def start(self) -> None:
        """Import the interpreter while this process goes on."""
        self._process.start()

    def __call__(self, arrays: Sequence[Any]) -> list[Any]:
        path = str(self._path.absolute())
        if self._signature is None:
            found: list[Any] = self._process("outputs_of", path, list(arrays))
            return found
        file = read_file(self._path)
        number, inputs, outputs = file.signatures[self._signature]
        subgraph = file.subgraphs[number]
        feeds = dict(zip([inputs[k] for k in subgraph.inputs], arrays, strict=True))
        by_name = self._process("outputs_of_signature", path, self._signature, feeds)
        return [by_name[outputs[k]] for k in subgraph.outputs]


def verify_file(path: Path, interpreter: Interpreter, graph: Graph, allowed: Allowed) -> Verification:
    """Compare ``graph`` with a file; where it has quantized values, these may be a step apart, which is noted."""
    step = _step_of(graph)
    names = [value.name for value in graph.inputs]

    if wrong := _misread(path):
        return Verification("TFLite", unverified=dict.fromkeys((value.name for value in graph.outputs), wrong))
    detections = list(_detections(path))

    def run(feeds: Mapping[str, Any]) -> Sequence[Any]:
        found = interpreter([feeds[name] for name in names])
        for places, count, of_box in detections:
            for place in places:
                found[place][:, of_box * int(found[count][0]) :] = 0
        return found

    wide = any(value.dtype is DType.int16 for value in graph.outputs)
    is_quantized = step > 0 or any(value.dtype is DType.int8 for value in graph.outputs)
    steps = (_STEPS_OF_16_BITS if wide else _STEPS) if is_quantized else 0
    coarse = Tolerance(_STEPS_OF_FLOATS * step, 1e-4, "steps of quantized values inside") if step else None
    found = verify_against("TFLite", run, graph, allowed, coarse=coarse, steps=steps)
    if steps:
        found.notes.append(f"quantized values may differ by {counted(steps, 'step')} where a rounding is a tie")
    return found


def _step_of(graph: Graph) -> float:
    """The largest step between two quantized values that a quantized result has; zero where nothing is quantized."""
    steps = [0.0]
    for node in graph.nodes:
        scale = node.inputs[1] if node.op_type == "QuantizeLinear" else None
        if scale is not None and scale.data is not None:
            steps.append(float(np.max(scale.data.array())))
    return max(steps)


def _misread(path: Path) -> str:
    """Reason why the interpreter itself does not compute what a file says; empty where it does.

    For products of integers it takes one scale of each factor, which is 0 where weights have a scale for each column:
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
    """Outputs that the interpreter leaves as they were behind the last box, the output that counts, and rows of a box."""
    subgraph = read_file(path).subgraphs[0]
    for operator in subgraph.operators:
        if operator.name == DETECTION and all(k in subgraph.outputs for k in operator.outputs):
            *places, count = (list(subgraph.outputs).index(k) for k in operator.outputs)
            options = custom_options(operator)
            regular = options.get("use_regular_nms", False)
            yield places, count, 1 if regular else int(options.get("max_classes_per_detection", 1))
