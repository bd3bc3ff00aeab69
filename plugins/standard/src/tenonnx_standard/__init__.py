"""The ai.onnx operators.

Importing any of them gives Python's operators on values (``+``, ``[]`` ...) their meaning.
"""

from tenonnx_standard import operators as operators
