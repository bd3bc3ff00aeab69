"""PyTorch: modules as graphs (``tx.load(module, *examples)``, ``export``), and graphs as modules (``module``)."""

from tenonnx_torch.exporting import Exported, export
from tenonnx_torch.network import Network, module

__all__ = ["Exported", "Network", "export", "module"]
