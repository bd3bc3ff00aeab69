"""The front end protocol: ``read`` returns a graph (``Frontend``), ``verifier`` compares one with its source.

The package ``tenonnx-frontends`` has the common parts of front ends for frameworks: dynamic dims, names, source
locations in the user's code, and verification call by call. ``tenonnx_testing.source_conformance`` tests a front end.
"""

from tenonnx.registry.namespace import flat_namespace

__getattr__, __dir__ = flat_namespace(__name__)
