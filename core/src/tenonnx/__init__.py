"""Read, edit, run, differentiate and retarget ONNX models.

Names are loaded on first use, so that importing the package, and asking the command line for help, costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tenonnx.api import *  # noqa: F403


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if name == "limits":  # a module below all others, which these import from here
        return import_module("tenonnx.limits")
    api = import_module("tenonnx.api")

    if name not in api.__all__:
        raise AttributeError(f"module 'tenonnx' has no attribute {name!r}; it has {', '.join(api.__all__)}")
    return getattr(api, name)


def __dir__() -> list[str]:
    api = import_module("tenonnx.api")

    return [*api.__all__, "__version__"]
