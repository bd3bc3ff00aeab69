"""Registration of the operators of ai.onnx: a file without those of com.microsoft imports no other module."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenonnx.extend import hookimpl, load_dtypes
from tenonnx_quantized import convolution, layouts, matrix, quantize  # noqa: F401 - layouts holds nothing but rules

if TYPE_CHECKING:
    from tenonnx.extend import Registry


@hookimpl
def register_tables(registry: Registry) -> None:
    registry.add_dtypes("ai.onnx", lambda: load_dtypes("tenonnx_quantized"))


@hookimpl
def register_ops(registry: Registry) -> None:
    registry.add_module(convolution, matrix, quantize)
