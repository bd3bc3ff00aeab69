"""Helper functions for ONNX models."""
