"""The interfaces of other ONNX tools, implemented by tenonnx.

Each module has the name of a tool, or of the part that is used most: ``onnxsim``, ``onnxslim``, ``version_converter``,
``quantization`` of onnxruntime, ``skl2onnx``, ``torch_onnx``, ``onnx2torch``, ``tf2onnx``, and ``training`` of
onnxruntime-training. ``python -m tenonnx_compat run SCRIPT`` runs a script with its imports of these tools replaced by
this package.
"""

from tenonnx_compat.refusal import CompatWarning, NotSupported

__all__ = ["CompatWarning", "NotSupported"]
