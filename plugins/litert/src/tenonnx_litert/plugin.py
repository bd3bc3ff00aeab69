"""Registration of the modules that define builtin operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenonnx.extend import hookimpl

if TYPE_CHECKING:
    from tenonnx.extend import Registry


@hookimpl
def register_ops(registry: Registry) -> None:
    registry.add_package("tenonnx_litert.builtins")
