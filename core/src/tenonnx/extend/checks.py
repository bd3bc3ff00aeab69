"""Building blocks of comparisons: runtime values within tolerances, and the structure of a model."""

from tenonnx.registry.namespace import flat_namespace

__getattr__, __dir__ = flat_namespace(__name__)
