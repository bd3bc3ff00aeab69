"""Code shared by the front ends of frameworks, in addition to ``tenonnx.extend.frontends``.

Dims and names have the same forms in every front end (``read_dims``, ``named_axes``, ``chosen_names``). The source is
called at the sizes of ``sizes_to_compare`` (``SizedCalls``, ``verify_calls``). Errors name lines of the user's code
(``UserLines``). Packages register rules by ``added_rule``.
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
from tenonnx_frontends.files import open_below, read_below
from tenonnx_frontends.lines import UserLines, line
from tenonnx_frontends.names import chosen_names, joined, output_names, path_parts
from tenonnx_frontends.rules import added_rule, guarded_rule
from tenonnx_frontends.sized_calls import SizedCalls
from tenonnx_frontends.verification import (
    SourceCall,
    UnverifiedWarning,
    not_verified,
    one_line,
    verify_calls,
    warn_unverified,
)

__all__ = [
    "Dims",
    "SizedCalls",
    "SourceCall",
    "UnverifiedWarning",
    "UserLines",
    "added_rule",
    "batched",
    "chosen_names",
    "guarded_rule",
    "joined",
    "line",
    "named_axes",
    "not_verified",
    "one_line",
    "open_below",
    "output_names",
    "path_parts",
    "read_below",
    "read_dims",
    "resized",
    "sizes_of",
    "sizes_to_compare",
    "unknown_dims",
    "verify_calls",
    "warn_unverified",
]
