"""What a front end or an exporter is made of: reading into a graph, and writing one.

A reader builds a ``Graph``: with inputs, variables, and ops called on their values or within ``graph.building()``.
"""

from tenonnx.conversion.conversion import Conversion
from tenonnx.conversion.convert import convert, export
from tenonnx.conversion.options import ConvertConfig, ExportConfig, PostExportHook
from tenonnx.conversion.report import Report
from tenonnx.formats.files import check_output
from tenonnx.formats.onnx.functions import Function
from tenonnx.formats.onnx.messages import message_of
from tenonnx.formats.onnx.streaming import LARGEST_MESSAGE, write_stream
from tenonnx.formats.onnx.tensors import array_to_proto
from tenonnx.formats.onnx.types import write_type
from tenonnx.formats.onnx.writer import to_model
from tenonnx.formats.safetensors import Tensor, read_tensors, write_tensors
from tenonnx.graph.training import PARAMETERS, Role, TrainingState
from tenonnx.loading import Frontend
from tenonnx.registry.discovery import Plugin, being_imported, loaded
from tenonnx.transforms.report import Change

__all__ = [
    "LARGEST_MESSAGE",
    "PARAMETERS",
    "Change",
    "Conversion",
    "ConvertConfig",
    "ExportConfig",
    "Frontend",
    "Function",
    "Plugin",
    "PostExportHook",
    "Report",
    "Role",
    "Tensor",
    "TrainingState",
    "array_to_proto",
    "being_imported",
    "check_output",
    "convert",
    "export",
    "loaded",
    "message_of",
    "read_tensors",
    "to_model",
    "write_stream",
    "write_tensors",
    "write_type",
]
