"""Element types of JAX, and values with several parts: complex numbers and random keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from tenonnx.extend import DType, Value


class Parts(tuple[Any, ...]):
    """The parts of one JAX value: the real and imaginary part of complex numbers, or the words of a key.

    Each part has the shape of the value, so that operations that move elements apply to each part.
    """

    def map(self, function: Callable[[Any], Any]) -> Parts:
        return Parts(function(part) for part in self)


#: Representation of a JAX value during import: known contents, a value of the graph, or parts.
Held = np.ndarray[Any, Any] | Value | Parts


def is_key(dtype: Any) -> bool:
    return bool(jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key))


def is_complex(dtype: Any) -> bool:
    return not is_key(dtype) and np.dtype(dtype).kind == "c"


def real_of(dtype: Any) -> np.dtype[Any]:
    return np.dtype(np.float32 if np.dtype(dtype) == np.complex64 else np.float64)


def dtype_of(aval: Any) -> DType:
    """The element type of a value, or of each of its parts."""
    if is_key(aval.dtype):
        return DType.uint32
    if aval.dtype == jax.dtypes.float0:
        return DType.bool
    return DType.of(real_of(aval.dtype)) if is_complex(aval.dtype) else DType.of(np.dtype(aval.dtype))


def parts_of(array: Any) -> np.ndarray[Any, Any] | Parts:
    """Contents as numpy arrays."""
    dtype = getattr(array, "dtype", None)
    if dtype is not None and is_key(dtype):
        words = np.asarray(jax.random.key_data(array))
        return Parts(words[..., k] for k in range(words.shape[-1]))
    if dtype == jax.dtypes.float0:
        return np.zeros(array.shape, np.bool_)
    contents = np.asarray(array)
    if contents.dtype.kind == "c":
        return Parts((np.ascontiguousarray(contents.real), np.ascontiguousarray(contents.imag)))
    return contents
