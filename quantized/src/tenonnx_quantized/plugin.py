"""Registration of every module of this package that defines operators, of ai.onnx and com.microsoft."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenonnx.extend import hookimpl, load_dtypes

if TYPE_CHECKING:
    from tenonnx.extend import Registry


@hookimpl
def register_tables(registry: Registry) -> None:
    registry.add_dtypes("ai.onnx", lambda: load_dtypes("tenonnx_quantized"))
    registry.add_aliases("ai.onnx", {"MatMulNBits": "com.microsoft::MatMulNBits"})  # some models omit the domain


@hookimpl
def register_ops(registry: Registry) -> None:
    registry.add_package("tenonnx_quantized", half_precision="needs_float32", layouts="laid_out", scales="scales")
