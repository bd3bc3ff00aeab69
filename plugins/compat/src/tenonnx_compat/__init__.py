"""The interfaces of other ONNX tools, implemented by tenonnx.

Each module is named after a tool or its most used part: ``onnxsim``, ``onnxslim``, ``version_converter``,
``quantization`` of onnxruntime, ``skl2onnx``, ``torch_onnx``, ``onnx2torch``, ``tf2onnx``, and ``training`` of
onnxruntime-training. ``python -m tenonnx_compat run SCRIPT`` runs a script with its imports of these tools redirected
to this package.
"""

from tenonnx_compat.refusal import CompatWarning, NotSupported

__all__ = ["CompatWarning", "NotSupported"]
