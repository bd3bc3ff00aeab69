"""Running graphs; and, as ``tenonnx.backend`` itself, the backend protocol of ONNX (``onnx_protocol``)."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_PROTOCOL = ("is_compatible", "prepare", "run_model", "run_node", "supports_device", "with_backend")


def __getattr__(name: str) -> Any:
    if name not in _PROTOCOL:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.onnx_protocol"), name)
