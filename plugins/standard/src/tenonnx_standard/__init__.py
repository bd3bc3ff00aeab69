"""The ai.onnx operators.

Importing any of them gives Python's operators on values (``+``, ``[]`` ...) their meaning, and loops their gradient.
"""

from tenonnx_standard import control_flow_gradients as control_flow_gradients
from tenonnx_standard import operators as operators
