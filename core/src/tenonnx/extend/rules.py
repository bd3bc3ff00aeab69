"""Import rules: replacements for nodes while a model is read (entry-point group ``tenonnx.rules``)."""

from tenonnx.registry.namespace import flat_namespace

__getattr__, __dir__ = flat_namespace(__name__)
