"""Output format of ``torch.export``: an exported program with parameters and dynamic dims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenonnx.extend import Graph

title = "PyTorch exported program"

runtime = "torch"


def write(graph: Graph, path: Path) -> Sequence[str]:
    """Write an archive for ``torch.export.load``. Raises ``UnsupportedOp`` and ``NotRepresentable``."""
    import torch

    from tenonnx_torch.exported_program import exported

    program, limits = exported(graph)
    torch.export.save(program, path)
    return limits


def open(path: Path, graph: Graph) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Load the module of the file as a function of feeds by name."""
    import torch

    from tenonnx_torch.values import to_arrays, to_contents

    module = torch.export.load(path).module()
    inputs, outputs = ([value.name for value in values] for values in (graph.inputs, graph.outputs))

    def run(feeds: Mapping[str, Any]) -> dict[str, Any]:
        with torch.no_grad():
            found = module(*(to_contents(feeds[name]) for name in inputs))
        results = found if isinstance(found, tuple) else (found,)
        return dict(zip(outputs, map(to_arrays, results), strict=True))

    return run
