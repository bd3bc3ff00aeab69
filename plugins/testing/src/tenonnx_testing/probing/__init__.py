"""Probing: measure which ops, versions, element types and attributes a consumer of ONNX files computes correctly."""
