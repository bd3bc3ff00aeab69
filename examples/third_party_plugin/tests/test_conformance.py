from tenonnx_testing import conformance

test = conformance("com.acme")
