from tenonnx.testing import conformance

test = conformance("com.acme")
