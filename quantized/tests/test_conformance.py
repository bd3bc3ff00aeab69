from tenonnx.testing import conformance

test = conformance("tenonnx-quantized")
