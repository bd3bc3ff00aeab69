"""Element types in onnxruntime: their names, numpy support, and the session options that they need."""

from __future__ import annotations

from tenonnx.extend import DType

#: Ops whose behavior the config entries of our sessions change compared with default sessions.
OPTIONED = frozenset(
    {
        "ConvInteger",
        "DequantizeLinear",
        "DynamicQuantizeLSTM",
        "DynamicQuantizeMatMul",
        "MatMulInteger",
        "MatMulIntegerToFloat",
        "MatMulNBits",
        "QAttention",
        "QGemm",
        "QLinearConv",
        "QLinearMatMul",
        "QuantizeLinear",
    }
)

FLOAT8 = (DType.float8e4m3fn, DType.float8e4m3fnuz, DType.float8e5m2, DType.float8e5m2fnuz)


def is_extended(dtype: DType) -> bool:
    """Whether numpy supports the element type only through ``ml_dtypes``."""
    return dtype.numpy.isbuiltin == 2


def dtype_of(name: str) -> DType:
    """The element type of a type as the runtime prints it, such as ``tensor(float)`` or ``seq(tensor(bfloat16))``."""
    element = name.rstrip(")").rpartition("(")[2]
    return DType[{"float": "float32", "double": "float64"}.get(element, element)]
