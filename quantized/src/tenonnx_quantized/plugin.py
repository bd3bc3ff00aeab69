"""Registration: every module of this package that defines operators."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

import tenonnx_quantized
from tenonnx.extend import hookimpl, load_dtypes

if TYPE_CHECKING:
    from tenonnx.registry.registry import Registry


@hookimpl
def register_ops(registry: Registry) -> None:
    for module in pkgutil.iter_modules(tenonnx_quantized.__path__):
        if module.name not in ("cases", "plugin"):
            registry.add_module(importlib.import_module(f"tenonnx_quantized.{module.name}"))
    registry.add_dtypes("ai.onnx", lambda: load_dtypes("tenonnx_quantized"))
