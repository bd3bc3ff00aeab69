"""Export Hugging Face transformers models as folders of ONNX files (``export``), verified against the model."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenonnx_transformers.exporting import export
    from tenonnx_transformers.report import Report

__all__ = ["Report", "export"]

_PLACES = {"Report": "report", "export": "exporting"}


def __getattr__(name: str) -> Any:
    """Import a public name on first use, since importing transformers takes seconds."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
