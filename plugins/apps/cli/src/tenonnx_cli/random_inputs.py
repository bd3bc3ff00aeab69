"""Random contents for missing inputs of a command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tenonnx import Graph, Program
from tenonnx.tools import check_feeds, feasible_feeds
from tenonnx_cli.options import InputShapes
from tenonnx_cli.output import complain
from tenonnx_cli.printable import printable


def complete(
    graph: Graph, program: Program, given: Mapping[str, Any], seed: int, input_shapes: InputShapes
) -> tuple[dict[str, Any], dict[str, Any]]:
    """All feeds, completed with random inputs of matching sizes, and the outputs of ``program``."""

    def run(drawn: Mapping[str, Any]) -> dict[str, Any]:
        feeds = {**drawn, **given}
        check_feeds(graph.all_inputs, feeds)
        return program(feeds)

    missing = [value.name for value in graph.inputs if value.name not in given]
    if not missing:
        return dict(given), run({})
    shapes = {name: array.shape for name, array in given.items() if hasattr(array, "shape")} | input_shapes
    made, results, sizes = feasible_feeds(graph, run, seed, shapes)
    complain(f"random inputs from seed {seed}: {printable(', '.join(missing))} (--input name=file.npy sets the values)")
    if sizes:
        complain(f"note: random inputs were drawn with {', '.join(f'{name}={size}' for name, size in sizes.items())}")
    return {**made, **given}, results
