"""Constants in a wider element type, for targets that lack the narrow one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tenonnx.graph.constants import Constant, rows_of
from tenonnx.graph.dtypes import DType
from tenonnx.graph.types import TensorType

if TYPE_CHECKING:
    import numpy as np

_FLOATS = (DType.float32, DType.float16, DType.float64)

#: For each element type of quantized values, in which nothing computes, the types that hold all its values, nearest
#: first.
QUANTIZED: Mapping[DType, tuple[DType, ...]] = {
    DType.int4: (DType.int8, DType.int32),
    DType.int2: (DType.int8, DType.int32),
    DType.uint4: (DType.uint8, DType.int32),
    DType.uint2: (DType.uint8, DType.int32),
    DType.float4e2m1: _FLOATS,
    DType.float8e4m3fn: _FLOATS,
    DType.float8e4m3fnuz: _FLOATS,
    DType.float8e5m2: _FLOATS,
    DType.float8e5m2fnuz: _FLOATS,
}


class Widened:
    """Contents in a wider type, converted on each access."""

    __slots__ = ("source", "type")

    def __init__(self, source: Constant, dtype: DType) -> None:
        self.source, self.type = source, TensorType(dtype, source.type.shape)

    @property
    def nbytes(self) -> int:
        return self.source.nbytes * self.type.dtype.bits // self.source.type.dtype.bits

    def array(self) -> np.ndarray[Any, Any]:
        return self.source.array().astype(self.type.dtype.numpy)

    def rows(self, start: int, stop: int) -> np.ndarray[Any, Any]:
        return rows_of(self.source, start, stop).astype(self.type.dtype.numpy)  # type: ignore[no-any-return]
