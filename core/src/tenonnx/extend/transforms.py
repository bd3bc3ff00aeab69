"""What a transform is made of: from one graph to another, and never into the one that is given.

``Rewriter(graph, decide).run()`` copies a graph and asks ``decide(rewriter, call)`` about every ``Call``: None keeps
it, values take its place, and ``rewriter.expand(call)`` gives those of its op's body. ``bind(node)`` gives a node's
inputs and attributes by today's names, ``decompose`` keeps what a consumer knows, ``respell`` puts the body of an op
wherever a graph computes the same by other words. A transform that reads contents is marked ``@leaving_defaults``: it
then sees no contents that a call may replace, those of initializers which are inputs, too.
"""

from tenonnx.op.binding import bind, invoke, known_op
from tenonnx.op.build import Builder
from tenonnx.op.call import interpreting
from tenonnx.op.graph_inference import infer
from tenonnx.op.infer import infer_call
from tenonnx.op.spelling import same_attribute
from tenonnx.transforms.common_subexpressions import merge_common_subexpressions
from tenonnx.transforms.decompose import decompose, refuse_opaque
from tenonnx.transforms.extract import between, extract
from tenonnx.transforms.fold import fold
from tenonnx.transforms.grad import grad, pullback
from tenonnx.transforms.overridable import leaving_defaults, opened
from tenonnx.transforms.prune import needed_nodes, prune
from tenonnx.transforms.residuals import Demand, dependents
from tenonnx.transforms.respell import respell
from tenonnx.transforms.retarget import retarget
from tenonnx.transforms.rewrite import Call, Rewriter, copy_graph
from tenonnx.transforms.user_rules import apply_rules

__all__ = [
    "Builder",
    "Call",
    "Demand",
    "Rewriter",
    "apply_rules",
    "between",
    "bind",
    "copy_graph",
    "decompose",
    "dependents",
    "extract",
    "fold",
    "grad",
    "infer",
    "infer_call",
    "interpreting",
    "invoke",
    "known_op",
    "leaving_defaults",
    "merge_common_subexpressions",
    "needed_nodes",
    "opened",
    "prune",
    "pullback",
    "refuse_opaque",
    "respell",
    "retarget",
    "same_attribute",
]
