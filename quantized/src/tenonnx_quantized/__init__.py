"""The quantized operators of ai.onnx and com.microsoft."""
