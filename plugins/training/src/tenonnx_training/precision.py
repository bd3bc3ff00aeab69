"""Mixed precision: matrix products and convolutions in half precision, everything else unchanged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import tenonnx as tx
from tenonnx.extend import DType, Graph, InvalidCall, Value
from tenonnx.extend.transforms import Call, Rewriter
from tenonnx_standard.casting import cast
from tenonnx_standard.contraction import einsum
from tenonnx_standard.convolution import conv, conv_transpose
from tenonnx_standard.linear_algebra import gemm, matmul
from tenonnx_training.config import for_another

_NARROWED = (matmul, gemm, conv, conv_transpose, einsum)


def narrowed(graph: Graph, precision: str, *, by_casts: bool = False) -> Graph:
    """``graph`` with the float32 operands of its products cast to ``precision``, and the results cast back.

    With ``by_casts`` the products are of float32, of operands that were cast to ``precision`` and back: the same
    numbers, for runtimes that multiply nothing narrower and leave out the rounding that goes with it. Raises
    ``InvalidCall`` where there is nothing to narrow.
    """
    if precision == "float32":
        return graph
    narrow, wide = DType.of(precision), DType.float32
    found = []

    def operand(value: Value) -> Value:
        rounded: Value = cast(value, to=narrow)
        return cast(rounded, to=wide) if by_casts else rounded

    def decide(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
        of_source = call.node is not None  # and no product that stands here for one of it
        if not of_source or call.op not in _NARROWED or {v.dtype for v in call.inputs if v is not None} != {wide}:
            return None
        found.append(call)
        product = call.op(*(None if v is None else operand(v) for v in call.inputs), **call.attributes)
        return (cast(cast(product, to=narrow) if by_casts else product, to=wide),)

    made = Rewriter(graph, decide).run()
    if not found:
        raise InvalidCall(
            f"precision {precision}: the model has no float32 matrix product or convolution",
            do="leave out precision",
        )
    return made


def must_cast(precision: str, backend: str, options: Mapping[str, Any]) -> bool:
    """Whether products are rounded to ``precision`` on a backend only where casts say so; it is tried on one product.

    Raises ``InvalidCall`` for a backend that rounds in neither way.
    """
    if precision == "float32":
        return False
    for by_casts in (False, True):
        if _rounds(precision, by_casts, backend, options):
            return by_casts
    raise InvalidCall(
        f"the backend does not compute in {precision}: it removes casts to it",
        given=f"backend={backend!r}",
        available="onnxruntime and numpy do",
        do="take another backend, or leave out precision",
    )


def _rounds(precision: str, by_casts: bool, backend: str, options: Mapping[str, Any]) -> bool:
    """Whether a product of numbers just above 1 comes out as that of 1: with their operands rounded, not it alone."""
    depth, step = 16, float(np.spacing(np.ones((), DType.of(precision).numpy)))
    graph = tx.Graph(opsets={"ai.onnx": 21})
    feeds = {"x": np.full((1, depth), 1 + 0.4 * step, np.float32)}
    feeds["w"] = feeds["x"].T
    graph.output("y", matmul(*(graph.input(name, "float32", array.shape) for name, array in feeds.items())))
    program = narrowed(graph, precision, by_casts=by_casts).compile(backend, **for_another(graph, options))
    product = program(feeds)["y"]
    return bool(product == depth)
