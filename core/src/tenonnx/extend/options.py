"""Options shared by Python and the command line: fields of a dataclass, each with its flag and its help."""

from tenonnx.registry.namespace import flat_namespace

__getattr__, __dir__ = flat_namespace(__name__)
