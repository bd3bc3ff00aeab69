"""The ai.onnx operators, in one namespace: ``import tenonnx_standard as ops; ops.softmax(x)``.

A name is imported with its module when it is first used; ``__init__.pyi`` says where each is.
"""

from tenonnx.extend import flat_namespace, operator_loaders

__getattr__, __dir__ = flat_namespace(__name__)


def _define_operators() -> None:
    """Give Python's operators on values (``+``, ``[]`` ...) their meaning, and loops their gradient."""
    from tenonnx_standard import control_flow_gradients, operators  # noqa: F401


operator_loaders.insert(0, _define_operators)
