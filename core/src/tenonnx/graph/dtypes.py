"""Element types of tensors, numbered as ``TensorProto.DataType`` numbers them."""

from __future__ import annotations

import builtins
import enum
import functools
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


class DType(enum.IntEnum):
    """One ONNX element type. As an int it is the ``TensorProto.DataType`` code, so it can be an attribute value."""

    undefined = 0
    float32 = 1
    uint8 = 2
    int8 = 3
    uint16 = 4
    int16 = 5
    int32 = 6
    int64 = 7
    string = 8
    bool = 9
    float16 = 10
    float64 = 11
    uint32 = 12
    uint64 = 13
    complex64 = 14
    complex128 = 15
    bfloat16 = 16
    float8e4m3fn = 17
    float8e4m3fnuz = 18
    float8e5m2 = 19
    float8e5m2fnuz = 20
    uint4 = 21
    int4 = 22
    float4e2m1 = 23
    float8e8m0 = 24
    uint2 = 25
    int2 = 26
    float6e2m3 = 27
    float6e3m2 = 28

    __hash__ = int.__hash__  # that of an enum looks up its name

    def __str__(self) -> str:
        return self.name

    @property
    def numpy(self) -> np.dtype[Any]:
        """The numpy dtype of arrays of this type: extended types are those of ``ml_dtypes``, strings are objects."""
        return _numpy_dtype(self)

    @property
    def bits(self) -> int:
        """Bits of one element in ONNX's packed form; 0 for strings."""
        return _BITS[self]

    @property
    def is_float(self) -> builtins.bool:
        return self in _FLOATS

    @property
    def is_integer(self) -> builtins.bool:
        return self in _INTEGERS

    @property
    def is_signed(self) -> builtins.bool:
        return self in _FLOATS or self in _SIGNED or self in _COMPLEX

    @property
    def is_complex(self) -> builtins.bool:
        return self in _COMPLEX

    @property
    def is_numeric(self) -> builtins.bool:
        return self in _FLOATS or self in _INTEGERS or self in _COMPLEX

    @property
    def first_opset(self) -> int:
        """The version of ai.onnx whose ops first knew the type."""
        return _FIRST[self][0] if self in _FIRST else 1

    @property
    def first_ir_version(self) -> int:
        """The IR version that files need to hold the type."""
        return _FIRST[self][1] if self in _FIRST else 1

    @classmethod
    def of(cls, dtype: Any) -> DType:
        """The element type of a numpy dtype, dtype name, ONNX code or another ``DType``.

        Raises ``ValueError`` for a dtype that ONNX does not have.
        """
        if isinstance(dtype, cls):
            return dtype
        if isinstance(dtype, int):
            return cls(dtype)
        if isinstance(dtype, str) and dtype in cls.__members__:
            return cls[dtype]
        return _from_numpy(dtype)


_FLOATS = frozenset(d for d in DType if d.name.startswith(("float", "bfloat")))
_SIGNED = frozenset(d for d in DType if d.name.startswith("int"))
_INTEGERS = _SIGNED | frozenset(d for d in DType if d.name.startswith("uint"))
_COMPLEX = frozenset({DType.complex64, DType.complex128})
_BITS = {d: int(re.search(r"\d+", d.name + " 0")[0]) for d in DType} | {DType.bool: 8}  # type: ignore[index]

#: The opset and the IR version (onnx.in.proto, enum Version) that types came with that were not there from the start.
_FIRST = {
    DType.bfloat16: (13, 4),
    DType.float8e4m3fn: (19, 9),
    DType.float8e4m3fnuz: (19, 9),
    DType.float8e5m2: (19, 9),
    DType.float8e5m2fnuz: (19, 9),
    DType.uint4: (21, 10),
    DType.int4: (21, 10),
    DType.float4e2m1: (23, 11),
    DType.float8e8m0: (24, 12),
    DType.uint2: (25, 13),
    DType.int2: (25, 13),
    DType.float6e2m3: (28, 14),
    DType.float6e3m2: (28, 14),
}

_ML_DTYPES = {
    DType.bfloat16: "bfloat16",
    DType.float8e4m3fn: "float8_e4m3fn",
    DType.float8e4m3fnuz: "float8_e4m3fnuz",
    DType.float8e5m2: "float8_e5m2",
    DType.float8e5m2fnuz: "float8_e5m2fnuz",
    DType.float8e8m0: "float8_e8m0fnu",
    DType.float4e2m1: "float4_e2m1fn",
    DType.float6e2m3: "float6_e2m3fn",
    DType.float6e3m2: "float6_e3m2fn",
    DType.uint4: "uint4",
    DType.int4: "int4",
    DType.uint2: "uint2",
    DType.int2: "int2",
}


@functools.cache
def _numpy_dtype(dtype: DType) -> np.dtype[Any]:
    import numpy as np

    if dtype is DType.string:
        return np.dtype(object)
    if dtype is DType.undefined:
        raise ValueError("an undefined element type has no numpy dtype")
    if dtype in _ML_DTYPES:
        import ml_dtypes

        extended: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _ML_DTYPES[dtype]))
        return extended
    plain: np.dtype[Any] = np.dtype(dtype.name)
    return plain


@functools.cache
def _from_numpy(dtype: Any) -> DType:
    import numpy as np

    given = np.dtype(dtype)
    if given.kind in "OUST":
        return DType.string
    for candidate in DType:
        if candidate.name == given.name or _ML_DTYPES.get(candidate) == given.name:
            return candidate
    raise ValueError(f"numpy dtype {given} has no ONNX element type")
