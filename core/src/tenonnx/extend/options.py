"""Options of Python and of the command line, told once: fields of a dataclass, each with its flag and its help."""

from tenonnx.conversion.options import Option, option, options_of

__all__ = ["Option", "option", "options_of"]
