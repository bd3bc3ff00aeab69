"""The front end protocol: ``read`` returns a graph (``Frontend``), ``verifier`` compares one with its source.

What front ends of frameworks share, dims that vary, names, lines of the user's code and verification call by call, is
the package ``tenonnx-frontends``; ``tenonnx_testing.source_conformance`` checks all of it.
"""

from tenonnx.registry.namespace import flat_namespace

__getattr__, __dir__ = flat_namespace(__name__)
