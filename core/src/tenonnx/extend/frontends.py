"""What a front end of a framework is made of, beside ``tenonnx.extend.formats``.

``read`` gives a graph (``Frontend``), ``verifier`` compares one with its source. Dims and names come in the forms that
every front end takes (``read_dims``, ``named_axes``, ``chosen_names``), the source is asked at the sizes that
``sizes_to_compare`` tells (``verify_calls``), and refusals name lines of the user's code (``UserLines``).
``tenonnx_testing.source_conformance`` checks all of it.
"""

from tenonnx.checks.allowed import BY_TABLE, Allowed
from tenonnx.checks.verification import Verification
from tenonnx.frontends.dims import (
    Dims,
    batched,
    named_axes,
    read_dims,
    resized,
    sizes_of,
    sizes_to_compare,
    unknown_dims,
)
from tenonnx.frontends.lines import UserLines, line
from tenonnx.frontends.names import chosen_names, joined, output_names, path_parts
from tenonnx.frontends.verification import SourceCall, verify_calls
from tenonnx.loading import Frontend

__all__ = [
    "BY_TABLE",
    "Allowed",
    "Dims",
    "Frontend",
    "SourceCall",
    "UserLines",
    "Verification",
    "batched",
    "chosen_names",
    "joined",
    "line",
    "named_axes",
    "output_names",
    "path_parts",
    "read_dims",
    "resized",
    "sizes_of",
    "sizes_to_compare",
    "unknown_dims",
    "verify_calls",
]
