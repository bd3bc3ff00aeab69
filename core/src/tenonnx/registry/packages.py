"""The providing package of each custom domain, in the metadata of a model."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from tenonnx.op.op import Op
from tenonnx.registry.hints import is_ours

if TYPE_CHECKING:
    from tenonnx.graph.graph import Graph

#: Key in ``metadata_props``: a JSON object from domains to a distribution and its version.
KEY = "tenonnx.packages"

_SOURCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99} [0-9][A-Za-z0-9.+!-]{0,49}")


def packages_in_use(graph: Graph) -> dict[str, str]:
    """The third-party packages of a graph's ops by domain; for unknown ops, those recorded in the file."""
    from tenonnx.registry.registry import default_registry

    registry = default_registry() if graph.registry is None else graph.registry
    said = packages_of(graph)
    found: dict[str, str] = {}
    for domain, op in dict.fromkeys((node.domain, node.op) for node in graph.walk()):
        if isinstance(op, Op) and op not in graph.functions.values():
            source = registry.source(op)
            if _SOURCE.fullmatch(source) and not is_ours(source.split(" ")[0]):
                found[domain] = source
        elif domain in said:
            found.setdefault(domain, said[domain])
    return dict(sorted(found.items()))


def packages_of(graph: Graph) -> dict[str, str]:
    """Packages recorded in a graph's metadata by an export."""
    try:
        said = json.loads(graph.metadata.get(KEY, "{}"))
    except (ValueError, RecursionError):
        return {}
    entries = said.items() if isinstance(said, dict) else ()
    return {domain: text for domain, text in entries if isinstance(text, str) and _SOURCE.fullmatch(text)}
