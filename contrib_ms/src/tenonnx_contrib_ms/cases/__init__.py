"""Conformance cases: every module here declares, per op, how its inputs and attributes are drawn."""

from tenonnx_testing import unwritten

UNWRITTEN = """
    PackedSparseAttentionIndexer SparseAttentionIndexer
"""

unwritten("com.microsoft", UNWRITTEN.split(), reason="not written yet: those that onnxruntime runs on CPUs came first")
