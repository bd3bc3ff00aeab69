"""Versions."""

from onnx import defs
from onnx import onnx_pb as onnx_proto

__all__ = ["get_latest_tested_opset_version", "get_opset_number_from_onnx", "onnx_proto"]


def get_opset_number_from_onnx() -> int:
    """The newest version of ``ai.onnx`` that the package onnx knows."""
    return int(defs.onnx_opset_version())


def get_latest_tested_opset_version() -> int:
    """The version of ``ai.onnx`` that a conversion has by default."""
    return min(22, get_opset_number_from_onnx())
