"""The ai.onnx operators, in one namespace: ``import tenonnx_standard as ops; ops.softmax(x)``.

A name is imported with its module when it is first used; ``__init__.pyi`` says where each is.
"""

from tenonnx.extend import flat_namespace

__getattr__, __dir__ = flat_namespace(__name__)
