"""Element types, shapes, tensors and attributes of messages, as Python values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from tenonnx.extend import DType, InvalidModel, NotRepresentable, limits

#: Element types by their number in ``types.proto``; quantized ones are plain integers, as in TensorFlow's kernels.
_DTYPES: dict[int, Any] = {
    1: np.float32,
    2: np.float64,
    3: np.int32,
    4: np.uint8,
    5: np.int16,
    6: np.int8,
    7: object,
    8: np.complex64,
    9: np.int64,
    10: np.bool_,
    11: np.int8,
    12: np.uint8,
    13: np.int32,
    14: ml_dtypes.bfloat16,
    15: np.int16,
    16: np.uint16,
    17: np.uint16,
    18: np.complex128,
    19: np.float16,
    22: np.uint32,
    23: np.uint64,
    24: ml_dtypes.float8_e5m2,
    25: ml_dtypes.float8_e4m3fn,
    29: ml_dtypes.int4,
    30: ml_dtypes.uint4,
}

#: Types other than tensors: handles of variables and tables, and lists of tensors.
RESOURCE, VARIANT = 20, 21

#: Offset of reference types of TensorFlow 1.
_REFERENCE = 100

#: Field of a tensor's elements in a message, unless they are raw bytes.
_ELEMENTS = {
    np.float32: "float_val",
    np.float64: "double_val",
    np.int32: "int_val",
    np.uint8: "int_val",
    np.int16: "int_val",
    np.int8: "int_val",
    np.uint16: "int_val",
    np.int64: "int64_val",
    np.bool_: "bool_val",
    np.uint32: "uint32_val",
    np.uint64: "uint64_val",
    np.complex64: "scomplex_val",
    np.complex128: "dcomplex_val",
    np.float16: "half_val",
    ml_dtypes.bfloat16: "half_val",
    ml_dtypes.float8_e5m2: "float8_val",
    ml_dtypes.float8_e4m3fn: "float8_val",
    ml_dtypes.int4: "int_val",
    ml_dtypes.uint4: "int_val",
}


def count_of(node: Any, name: str) -> int:
    """An attribute with the number of outputs of a node. Raises ``LimitExceeded`` above the limit ``entries``."""
    count = int(node[name])
    limits.check("entries", count, f'attribute "{name}" of {node.title}')
    return count


def numpy_type(number: int) -> Any:
    """The numpy type of a type number, ``object`` for strings."""
    number %= _REFERENCE
    if number not in _DTYPES:
        raise NotRepresentable(
            "an element type has no form in ONNX",
            given={RESOURCE: "a resource", VARIANT: "a variant"}.get(number, f"number {number} of TensorFlow's types"),
        )
    return _DTYPES[number]


def dtype_of(number: int) -> DType:
    """The element type of a number; that of parts for complex ones. Raises ``NotRepresentable`` for others."""
    found = numpy_type(number)
    if found is object:
        return DType.string
    if found in (np.complex64, np.complex128):
        return DType.float32 if found is np.complex64 else DType.float64
    return DType.of(np.dtype(found))


def is_complex(number: int) -> bool:
    return _DTYPES.get(number % _REFERENCE) in (np.complex64, np.complex128)


def shape_of(message: Any) -> tuple[int | None, ...] | None:
    """Sizes, with None for unknown ones; None for an unknown rank."""
    if message.unknown_rank:
        return None
    return tuple(None if dim.size < 0 else int(dim.size) for dim in message.dim)


def array_of(message: Any, what: str) -> np.ndarray[Any, Any]:
    """The contents of a tensor; strings as ``str``, or as ``bytes`` where they are not UTF-8."""
    kind = numpy_type(message.dtype)
    shape = [int(dim.size) for dim in message.tensor_shape.dim]
    count = math.prod(shape)
    if kind is object:
        found = np.empty(len(message.string_val), object)
        found[:] = [text_of(each) for each in message.string_val]
    elif message.tensor_content:
        contents = message.tensor_content
        if len(contents) != count * np.dtype(kind).itemsize:
            raise InvalidModel(
                f'the tensor of "{what}" does not have as many bytes as its shape needs',
                given=f"{len(contents)} bytes for shape {shape}",
            )
        return np.frombuffer(contents, kind).reshape(shape)
    else:
        found = _listed(kind, getattr(message, _ELEMENTS[kind]))
    if found.size == count:
        return found.reshape(shape)
    if found.size > count or (not found.size and kind is object):
        raise InvalidModel(
            f'the tensor of "{what}" does not have the elements of its shape',
            given=f"{found.size} elements for {shape}",
        )
    filled = np.zeros(count, kind)  # the last element is repeated, and no elements means zeros
    filled[: found.size] = found
    filled[found.size :] = found[-1] if found.size else filled[found.size :]
    return filled.reshape(shape)


def _listed(kind: Any, elements: Any) -> np.ndarray[Any, Any]:
    dtype: np.dtype[Any] = np.dtype(kind)
    if kind in (np.complex64, np.complex128):
        parts = np.asarray(elements, np.float32 if kind is np.complex64 else np.float64)
        return np.ndarray(parts.shape[0] // 2, dtype, parts)
    if kind in (np.float16, ml_dtypes.bfloat16):
        words = np.asarray(elements, np.uint16)
        return np.ndarray(words.shape, dtype, words)
    if isinstance(elements, bytes):
        return np.frombuffer(elements, dtype)
    return np.asarray(elements).astype(dtype)


def text_of(contents: bytes) -> Any:
    try:
        return contents.decode()
    except UnicodeDecodeError:
        return contents


def content_of(message: Any, what: str) -> Any:
    """An attribute: a number, a string, a list, a type number, a shape, an array, or the name of a function."""
    kind = message.WhichOneof("value")
    if kind == "list":
        items = message.list
        for name, made in _READ.items():
            if len(getattr(items, name)):
                return [made(each, what) for each in getattr(items, name)]
        return []
    return None if kind is None else _READ.get(kind, _as_it_is)(getattr(message, kind), what)


def _as_it_is(content: Any, what: str) -> Any:
    return content


_READ: Mapping[str, Callable[[Any, str], Any]] = {
    "s": lambda content, what: text_of(content),
    "i": _as_it_is,
    "f": _as_it_is,
    "b": _as_it_is,
    "type": _as_it_is,
    "shape": lambda content, what: shape_of(content),
    "tensor": array_of,
    "func": lambda content, what: content.name,
}
