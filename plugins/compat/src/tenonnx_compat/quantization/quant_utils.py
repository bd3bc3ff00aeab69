"""Enumerations of quantization modes, formats and types, and loading of models."""

from __future__ import annotations

import os
from enum import Enum
from typing import TYPE_CHECKING, Self

from onnx import TensorProto

from tenonnx_compat.models import graph_of, message_of

if TYPE_CHECKING:
    import onnx


class _Named(Enum):
    def __str__(self) -> str:
        return self.name

    @classmethod
    def from_string(cls, name: str) -> Self:
        """The member of this name. Raises ``ValueError`` for an unknown name."""
        try:
            return cls[name]
        except KeyError:
            raise ValueError(name) from None


class QuantizationMode(_Named):
    """Quantization modes: dynamic ranges of activations at run time, or static ranges from calibration."""

    IntegerOps = 0
    QLinearOps = 1


class QuantFormat(_Named):
    """Format of a quantized model: QOperator ops, or float ops between QuantizeLinear and DequantizeLinear (QDQ)."""

    QOperator = 0
    QDQ = 1


class QuantType(_Named):
    """Types of quantized values."""

    QInt8 = 0
    QUInt8 = 1
    QFLOAT8E4M3FN = 2
    QInt16 = 3
    QUInt16 = 4
    QInt4 = 5
    QUInt4 = 6

    @property
    def tensor_type(self) -> int:
        """The element type of ONNX."""
        return int(TensorProto.DataType.Value(self.name.removeprefix("Q").upper()))


def load_model_with_shape_infer(model_path: str | os.PathLike[str]) -> onnx.ModelProto:
    """Load a model with the types and shapes of all values."""
    return message_of(graph_of(model_path))
