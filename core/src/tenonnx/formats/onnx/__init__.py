"""The ONNX format: protobuf models with inline or external tensors."""
