"""What a front end or an exporter is made of: reading into a graph, and writing one.

A reader builds a ``Graph``: with inputs, variables, and ops called on their values or within ``graph.building()``.
"""

from tenonnx.formats.export import ExportConfig, PostExportHook, Report, export, prepare
from tenonnx.formats.files import check_output
from tenonnx.formats.loaders import Frontend
from tenonnx.formats.onnx.functions import Function
from tenonnx.formats.onnx.streaming import LARGEST_MESSAGE, write_stream
from tenonnx.formats.onnx.tensors import array_to_proto
from tenonnx.formats.onnx.writer import to_model
from tenonnx.formats.safetensors import Tensor, read_tensors, write_tensors
from tenonnx.graph.training import TrainingState

__all__ = [
    "LARGEST_MESSAGE",
    "ExportConfig",
    "Frontend",
    "Function",
    "PostExportHook",
    "Report",
    "Tensor",
    "TrainingState",
    "array_to_proto",
    "check_output",
    "export",
    "prepare",
    "read_tensors",
    "to_model",
    "write_stream",
    "write_tensors",
]
