"""Mixed precision: matrix products and convolutions of narrow numbers, everything else as it is."""

from __future__ import annotations

from collections.abc import Sequence

from tenonnx.extend import DType, Graph, Value
from tenonnx.extend.transforms import Call, Rewriter
from tenonnx_standard.casting import cast
from tenonnx_standard.convolution import conv, conv_transpose
from tenonnx_standard.linear_algebra import gemm, matmul

_NARROWED = (matmul, gemm, conv, conv_transpose)


def narrowed(graph: Graph, precision: str) -> Graph:
    """``graph`` with the float32 operands of its products cast to ``precision``, and the results cast back."""
    if precision == "float32":
        return graph
    narrow = DType.of(precision)

    def decide(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
        if call.op not in _NARROWED or any(v is not None and v.dtype is not DType.float32 for v in call.inputs):
            return None
        inputs = [None if v is None else cast(v, to=narrow) for v in call.inputs]
        return (cast(call.op(*inputs, **call.attributes), to=DType.float32),)

    return Rewriter(graph, decide).run()
