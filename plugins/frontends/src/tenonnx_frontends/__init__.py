"""What front ends of frameworks share, beside ``tenonnx.extend.frontends``.

Dims and names come in the forms that every front end takes (``read_dims``, ``named_axes``, ``chosen_names``), the
source is asked at the sizes that ``sizes_to_compare`` tells (``verify_calls``), and refusals name lines of the user's
code (``UserLines``). Packages add to the tables of rules by ``added_rule``.
"""

from tenonnx_frontends.dims import (
    Dims,
    batched,
    named_axes,
    read_dims,
    resized,
    sizes_of,
    sizes_to_compare,
    unknown_dims,
)
from tenonnx_frontends.lines import UserLines, line
from tenonnx_frontends.names import chosen_names, joined, output_names, path_parts
from tenonnx_frontends.rules import added_rule, guarded_rule
from tenonnx_frontends.verification import SourceCall, verify_calls

__all__ = [
    "Dims",
    "SourceCall",
    "UserLines",
    "added_rule",
    "batched",
    "chosen_names",
    "guarded_rule",
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
