"""LiteRT's interpreter in a worker process, since some files crash it.

This module imports nothing from tenonnx.
"""

from __future__ import annotations

from typing import Any

import numpy as np

try:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType
except ImportError:
    from tensorflow.lite.python.interpreter import Interpreter, OpResolverType

#: Interpreters and their input shapes; the shapes are None before the first run of a file with dynamic dims.
_OPEN: dict[tuple[str, bool], tuple[Any, Any]] = {}


def load(path: str, reference: bool) -> None:
    """Open a newly written file with the default kernels, or with the reference kernels."""
    _OPEN.clear()
    interpreter = _new_interpreter(path, OpResolverType.BUILTIN_REF if reference else OpResolverType.BUILTIN)
    if any(-1 in detail["shape_signature"] for detail in interpreter.get_input_details()):
        _OPEN[path, reference] = interpreter, None  # the placeholder sizes in the file may be too small to run
        return
    interpreter.allocate_tensors()
    _OPEN[path, reference] = interpreter, _shapes(interpreter)


def run(path: str, reference: bool, arrays: list[Any]) -> list[Any]:
    """Outputs for inputs in the order of the file."""
    if (path, reference) not in _OPEN:
        load(path, reference)
    interpreter, shapes = _OPEN[path, reference]
    _resize(interpreter, shapes, arrays)
    _OPEN[path, reference] = interpreter, _shapes(interpreter)
    return _computed(interpreter, arrays)


def run_signature(path: str, key: str, feeds: dict[str, Any]) -> dict[str, Any]:
    """Outputs by name of a signature of the open file. Variables keep their contents between calls."""
    if (path, False) not in _OPEN:
        load(path, False)
    return _by_signature(_OPEN[path, False][0], key, feeds)


def outputs_of_signature(path: str, key: str, feeds: dict[str, Any]) -> dict[str, Any]:
    """Outputs by name of a signature, computed by a new interpreter without delegates."""
    return _by_signature(_new_interpreter(path, OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES), key, feeds)


def _by_signature(interpreter: Any, key: str, feeds: dict[str, Any]) -> dict[str, Any]:
    results = interpreter.get_signature_runner(key)(**{name: np.asarray(array) for name, array in feeds.items()})
    return {name: np.array(array) for name, array in results.items()}


def outputs_of(path: str, arrays: list[Any]) -> list[Any]:
    """Outputs for inputs in the order of the file, computed by a new interpreter without delegates."""
    interpreter = opened(path)
    _resize(interpreter, _shapes(interpreter), arrays)
    return _computed(interpreter, arrays)


def opened(path: str) -> Any:
    """A new interpreter of a file, without delegates."""
    interpreter = _new_interpreter(path, OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
    interpreter.allocate_tensors()
    return interpreter


def _new_interpreter(path: str, kernels: Any) -> Any:
    return Interpreter(path, experimental_op_resolver_type=kernels, num_threads=1)


def _shapes(interpreter: Any) -> list[list[int]]:
    return [list(detail["shape"]) for detail in interpreter.get_input_details()]


def _resize(interpreter: Any, shapes: Any, arrays: list[Any]) -> None:
    """Resize the inputs to the shapes of ``arrays`` if they differ from ``shapes``."""
    wanted = [list(np.shape(array)) for array in arrays]
    if wanted == shapes:
        return
    for detail, shape in zip(interpreter.get_input_details(), wanted, strict=True):
        interpreter.resize_tensor_input(detail["index"], shape, strict=False)
    interpreter.allocate_tensors()


def _computed(interpreter: Any, arrays: list[Any]) -> list[Any]:
    for detail, array in zip(interpreter.get_input_details(), arrays, strict=True):
        wanted = np.dtype(detail["dtype"])
        interpreter.set_tensor(detail["index"], array if wanted.kind in "OSU" else np.asarray(array, wanted))
    interpreter.invoke()
    return [np.array(interpreter.get_tensor(detail["index"])) for detail in interpreter.get_output_details()]
