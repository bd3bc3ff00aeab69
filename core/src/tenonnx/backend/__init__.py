"""Running graphs; and, as ``tenonnx.backend`` itself, the backend protocol of ONNX, which is in ``tenonnx_testing``."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tenonnx.errors import installing

_PROTOCOL = ("is_compatible", "prepare", "run_model", "run_node", "supports_device", "with_backend")


def __getattr__(name: str) -> Any:
    if name not in _PROTOCOL:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if find_spec("tenonnx_testing") is None:
        raise AttributeError(
            f"{__name__}.{name} is in tenonnx-testing, which is not installed: {installing('tenonnx-testing')}"
        )
    return getattr(import_module("tenonnx_testing.onnx_protocol"), name)
