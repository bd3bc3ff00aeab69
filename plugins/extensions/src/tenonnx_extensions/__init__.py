"""The ai.onnx.contrib operators, and tokenizers and image processors as graphs."""
