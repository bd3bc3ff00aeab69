"""The backend protocol of ONNX (``prepare``, ``run_model`` ...), as an installed package adds it."""

from tenonnx.registry.namespace import flat_namespace

__getattr__, __dir__ = flat_namespace(__name__)
