"""The ai.onnx operators."""
