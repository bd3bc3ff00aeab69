"""The interface of onnxsim: ``simplify`` and the command ``onnxsim``."""

from typing import Any

from tenonnx_compat.onnxsim import model_info
from tenonnx_compat.onnxsim.exports import (
    export_coreml,
    export_safetensors,
    export_tflite,
    import_safetensors,
)
from tenonnx_compat.onnxsim.onnx_simplifier import main, simplify
from tenonnx_compat.onnxsim.transformers_export import export_transformers_model
from tenonnx_compat.refusal import refused

__all__ = [
    "export_coreml",
    "export_safetensors",
    "export_tflite",
    "export_transformers_model",
    "import_safetensors",
    "main",
    "model_info",
    "simplify",
]

__version__ = "0.8.1"

#: Prefixes of functions of onnxsim 0.8 that do not simplify.
_BEYOND = ("quantize_", "apply_", "export_", "import_", "prune_", "search_", "measure_", "calibrate", "check_")


def __getattr__(name: str) -> Any:
    if name.startswith(_BEYOND):
        return refused(f"onnxsim.{name}", "only simplification is translated", "tenonnx --help lists what there is")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
