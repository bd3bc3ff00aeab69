from tenonnx_testing import conformance

test = conformance("ai.onnx.preview.training")
