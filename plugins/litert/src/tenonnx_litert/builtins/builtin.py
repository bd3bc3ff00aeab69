"""Definition of builtin operators."""

from __future__ import annotations

from typing import Any

import tenonnx_standard as ops
from tenonnx.extend import DType, Op, Value, op

DOMAIN = "tflite"

#: The table of options of each op in a file, by the op's name.
OPTIONS: dict[str, str] = {}


def builtin(name: str, options: str = "", **keywords: Any) -> Any:
    """Define the builtin operator ``name`` by its body; ``options`` is the table of its attributes in a file."""

    def define(function: Any) -> Op[Any]:
        OPTIONS[name] = options
        return op(name, domain=DOMAIN, since=1, **keywords)(function)

    return define


def as_int64(value: Value) -> Value:
    """Positions, sizes or axes as ONNX takes them."""
    return value if value.dtype is DType.int64 else ops.cast(value, to=DType.int64)


def activated(value: Value, function: str) -> Value:
    """``value`` after a fused activation function of the schema."""
    if function == "RELU":
        return ops.relu(value)  # type: ignore[no-any-return]
    if function == "RELU6":
        return ops.clip(value, 0.0, 6.0)  # type: ignore[no-any-return]
    if function == "RELU_N1_TO_1":
        return ops.clip(value, -1.0, 1.0)  # type: ignore[no-any-return]
    if function == "TANH":
        return ops.tanh(value)  # type: ignore[no-any-return]
    return value
