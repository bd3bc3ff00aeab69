"""Building blocks of a test kit: calls, their forms in files, and installed plugins.

``Evaluator(body_of=op)`` computes by the body where there is a numpy rule, ``infer_by_body`` infers where there is a
type rule, ``signature_at`` says how a version writes an op, and ``compare`` how far programs are apart.
"""

from tenonnx.registry.namespace import flat_namespace

__getattr__, __dir__ = flat_namespace(__name__)
