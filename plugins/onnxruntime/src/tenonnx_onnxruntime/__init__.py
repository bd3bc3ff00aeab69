"""Runs graphs on onnxruntime."""
