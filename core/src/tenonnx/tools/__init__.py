"""Building blocks of programs that show, run, convert and check models.

A name is imported with its module when it is first used, so that a command waits for nothing that it does not need;
``names.json`` says where each is.
"""

from tenonnx.registry.namespace import flat_namespace

__getattr__, __dir__ = flat_namespace(__name__)
