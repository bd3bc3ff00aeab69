"""Registration of the operators of com.microsoft, and of every other that a module of this package defines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenonnx.extend import hookimpl

if TYPE_CHECKING:
    from tenonnx.extend import Registry


@hookimpl
def register_ops(registry: Registry) -> None:
    registry.add_package("tenonnx_quantized", fusion="on_request", half_precision="needs_float32", scales="scales")
