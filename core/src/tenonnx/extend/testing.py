"""What a test kit is made of: calls by the way that is asked for, the forms they have in files, and what is installed.

``Evaluator(body_of=op)`` computes by the body where there is a numpy rule, ``infer_by_body`` infers where there is a
type rule, ``signature_at`` says how a version writes an op, and ``compare`` how far programs are apart.
"""

from tenonnx.checks.compare import compare
from tenonnx.checks.tolerance import Tolerance
from tenonnx.formats.onnx.reader import read
from tenonnx.op.binding import UNFORESEEN, pad
from tenonnx.op.call import as_inputs, constant_value
from tenonnx.op.composition import apply
from tenonnx.op.dtypes import type_code
from tenonnx.op.evaluate import Evaluator, evaluate_graph, type_of
from tenonnx.op.infer import infer_by_body
from tenonnx.op.versioned_signature import VersionedSignature, signature_at, spell_attributes
from tenonnx.registry.discovery import Plugin, plugins
from tenonnx.registry.hints import provider
from tenonnx.registry.registry import canonical_domain, default_registry
from tenonnx.transforms.target import INTERNAL_DOMAIN

__all__ = [
    "INTERNAL_DOMAIN",
    "UNFORESEEN",
    "Evaluator",
    "Plugin",
    "Tolerance",
    "VersionedSignature",
    "apply",
    "as_inputs",
    "canonical_domain",
    "compare",
    "constant_value",
    "default_registry",
    "evaluate_graph",
    "infer_by_body",
    "pad",
    "plugins",
    "provider",
    "read",
    "signature_at",
    "spell_attributes",
    "type_code",
    "type_of",
]
