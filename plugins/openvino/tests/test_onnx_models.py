"""The single-op models of the onnx package."""

from tenonnx_testing import onnx_conformance

test_onnx = onnx_conformance("openvino")
