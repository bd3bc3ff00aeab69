"""Conversion between OrtValues and numpy arrays, including ml_dtypes and packed types."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np
from onnxruntime import OrtValue

from tenonnx.extend import DType
from tenonnx.extend.formats import TensorProto, array_to_proto
from tenonnx_onnxruntime.element_types import dtype_of, is_extended

Array = np.ndarray[Any, Any]


def to_runtime(array: Array, dtype: DType) -> OrtValue:
    """An OrtValue, which shares the memory of ``array`` if that is contiguous and the type is not packed."""
    if 0 < dtype.bits < 8:
        return _packed(array, dtype)
    if not array.flags.c_contiguous:
        array = array.copy(order="C")
    if is_extended(dtype):
        return OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(f"u{array.itemsize}"), int(dtype))
    return OrtValue.ortvalue_from_numpy(array)


def from_runtime(value: Any) -> Array:
    """The contents of an OrtValue, possibly sharing its memory."""
    dtype = dtype_of(value.data_type())
    if not is_extended(dtype):
        return value.numpy()  # type: ignore[no-any-return]
    shape = tuple(value.shape())
    size = math.ceil(math.prod(shape) * dtype.bits / 8)
    raw = np.frombuffer(bytearray(ctypes.string_at(value.data_ptr(), size)), np.uint8)
    if dtype.bits >= 8:
        return raw.view(dtype.numpy).reshape(shape)
    packed = TensorProto(dims=shape, data_type=int(dtype), raw_data=raw.tobytes())
    from onnx import numpy_helper

    return numpy_helper.to_array(packed)


def _packed(array: Array, dtype: DType) -> OrtValue:
    value = OrtValue.ortvalue_from_shape_and_type(list(array.shape), int(dtype))
    raw = array_to_proto(array, dtype, "").raw_data
    ctypes.memmove(value.data_ptr(), raw, len(raw))
    return value
