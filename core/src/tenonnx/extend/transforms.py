"""Building blocks of transforms: functions from a graph to a new graph.

``Rewriter(graph, decide).run()`` copies a graph and asks ``decide(rewriter, call)`` about every ``Call``: None keeps
it, values take its place, and ``rewriter.expand(call)`` gives those of its op's body. ``bind(node)`` gives a node's
inputs and attributes by today's names, ``decompose`` keeps what a consumer knows. A transform that reads contents is
marked ``@leaving_defaults``: it then sees no contents that a call may replace, those of initializers which are inputs,
too. One that is meant to change the numbers of a model is marked ``@changing("numbers")``, one that changes its inputs
or outputs ``@changing("interface")``: a conversion is else held to the numbers of the file as it was read.
"""

from tenonnx.registry.namespace import flat_namespace

__getattr__, __dir__ = flat_namespace(__name__)
