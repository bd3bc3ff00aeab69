from tenonnx_testing import conformance

test = conformance("tenonnx-acme")
