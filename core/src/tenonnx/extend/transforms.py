"""Building blocks of transforms: functions from a graph to a new graph.

``Rewriter(graph, decide).run()`` copies a graph and calls ``decide(rewriter, call)`` for every ``Call``: None keeps it,
values replace its outputs, and ``rewriter.expand(call)`` returns those of its op's body. ``bind(node)`` returns a
node's inputs and attributes by their newest names; ``decompose`` expands all ops that a consumer does not support. A
transform that reads contents is marked ``@leaving_defaults``, which hides the contents of initializers that are inputs,
as a call may replace them. A transform that changes a model's numbers is marked ``@changing("numbers")``, one that
changes its inputs or outputs ``@changing("interface")``; otherwise a conversion compares its result with the original
file.
"""

from tenonnx.registry.namespace import flat_namespace

__getattr__, __dir__ = flat_namespace(__name__)
