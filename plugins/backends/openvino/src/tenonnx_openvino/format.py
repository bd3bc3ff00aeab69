"""OpenVINO's intermediate representation: an XML file, and its weights in a .bin file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenonnx.extend import UnsupportedOp

if TYPE_CHECKING:
    from tenonnx.extend import Graph

title = "OpenVINO IR"

runtime = "openvino"


def write(graph: Graph, path: Path) -> tuple[str, ...]:
    """Write a graph without changing element types: float32 weights are not compressed. Raises ``UnsupportedOp``."""
    import openvino

    from tenonnx_openvino.conversion import converted

    openvino.save_model(converted(graph), path, compress_to_fp16=False)
    return ()


def open(path: Path, graph: Graph) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """The file on the CPU, in float32. Raises ``UnsupportedOp`` if OpenVINO cannot compile it."""
    from tenonnx_openvino.backend import PROPERTIES
    from tenonnx_openvino.conversion import core, shortened

    names = [value.name for value in graph.outputs]
    try:
        compiled = core().compile_model(core().read_model(path), "CPU", PROPERTIES)
    except RuntimeError as error:
        raise UnsupportedOp("OpenVINO does not compile its own file", given=shortened(error)) from error

    def run(feeds: Mapping[str, Any]) -> dict[str, Any]:
        found = compiled(dict(feeds))
        return {name: found[compiled.output(name)] for name in names}

    return run
