"""What a transform is made of: from one graph to another, and never into the one that is given.

``Rewriter(graph, decide).run()`` copies a graph and asks ``decide(rewriter, call)`` about every ``Call``: None keeps
it, values take its place, and ``rewriter.expand(call)`` gives those of its op's body. ``bind(node)`` gives a node's
inputs and attributes by today's names, ``decompose`` keeps what a consumer knows. A transform that reads contents is
marked ``@leaving_defaults``: it then sees no contents that a call may replace, those of initializers which are inputs,
too. One that is meant to change the numbers of a model is marked ``@changing("numbers")``, one that changes its inputs
or outputs ``@changing("interface")``: a conversion is else held to the numbers of the file as it was read.
"""

from tenonnx.graph.definitions import in_registry_of_graph
from tenonnx.graph.garbage import uncollected
from tenonnx.graph.names import near_names
from tenonnx.graph.types import substitute_type, unify_types
from tenonnx.op.binding import bind, foreseeing, invoke, known_op
from tenonnx.op.build import Builder
from tenonnx.op.call import constant_value, interpreting
from tenonnx.op.evaluate import Evaluator
from tenonnx.op.graph_inference import ensure_inferred, infer, infer_outputs
from tenonnx.op.infer import infer_call
from tenonnx.op.memo import attributes_key
from tenonnx.op.versioned_signature import same_attribute
from tenonnx.registry.registry import canonical_domain
from tenonnx.transforms.changing import changing
from tenonnx.transforms.decompose import decompose, inline_functions, refuse_opaque
from tenonnx.transforms.dims import fix_shapes
from tenonnx.transforms.extract import between, extract
from tenonnx.transforms.fold import LARGEST_RESULT, decompose_and_fold, fold, folding, share_of_parameters
from tenonnx.transforms.grad import grad, pullback
from tenonnx.transforms.learned import Learned, check_made_alike, learned
from tenonnx.transforms.legalize import Legalizer, allowed_at
from tenonnx.transforms.overridable import leaving_defaults, opened
from tenonnx.transforms.placing import behind, step_behind
from tenonnx.transforms.prune import drop_dead_nodes, needed_nodes, prune
from tenonnx.transforms.residuals import Demand, dependents
from tenonnx.transforms.retarget import retarget, retarget_to
from tenonnx.transforms.rewrite import ALLOWANCE, Call, Decision, Rewriter, copy_graph
from tenonnx.transforms.summary import LARGEST_MEASURED, weight_bytes
from tenonnx.transforms.target import INTERNAL_DOMAIN, target_for
from tenonnx.transforms.user_rules import apply_rules

__all__ = [
    "ALLOWANCE",
    "INTERNAL_DOMAIN",
    "LARGEST_MEASURED",
    "LARGEST_RESULT",
    "Builder",
    "Call",
    "Decision",
    "Demand",
    "Evaluator",
    "Learned",
    "Legalizer",
    "Rewriter",
    "allowed_at",
    "apply_rules",
    "attributes_key",
    "behind",
    "between",
    "bind",
    "canonical_domain",
    "changing",
    "check_made_alike",
    "constant_value",
    "copy_graph",
    "decompose",
    "decompose_and_fold",
    "dependents",
    "drop_dead_nodes",
    "ensure_inferred",
    "extract",
    "fix_shapes",
    "fold",
    "folding",
    "foreseeing",
    "grad",
    "in_registry_of_graph",
    "infer",
    "infer_call",
    "infer_outputs",
    "inline_functions",
    "interpreting",
    "invoke",
    "known_op",
    "learned",
    "leaving_defaults",
    "near_names",
    "needed_nodes",
    "opened",
    "prune",
    "pullback",
    "refuse_opaque",
    "retarget",
    "retarget_to",
    "same_attribute",
    "share_of_parameters",
    "step_behind",
    "substitute_type",
    "target_for",
    "uncollected",
    "unify_types",
    "weight_bytes",
]
