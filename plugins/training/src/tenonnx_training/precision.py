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
    """``graph`` with float32 operands of matrix products and convolutions cast to ``precision``, and results cast back.

    ``by_casts``: operands are cast to ``precision`` and back, and the products stay in float32. That is for runtimes
    without half-precision kernels: they would compute in float32 and skip the rounding. Raises ``InvalidCall`` where
    there is nothing to cast.
    """
    if precision == "float32":
        return graph
    narrow, wide = DType.of(precision), DType.float32
    found = []

    def operand(value: Value) -> Value:
        rounded: Value = cast(value, to=narrow)
        return cast(rounded, to=wide) if by_casts else rounded

    def decide(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
        of_source = call.node is not None  # not one that this rewrite has made
        if not of_source or call.op not in _NARROWED or {v.dtype for v in call.inputs if v is not None} != {wide}:
            return None
        found.append(call)
        product = call.op(*(None if v is None else operand(v) for v in call.inputs), **call.attributes)
        return (cast(cast(product, to=narrow) if by_casts else product, to=wide),)

    lowered = Rewriter(graph, decide).run()
    if not found:
        raise InvalidCall(
            f"precision {precision}: the model has no float32 matrix product or convolution",
            do="leave out precision",
        )
    return lowered


def must_cast(precision: str, backend: str, options: Mapping[str, Any]) -> bool:
    """Whether a backend rounds products to ``precision`` only if casts are explicit; measured on one product.

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
    """Whether a product of numbers slightly above 1 is computed as that of ones, because operands are rounded."""
    depth, step = 16, float(np.spacing(np.ones((), DType.of(precision).numpy)))
    graph = tx.Graph(opsets={"ai.onnx": 21})
    feeds = {"x": np.full((1, depth), 1 + 0.4 * step, np.float32)}
    feeds["w"] = feeds["x"].T
    graph.output("y", matmul(*(graph.input(name, "float32", array.shape) for name, array in feeds.items())))
    program = narrowed(graph, precision, by_casts=by_casts).compile(backend, **for_another(graph, options))
    product = program(feeds)["y"]
    return bool(product == depth)
