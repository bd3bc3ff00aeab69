"""Building blocks of programs that display, run, convert and check models.

Names are imported lazily to keep commands fast; ``names.json`` maps each name to its module.
"""

from tenonnx.registry.namespace import flat_namespace

__getattr__, __dir__ = flat_namespace(__name__)
