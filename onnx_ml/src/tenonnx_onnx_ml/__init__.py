"""The ai.onnx.ml operators."""
