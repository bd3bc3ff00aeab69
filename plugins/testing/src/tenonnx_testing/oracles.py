"""Other implementations that may have an op: onnxruntime and the reference of the onnx package."""

from __future__ import annotations

import ctypes
import functools
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from tenonnx.extend import DType
from tenonnx_testing.models import Trial, without_output_types

if TYPE_CHECKING:
    import onnxruntime


class Refused(Exception):
    """The oracle has no such kernel."""


def run_reference(trial: Trial) -> list[Any]:
    """The outputs by ``onnx.reference``. Raises ``Refused`` for whatever it raises: it is no runtime."""
    from onnx.reference import ReferenceEvaluator

    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return list(ReferenceEvaluator(trial.model).run(None, dict(trial.feeds)))
    except Exception as error:
        raise Refused(f"{type(error).__name__}: {error}") from error


@functools.cache
def has_onnxruntime() -> bool:
    import importlib.util

    return importlib.util.find_spec("onnxruntime") is not None


@functools.cache
def newest_of_onnx() -> int:
    return int(onnx.defs.onnx_opset_version())


@functools.cache
def newest_of_onnxruntime() -> int:
    """The newest version of ``ai.onnx`` that the installed onnxruntime loads."""
    for version in range(newest_of_onnx(), 0, -1):
        node = onnx.helper.make_node("Identity", ["x"], ["y"])
        info = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in ("x", "y")]
        graph = onnx.helper.make_graph([node], "probe", info[:1], info[1:])
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", version)], ir_version=4)
        try:
            _session(model)
        except Refused:
            continue
        return version
    return 0


@functools.cache
def _options() -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return options


def _session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    import onnxruntime

    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), _options(), providers=["CPUExecutionProvider"])
    except Exception as error:
        raise Refused(_shortened(error)) from error


def run_onnxruntime(trial: Trial) -> list[Any]:
    """The outputs by onnxruntime's own kernels, without optimizations. Raises ``Refused`` where it has none."""
    session = _session(without_output_types(trial.model))
    try:
        return run_session(session, trial.feeds)
    except Exception as error:
        raise Refused(_shortened(error)) from error


def run_session(session: onnxruntime.InferenceSession, feeds: Mapping[str, Any]) -> list[Any]:
    """The outputs of a session, of element types that numpy does not have, too."""
    kinds = [each.type for each in (*session.get_inputs(), *session.get_outputs())]
    if not any(kind in _EXTENDED for kind in kinds):
        return list(session.run(None, dict(feeds)))
    values = session.run_with_ort_values(None, {name: _value(array) for name, array in feeds.items()})
    return [_contents(value) for value in values]


def _shortened(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


#: Element types that numpy does not have, as onnxruntime calls their tensors.
_EXTENDED = {
    f"tensor({dtype.name})" for dtype in DType if dtype.name.startswith(("bfloat", "float8", "float6", "float4"))
} | {f"tensor({name})" for name in ("int4", "uint4", "int2", "uint2")}


def _value(array: np.ndarray[Any, Any]) -> Any:
    """An array as a tensor of the runtime, by its bits where that does not know the numpy dtype."""
    import onnxruntime

    if array.dtype.isbuiltin == 1:
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    dtype = DType.of(array.dtype)
    if dtype.bits < 8:
        packed = onnx.numpy_helper.from_array(array).raw_data
        value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(array.shape, int(dtype))
        ctypes.memmove(value.data_ptr(), packed, len(packed))
        return value
    bits = array.view(f"u{array.dtype.itemsize}")
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, int(dtype))


def _contents(value: Any) -> np.ndarray[Any, Any]:
    """A tensor of the runtime as an array, read from its memory where numpy does not know the element type."""
    if value.data_type() not in _EXTENDED:
        return value.numpy()  # type: ignore[no-any-return]
    dtype = DType[value.data_type().removeprefix("tensor(").removesuffix(")")]
    shape: Sequence[int] = value.shape()
    count = int(np.prod(shape, dtype=np.int64))
    size = (count * dtype.bits + 7) // 8
    raw = np.frombuffer(ctypes.string_at(value.data_ptr(), size), np.uint8)
    if dtype.bits >= 8:
        return raw.view(dtype.numpy).reshape(shape)
    packed = onnx.TensorProto(dims=shape, data_type=int(dtype), raw_data=raw.tobytes())
    return onnx.numpy_helper.to_array(packed)


def check(trial: Trial) -> None:
    """Let ``onnx.checker`` judge a model."""
    onnx.checker.check_model(trial.model)
