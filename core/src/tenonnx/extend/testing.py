"""What a test kit is made of: calls by the way that is asked for, the forms they have in files, and what is installed.

``Evaluator(body_of=op)`` computes by the body where there is a numpy rule, ``infer_by_body`` infers where there is a
type rule, ``signature_at`` says how a version writes an op, and ``compare`` how far programs are apart.
"""

from tenonnx.registry.namespace import flat_namespace

__getattr__, __dir__ = flat_namespace(__name__)
