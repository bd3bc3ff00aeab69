"""Functions of a worker process with LiteRT's interpreter, since some files crash it.

It imports nothing of tenonnx. Arrays of bfloat16 travel as float32, beside the names of their types.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

#: Interpreters and the shapes of their inputs, None before the first run of a file with dynamic dims.
_OPEN: dict[tuple[str, bool], tuple[Any, Any]] = {}


def load(path: str, reference: bool) -> None:
    """Open a file that was just written: with the default kernels, or with the reference kernels."""
    _OPEN.clear()
    kind = OpResolverType.BUILTIN_REF if reference else OpResolverType.BUILTIN
    made = Interpreter(path, experimental_op_resolver_type=kind, num_threads=1)
    details = made.get_input_details()
    if any(-1 in detail["shape_signature"] for detail in details):  # the sizes in the file may be too small to run
        _OPEN[path, reference] = made, None
        return
    made.allocate_tensors()
    _OPEN[path, reference] = made, [list(detail["shape"]) for detail in details]


def run(path: str, reference: bool, arrays: list[Any]) -> list[Any]:
    """Pairs of outputs and the names of their types, for inputs in the order of the file."""
    if (path, reference) not in _OPEN:
        load(path, reference)
    interpreter, shapes = _OPEN[path, reference]
    details = interpreter.get_input_details()
    wanted = [list(np.shape(array)) for array in arrays]
    if wanted != shapes:
        for detail, shape in zip(details, wanted, strict=True):
            interpreter.resize_tensor_input(detail["index"], shape, strict=False)
        interpreter.allocate_tensors()
        _OPEN[path, reference] = interpreter, wanted
    for detail, array in zip(details, arrays, strict=True):
        interpreter.set_tensor(detail["index"], np.asarray(array, np.dtype(detail["dtype"])))
    interpreter.invoke()
    found = [np.array(interpreter.get_tensor(detail["index"])) for detail in interpreter.get_output_details()]
    return [[array.astype(np.float32) if array.dtype.kind == "V" else array, array.dtype.name] for array in found]
