from tenonnx.testing import conformance

test = conformance("ai.onnx.preview.training")
