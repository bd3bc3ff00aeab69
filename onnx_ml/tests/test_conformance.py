from tenonnx.testing import conformance

test = conformance("tenonnx-onnx-ml")
