"""Public names and the modules that define them."""

from tenonnx.formats.onnx.reader import read as read
from tenonnx.op.binding import UNFORESEEN as UNFORESEEN
from tenonnx.op.binding import pad as pad
from tenonnx.op.call import as_inputs as as_inputs
from tenonnx.op.call import constant_value as constant_value
from tenonnx.op.dispatch import apply as apply
from tenonnx.op.dtypes import type_code as type_code
from tenonnx.op.evaluate import Evaluator as Evaluator
from tenonnx.op.evaluate import evaluate_graph as evaluate_graph
from tenonnx.op.evaluate import type_of as type_of
from tenonnx.op.infer import infer_by_body as infer_by_body
from tenonnx.op.versioned_signature import VersionedSignature as VersionedSignature
from tenonnx.op.versioned_signature import signature_at as signature_at
from tenonnx.op.versioned_signature import unbind_attributes as unbind_attributes
from tenonnx.registry.discovery import Plugin as Plugin
from tenonnx.registry.discovery import loaded as loaded
from tenonnx.registry.discovery import plugins as plugins
from tenonnx.registry.hints import provider as provider
from tenonnx.registry.registry import canonical_domain as canonical_domain
from tenonnx.registry.registry import default_registry as default_registry
from tenonnx.transforms.target import INTERNAL_DOMAIN as INTERNAL_DOMAIN
from tenonnx_run.compare import compare as compare
from tenonnx_run.tolerance import Tolerance as Tolerance
