"""Where each name is defined; read by type checkers, and when one is first used."""

from tenonnx.conversion.conversion import Conversion as Conversion
from tenonnx.conversion.convert import convert as convert
from tenonnx.conversion.convert import export as export
from tenonnx.conversion.options import ConvertConfig as ConvertConfig
from tenonnx.conversion.options import ExportConfig as ExportConfig
from tenonnx.conversion.options import PostExportHook as PostExportHook
from tenonnx.conversion.report import Report as Report
from tenonnx.formats.files import check_output as check_output
from tenonnx.formats.onnx.functions import Function as Function
from tenonnx.formats.onnx.messages import message_of as message_of
from tenonnx.formats.onnx.streaming import LARGEST_MESSAGE as LARGEST_MESSAGE
from tenonnx.formats.onnx.streaming import write_stream as write_stream
from tenonnx.formats.onnx.tensors import array_to_proto as array_to_proto
from tenonnx.formats.onnx.types import write_type as write_type
from tenonnx.formats.onnx.writer import to_model as to_model
from tenonnx.formats.safetensors import Tensor as Tensor
from tenonnx.formats.safetensors import read_tensors as read_tensors
from tenonnx.formats.safetensors import write_tensors as write_tensors
from tenonnx.graph.training import PARAMETERS as PARAMETERS
from tenonnx.graph.training import Role as Role
from tenonnx.graph.training import TrainingState as TrainingState
from tenonnx.loading import Frontend as Frontend
from tenonnx.registry.discovery import Plugin as Plugin
from tenonnx.registry.discovery import being_imported as being_imported
from tenonnx.registry.discovery import loaded as loaded
from tenonnx.transforms.report import Change as Change
