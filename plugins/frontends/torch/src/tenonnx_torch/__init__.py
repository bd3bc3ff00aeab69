"""PyTorch: modules as graphs (``tx.load(module, *examples)``, ``export``), and graphs as modules (``module``)."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenonnx_torch.exporting import Exported, export
    from tenonnx_torch.network import Network, module

__all__ = ["Exported", "Network", "export", "module"]

_PLACES = {"Exported": "exporting", "Network": "network", "export": "exporting", "module": "network"}


def __getattr__(name: str) -> Any:
    """Import public names on first use: PyTorch takes seconds to import, and backends are inspected before that."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
