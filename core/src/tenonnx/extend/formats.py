"""What a front end or an exporter is made of: reading into a graph, and writing one.

A reader builds a ``Graph``: with inputs, variables, and ops called on their values or within ``graph.building()``.
"""

from tenonnx.registry.namespace import flat_namespace

__getattr__, __dir__ = flat_namespace(__name__)
