"""Probing: which ops, versions, element types and attributes a consumer of ONNX files computes rightly."""
