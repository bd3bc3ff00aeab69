from tenonnx.testing import conformance

test = conformance("tenonnx-contrib-ms")
