"""What a comparison is made of: of contents by the one table of tolerances, and of the structure of a model."""

from tenonnx.registry.namespace import flat_namespace

__getattr__, __dir__ = flat_namespace(__name__)
