"""Definition of builtin operators."""

from __future__ import annotations

from typing import Any

import tenonnx_standard as ops
from tenonnx.extend import DType, Op, Value, op

DOMAIN = "tflite"

#: Name of the options table in the schema, by op name.
OPTIONS: dict[str, str] = {}


def builtin(name: str, options: str = "", **keywords: Any) -> Any:
    """Define the builtin operator ``name`` by its body; ``options`` is the schema's table for its attributes."""

    def define(function: Any) -> Op[Any]:
        OPTIONS[name] = options
        return op(name, domain=DOMAIN, since=1, **keywords)(function)

    return define


def as_int64(value: Value) -> Value:
    """Cast positions, sizes or axes to int64, as ONNX requires."""
    return value if value.dtype is DType.int64 else ops.cast(value, to=DType.int64)


def activated(value: Value, function: str) -> Value:
    """Apply the fused activation ``function``, a name of the schema's ActivationFunctionType."""
    if function == "RELU":
        return ops.relu(value)  # type: ignore[no-any-return]
    if function == "RELU6":
        return ops.clip(value, 0.0, 6.0)  # type: ignore[no-any-return]
    if function == "RELU_N1_TO_1":
        return ops.clip(value, -1.0, 1.0)  # type: ignore[no-any-return]
    if function == "TANH":
        return ops.tanh(value)  # type: ignore[no-any-return]
    return value
