"""The quantised operators of ai.onnx and com.microsoft."""
