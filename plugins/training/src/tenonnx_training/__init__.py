"""Training of graphs: forward pass, backward pass and update in one graph of plain ops, for any backend."""

from tenonnx.extend import flat_namespace

__getattr__, __dir__ = flat_namespace(__name__)
