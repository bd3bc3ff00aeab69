"""Building blocks of a test kit: calls, their representations in files, and installed plugins.

``Evaluator(body_of=op)`` computes with the body instead of a numpy rule, ``infer_by_body`` infers without a type rule,
``signature_at`` returns the signature of an op at a version, and ``compare`` compares results.
"""

from tenonnx.registry.namespace import flat_namespace

__getattr__, __dir__ = flat_namespace(__name__)
