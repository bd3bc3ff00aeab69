"""Verification against the interpreter of TFLite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tenonnx.extend import DType, Graph, counted
from tenonnx.extend.checks import Allowed, Tolerance, Verification
from tenonnx_tensorflow.lite.layers import DETECTION, custom_options
from tenonnx_tensorflow.lite.reader import read_file
from tenonnx_tensorflow.verification import verify_against

#: By how many steps codes of 8 bits may differ behind ties, whose rounding the interpreter's integers decide otherwise,
#: and those of 16 bits, for which it looks functions up in tables and draws straight lines between their entries.
_STEPS, _STEPS_OF_16_BITS = 1, 4

#: By how many of the largest steps floats may differ that codes inside lead to.
_STEPS_OF_FLOATS = 3


def opened(path: Path) -> Any:
    """The interpreter of LiteRT, or of TensorFlow, of a file."""
    try:
        from ai_edge_litert.interpreter import Interpreter, OpResolverType
    except ImportError:
        from tensorflow.lite.python.interpreter import Interpreter, OpResolverType

    kind = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(str(path), experimental_op_resolver_type=kind, num_threads=1)
    interpreter.allocate_tensors()
    return interpreter


def outputs_of(path: Path, arrays: Sequence[Any]) -> list[Any]:
    """What the interpreter gives for inputs in the order of the file."""
    interpreter = opened(path)
    details = interpreter.get_input_details()
    for detail, array in zip(details, arrays, strict=True):
        if list(detail["shape"]) != list(np.shape(array)):
            interpreter.resize_tensor_input(detail["index"], np.shape(array), strict=False)
    interpreter.allocate_tensors()
    for detail, array in zip(details, arrays, strict=True):
        interpreter.set_tensor(detail["index"], array)
    interpreter.invoke()
    return [np.array(interpreter.get_tensor(detail["index"])) for detail in interpreter.get_output_details()]


def verify_file(path: Path, graph: Graph, allowed: Allowed) -> Verification:
    """Compare ``graph`` with a file; where it has codes, these may be a step apart, which is noted."""
    step = _step_of(graph)
    names = [value.name for value in graph.inputs]

    detections = list(_detections(path))

    def run(feeds: Mapping[str, Any]) -> Sequence[Any]:
        found = outputs_of(path, [feeds[name] for name in names])
        for places, count, of_box in detections:
            for place in places:
                found[place][:, of_box * int(found[count][0]) :] = 0
        return found

    wide = any(value.dtype is DType.int16 for value in graph.outputs)
    steps = (_STEPS_OF_16_BITS if wide else _STEPS) if step else 0
    coarse = Tolerance(_STEPS_OF_FLOATS * step, 1e-4, "steps of codes inside") if step else None
    found = verify_against("TFLite", run, graph, allowed, coarse=coarse, steps=steps)
    if step:
        found.notes.append(f"codes may differ by {counted(steps, 'step')} where a rounding is a tie")
    return found


def _step_of(graph: Graph) -> float:
    """The largest step between two codes that a quantized result has; zero where nothing is quantized."""
    steps = [0.0]
    for node in graph.nodes:
        scale = node.inputs[1] if node.op_type == "QuantizeLinear" else None
        if scale is not None and scale.data is not None:
            steps.append(float(np.max(scale.data.array())))
    return max(steps)


def _detections(path: Path) -> Iterator[tuple[Sequence[int], int, int]]:
    """Outputs that the interpreter leaves as they were behind the last box, the output that counts, and rows of a box."""
    subgraph = read_file(path).subgraphs[0]
    for operator in subgraph.operators:
        if operator.name == DETECTION and all(k in subgraph.outputs for k in operator.outputs):
            *places, count = (list(subgraph.outputs).index(k) for k in operator.outputs)
            options = custom_options(operator)
            regular = options.get("use_regular_nms", False)
            yield places, count, 1 if regular else int(options.get("max_classes_per_detection", 1))
