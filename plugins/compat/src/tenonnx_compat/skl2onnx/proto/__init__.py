"""Opset versions."""

from onnx import defs
from onnx import onnx_pb as onnx_proto

__all__ = ["get_latest_tested_opset_version", "get_opset_number_from_onnx", "onnx_proto"]


def get_opset_number_from_onnx() -> int:
    """The latest version of ``ai.onnx`` in the package onnx."""
    return int(defs.onnx_opset_version())


def get_latest_tested_opset_version() -> int:
    """The default version of ``ai.onnx`` of a conversion."""
    return min(22, get_opset_number_from_onnx())
