"""Running models with the runtime of another Python environment; imports no package of this project."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any


def run(path: str, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Outputs of a file by name, computed by onnxruntime, or by OpenVINO if onnxruntime is not installed."""
    try:
        runtime = import_module("onnxruntime")
    except ImportError:
        return _by_openvino(path, feeds)
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))


def _by_openvino(path: str, feeds: Mapping[str, Any]) -> dict[str, Any]:
    compiled = import_module("openvino").compile_model(path, "CPU")
    return {output.get_any_name(): array for output, array in compiled(dict(feeds)).items()}
