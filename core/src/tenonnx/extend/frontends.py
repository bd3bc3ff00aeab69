"""What a front end provides: ``read`` gives a graph (``Frontend``), ``verifier`` compares one with its source.

What front ends of frameworks share, dims that vary, names, lines of the user's code and verification call by call, is
the package ``tenonnx-frontends``; ``tenonnx_testing.source_conformance`` checks all of it.
"""

from tenonnx.checks.allowed import BY_TABLE, Allowed
from tenonnx.checks.verification import Verification
from tenonnx.loading import Frontend
from tenonnx.registry.discovery import check_takes

__all__ = ["BY_TABLE", "Allowed", "Frontend", "Verification", "check_takes"]
