"""Options shared by Python and the command line: fields of a dataclass with flag and help text."""

from tenonnx.registry.namespace import flat_namespace

__getattr__, __dir__ = flat_namespace(__name__)
