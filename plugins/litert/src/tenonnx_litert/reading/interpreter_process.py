"""Functions of a worker process around the interpreter of LiteRT, which some files crash.

It imports nothing of tenonnx. Arrays of bfloat16 travel as float32, beside the names of their types.
"""

from __future__ import annotations

from typing import Any

import numpy as np

try:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType
except ImportError:
    from tensorflow.lite.python.interpreter import Interpreter, OpResolverType


def opened(path: str) -> Any:
    """An interpreter of a file, without delegates."""
    kind = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(path, experimental_op_resolver_type=kind, num_threads=1)
    interpreter.allocate_tensors()
    return interpreter


def outputs_of(path: str, arrays: list[Any]) -> list[Any]:
    """Pairs of outputs and the names of their types, for inputs in the order of the file."""
    interpreter = opened(path)
    details = interpreter.get_input_details()
    for detail, array in zip(details, arrays, strict=True):
        if list(detail["shape"]) != list(np.shape(array)):
            interpreter.resize_tensor_input(detail["index"], np.shape(array), strict=False)
    interpreter.allocate_tensors()
    for detail, array in zip(details, arrays, strict=True):
        wanted = np.dtype(detail["dtype"])
        interpreter.set_tensor(detail["index"], array if wanted.kind in "OSU" else np.asarray(array, wanted))
    interpreter.invoke()
    found = [np.array(interpreter.get_tensor(detail["index"])) for detail in interpreter.get_output_details()]
    return [[array.astype(np.float32) if array.dtype.kind == "V" else array, array.dtype.name] for array in found]
