"""The backend protocol of ONNX (``prepare``, ``run_model`` ...), provided by an installed package."""

from tenonnx.registry.namespace import flat_namespace

__getattr__, __dir__ = flat_namespace(__name__)
