"""The LiteRT format: flatbuffers with the schema of TensorFlow Lite."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenonnx.extend import Graph

title = "LiteRT"

runtime = "ai_edge_litert"


def write(graph: Graph, path: Path) -> tuple[str, ...]:
    """Write a graph as builtin operators. Raises ``NotRepresentable`` naming every node that LiteRT cannot express."""
    from tenonnx_litert.conversion import signature_of
    from tenonnx_litert.running import KEY
    from tenonnx_litert.writing import contents

    path.write_bytes(contents({KEY: signature_of(graph)}))
    return ()


def annotate(path: Path, verdict: str) -> None:
    """Write the result of the verification into the metadata of a file."""
    from tenonnx_litert.writing import with_verification

    path.write_bytes(with_verification(path.read_bytes(), verdict))


def unrounded(graph: Graph) -> Graph | None:
    """``graph`` without the dynamic quantization that hybrid kernels apply per row; None if it has none."""
    from tenonnx_litert.qdq import without_dynamic_rounding

    return without_dynamic_rounding(graph)


def open(path: Path, graph: Graph) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Open the file in LiteRT's interpreter, in a separate process. Raises ``UnsupportedOp`` if it does not load."""
    from tenonnx_litert.running import KEY, opened, opened_signature
    from tenonnx_litert.state import first_contents, state_of

    if state := state_of(graph):
        return opened_signature(path, KEY, state, first_contents(graph, state))
    return opened(path, [v.name for v in graph.inputs], [v.name for v in graph.outputs])
