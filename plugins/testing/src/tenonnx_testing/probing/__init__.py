"""Probing: ops, versions, element types and attributes that a consumer of ONNX files computes correctly."""
