"""Test of dynamic dims: each runs at another size, with the others unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tenonnx.errors import InvalidCall, InvalidFeed, OutOfTime, TenonnxError
from tenonnx.graph.graph import Graph, Value
from tenonnx.graph.types import TensorType
from tenonnx.op.graph_inference import infer
from tenonnx.op.op import Op
from tenonnx.transforms.rewrite import copy_graph
from tenonnx_convert.input_dims import nodes_with_sizes, set_dims
from tenonnx_convert.options import BATCH, ConvertConfig
from tenonnx_convert.verifying.generate import InputShapes, generate_feeds
from tenonnx_convert.verifying.sizes import feasible_feeds
from tenonnx_run.compare import compare
from tenonnx_run.compiling import compile_graph

#: Number of summands assumed for rounding differences between a batch and a sample.
_TERMS = 4096

#: Number of sizes tried for a dim that depends on others, such as a mask as long as the tokens.
_ATTEMPTS = 12


def feeds_at_other_sizes(
    graph: Graph, old_sizes: Mapping[str, int], seed: int, input_shapes: InputShapes
) -> dict[str, dict[str, Any]]:
    """Inputs at which a graph runs, for each dynamic dim with another size of it.

    Other dims keep their old sizes, or change with it if the graph requires that. Raises ``InvalidCall`` naming the
    node that requires the old size.
    """
    typed = copy_graph(graph)
    infer(typed, strict=False)
    for node, symbol in nodes_with_sizes(typed, old_sizes):
        old = old_sizes[symbol]
        raise _refused(symbol, old, f"{node.title} has the size {old} as a constant")
    program = compile_graph(graph, "numpy")
    return {symbol: _feeds(graph, program, symbol, old_sizes, seed, input_shapes) for symbol in old_sizes}


def _feeds(
    graph: Graph, program: Any, symbol: str, old_sizes: Mapping[str, int], seed: int, input_shapes: InputShapes
) -> dict[str, Any]:
    old = old_sizes[symbol]
    first: TenonnxError | None = None
    for size in (2 * old, old + 1):
        try:
            feeds = generate_feeds(graph, seed, input_shapes, {**old_sizes, symbol: size})
            program(feeds)
            return feeds
        except OutOfTime:
            raise
        except TenonnxError as error:
            first = first or error
    assert first is not None
    if len(old_sizes) > 1:
        try:
            return feasible_feeds(
                graph, program, seed, input_shapes, {symbol: old}, least=old_sizes, attempts=_ATTEMPTS
            )[0]
        except InvalidFeed:
            pass
    raise _refused(symbol, old, str(first)) from first


def _refused(symbol: str, old: int, given: str) -> InvalidCall:
    return InvalidCall(
        f'cannot make the dim "{symbol}" dynamic: the model runs only where it is {old}',
        given=given,
        do="leave the number, or edit that node",
    )


def check_batch(graph: Graph, options: ConvertConfig) -> None:
    """Raise ``TenonnxError`` unless a graph supports the dynamic batch in the ``free_dims`` of ``options``."""
    freed = set_dims(graph, options)
    firsts = [value.shape[0] for value in graph.inputs if BATCH in options.free_dims.get(value.name, {}).values()]
    old = next((size for size in firsts if isinstance(size, int)), None)
    if options.verify is False or old is None:
        return
    feeds = feeds_at_other_sizes(freed, {BATCH: old}, options.seed, options.input_shapes)[BATCH]
    compare_samples(graph, freed, feeds, BATCH, old)


def compare_samples(original: Graph, freed: Graph, feeds: Mapping[str, Any], symbol: str, old: int) -> None:
    """Raise ``InvalidCall`` unless outputs of a batch equal those of ``original`` for its samples, ``old`` at a time.

    Outputs whose first dim is not the batch, and random outputs, are not compared.
    """
    if any(isinstance(node.op, Op) and not node.op.pure for node in original.walk()):
        return
    batched = {value.name for value in freed.inputs if _begins_with(value, symbol)}
    size = next(iter(feeds[name].shape[0] for name in batched))
    program = compile_graph(original, "numpy")
    parts = [
        program({name: each[start : start + old] if name in batched else each for name, each in feeds.items()})
        for start in range(0, size - size % old, old)
    ]
    typed = copy_graph(freed)
    infer(typed, strict=False)
    whole = compile_graph(freed, "numpy")(feeds)
    for value in typed.outputs:
        if _begins_with(value, symbol) and isinstance(whole[value.name], np.ndarray):
            expected = np.concatenate([part[value.name] for part in parts])
            found = compare(whole[value.name][: len(expected)], expected, accumulation=_TERMS)
            if not found.equal:
                raise InvalidCall(
                    "the samples of a batch depend on each other",
                    given=f'output "{value.name}" of {size} samples at once and {old} at a time: {found.reason}',
                    do="keep the static batch",
                )


def _begins_with(value: Value, symbol: str) -> bool:
    shape = value.type.shape if isinstance(value.type, TensorType) else None
    return bool(shape and str(shape[0]) == symbol)
