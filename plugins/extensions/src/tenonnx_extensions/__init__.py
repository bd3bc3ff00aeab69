"""The ai.onnx.contrib operators, and tokenizers as graphs of them."""
