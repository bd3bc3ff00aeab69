"""Verification against the interpreter of TFLite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tenonnx.extend import Graph
from tenonnx.extend.checks import Allowed, Tolerance, Verification
from tenonnx_tensorflow.verification import verify_against

#: By how many steps codes may differ behind ties, whose rounding the interpreter's integers decide otherwise.
_STEPS = 1

#: By how many of the largest steps floats may differ that codes inside lead to.
_STEPS_OF_FLOATS = 3


def _interpreter(path: Path) -> Any:
    try:
        from ai_edge_litert.interpreter import Interpreter, OpResolverType
    except ImportError:
        from tensorflow.lite.python.interpreter import Interpreter, OpResolverType

    return Interpreter(
        str(path), experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES, num_threads=1
    )


def outputs_of(path: Path, arrays: Sequence[Any]) -> list[Any]:
    """What the interpreter gives for inputs in the order of the file."""
    interpreter = _interpreter(path)
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

    def run(feeds: Mapping[str, Any]) -> Sequence[Any]:
        return outputs_of(path, [feeds[name] for name in names])

    coarse = Tolerance(_STEPS_OF_FLOATS * step, 1e-4, "steps of codes inside") if step else None
    found = verify_against("TFLite", run, graph, allowed, coarse=coarse, steps=_STEPS if step else 0)
    if step:
        found.notes.append("codes may differ by one step where a rounding is a tie")
    return found


def _step_of(graph: Graph) -> float:
    """The largest step between two codes that a quantized result has; zero where nothing is quantized."""
    steps = [0.0]
    for node in graph.nodes:
        scale = node.inputs[1] if node.op_type == "QuantizeLinear" else None
        if scale is not None and scale.data is not None:
            steps.append(float(np.max(scale.data.array())))
    return max(steps)
