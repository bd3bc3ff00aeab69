"""Element types of tensors, with the codes of ``TensorProto.DataType``."""

from __future__ import annotations

import builtins
import enum
import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


class DType(enum.IntEnum):
    """One ONNX element type. As an int it is its ``TensorProto.DataType`` code, so it can be an attribute value.

    The fields are: code, kind, bits of an element in ONNX's packed form (0 for strings), name in ``ml_dtypes`` if numpy
    lacks it, and for later additions the first version of ai.onnx with ops for it and the first IR version that can
    store it (onnx.in.proto, enum Version).
    """

    kind: str
    bits: int
    extended: str
    first_opset: int
    first_ir_version: int
    is_float: builtins.bool
    is_integer: builtins.bool
    is_complex: builtins.bool
    is_signed: builtins.bool
    is_numeric: builtins.bool

    def __new__(
        cls, code: int, kind: str = "", bits: int = 0, extended: str = "", first_opset: int = 1, first_ir: int = 1
    ) -> DType:
        self = int.__new__(cls, code)
        self._value_ = code
        self.kind, self.bits, self.extended = kind, bits, extended
        self.first_opset, self.first_ir_version = first_opset, first_ir
        self.is_float, self.is_complex = kind == "float", kind == "complex"
        self.is_integer = kind in ("signed", "unsigned")
        self.is_signed = kind in ("signed", "float", "complex")
        self.is_numeric = self.is_signed or self.is_integer
        return self

    undefined = 0
    float32 = 1, "float", 32
    uint8 = 2, "unsigned", 8
    int8 = 3, "signed", 8
    uint16 = 4, "unsigned", 16
    int16 = 5, "signed", 16
    int32 = 6, "signed", 32
    int64 = 7, "signed", 64
    string = 8, "string"
    bool = 9, "bool", 8
    float16 = 10, "float", 16
    float64 = 11, "float", 64
    uint32 = 12, "unsigned", 32
    uint64 = 13, "unsigned", 64
    complex64 = 14, "complex", 64
    complex128 = 15, "complex", 128
    bfloat16 = 16, "float", 16, "bfloat16", 13, 4
    float8e4m3fn = 17, "float", 8, "float8_e4m3fn", 19, 9
    float8e4m3fnuz = 18, "float", 8, "float8_e4m3fnuz", 19, 9
    float8e5m2 = 19, "float", 8, "float8_e5m2", 19, 9
    float8e5m2fnuz = 20, "float", 8, "float8_e5m2fnuz", 19, 9
    uint4 = 21, "unsigned", 4, "uint4", 21, 10
    int4 = 22, "signed", 4, "int4", 21, 10
    float4e2m1 = 23, "float", 4, "float4_e2m1fn", 23, 11
    float8e8m0 = 24, "float", 8, "float8_e8m0fnu", 24, 12
    uint2 = 25, "unsigned", 2, "uint2", 25, 13
    int2 = 26, "signed", 2, "int2", 25, 13
    float6e2m3 = 27, "float", 6, "float6_e2m3fn", 28, 14
    float6e3m2 = 28, "float", 6, "float6_e3m2fn", 28, 14

    __hash__ = int.__hash__  # faster than that of Enum, which hashes the name

    def __str__(self) -> str:
        return self.name

    @functools.cached_property
    def numpy(self) -> np.dtype[Any]:
        """The numpy dtype of arrays of this type: ``ml_dtypes`` for extended types, objects for strings."""
        import numpy as np

        if self is DType.string:
            return np.dtype(object)
        if self is DType.undefined:
            raise ValueError("an undefined element type has no numpy dtype")
        if self.extended:
            import ml_dtypes

            scalar: type[np.generic] = getattr(ml_dtypes, self.extended)
            return np.dtype(scalar)
        return np.dtype(self.name)

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest number of an integer type."""
        return (-(1 << self.bits - 1), (1 << self.bits - 1) - 1) if self.is_signed else (0, (1 << self.bits) - 1)

    @classmethod
    def of(cls, dtype: Any) -> DType:
        """The element type of a numpy dtype, dtype name, ONNX code or another ``DType``.

        Raises ``ValueError`` for a dtype that ONNX lacks.
        """
        if isinstance(dtype, cls):
            return dtype
        if isinstance(dtype, int):
            return cls(dtype)
        if isinstance(dtype, str) and dtype in cls.__members__:
            return cls[dtype]
        return _from_numpy(dtype)


@functools.cache
def _from_numpy(dtype: Any) -> DType:
    import numpy as np

    given = np.dtype(dtype)
    if given.kind in "OUST":
        return DType.string
    for candidate in DType:
        if given.name in (candidate.name, candidate.extended):
            return candidate
    raise ValueError(f"numpy dtype {given} has no ONNX element type")
