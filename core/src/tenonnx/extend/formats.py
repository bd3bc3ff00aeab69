"""Building blocks of readers and writers.

A reader builds a ``Graph``: with inputs, variables, and ops called on their values or within ``graph.building()``.
"""

from tenonnx.registry.namespace import flat_namespace

__getattr__, __dir__ = flat_namespace(__name__)
