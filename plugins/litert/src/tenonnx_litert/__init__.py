"""LiteRT models (.tflite): the builtin operators as ops, a reader and a writer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenonnx_litert.signatures import convert_signatures

__all__ = ["convert_signatures"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tenonnx_litert.signatures import convert_signatures

    return convert_signatures
