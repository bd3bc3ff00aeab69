"""Lowering of a graph to builtin operators."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Collection, Sequence
from typing import Any, ClassVar

import tenonnx_standard as ops
from tenonnx.extend import DType, Graph, NotRepresentable, TensorType, TypeMismatch, Value
from tenonnx.extend.backends import Target
from tenonnx.extend.transforms import Call, Retargeting, Rewriter, Ways, fold, prune, retarget, retarget_to
from tenonnx_litert.builtins.builtin import DOMAIN
from tenonnx_litert.fusing import fused
from tenonnx_litert.integers import with_quantization_propagated
from tenonnx_litert.lowerings import LOWERINGS, SPATIAL
from tenonnx_litert.lowerings.recurrent import lstm_layer
from tenonnx_litert.qdq import is_quantized, with_builtins
from tenonnx_litert.quantized_tensors import quantized_tensors
from tenonnx_litert.state import Signature, first_contents, state_of, with_state_open
from tenonnx_optimize.fusion import fuse
from tenonnx_optimize.layouts import channels_first
from tenonnx_optimize.simplification import simplify
from tenonnx_standard.lowerings import LOWERINGS as APPROXIMATIONS

#: Floating-point types without kernels; computed in float32.
_HALF = (DType.float16, DType.bfloat16)


class LiteRT:
    """Limits of LiteRT: only the builtin operators."""

    name = "LiteRT"
    opsets: ClassVar[dict[str, int | None]] = {DOMAIN: 1}
    ir_version = None
    dtypes = None
    ops: ClassVar[dict[tuple[str, str], Any]] = {}
    unspecified: frozenset[str] = frozenset()
    file_size = None
    external_data = True

    def nearest(self, domain: str, version: int, ops: Collection[tuple[str, str]] = ()) -> int:
        return 1

    def versions(self, domain: str) -> str:
        return "1"

    def problem(self, *_: Any) -> str:
        return ""

    def interface_problem(self, what: str, value: Value) -> tuple[str, str]:
        if not isinstance(value.type, TensorType):
            return f"LiteRT has no {what}s of type {value.type}", "take tensors"
        return "", ""

    def ways(self, retargeting: Retargeting, call: Call, ways: Ways) -> Ways:
        """Lowerings of this package, followed by those that every target has."""
        first = [way for way in ways if way[0] == "folded"]
        if call.op is ops.identity and call.node is not None:
            return [*first, ("dropped", lambda: (call.inputs[0],))]
        own = [("lowered", functools.partial(retargeting.lowered, call, each)) for each in LOWERINGS.get(call.op, ())]
        wide = [("cast", functools.partial(_in_float32, retargeting, call))] if _is_half(call) else []
        others = [way for way in ways if way[0] != "folded"]
        if not any(op is call.op for op, _, _ in retargeting.context.lowering):  # some lowerings are circular
            for _, each in APPROXIMATIONS.get(call.op, ()):
                others.append(("lowered", functools.partial(retargeting.lowered, call, each)))
        return [*first, *wide, *own, *others]


def _is_half(call: Call) -> bool:
    kinds = [v.dtype for v in call.inputs if v is not None and isinstance(v.type, TensorType)]
    return call.op is not ops.cast and any(kind in _HALF for kind in kinds)


def _in_float32(retargeting: Retargeting, call: Call) -> Sequence[Value | None]:
    """Compute a half-precision call in float32, and cast the results back to their types."""
    inputs = [
        ops.cast(v, to=DType.float32) if v is not None and isinstance(v.type, TensorType) and v.dtype in _HALF else v
        for v in call.inputs
    ]
    known = [None if k is None else k.type for k in call.known]
    results = retargeting.call(call.op, inputs, call.attributes, call.outputs)
    return [
        ops.cast(v, to=k.dtype) if v is not None and isinstance(k, TensorType) and k.dtype in _HALF else v
        for v, k in zip(results, known, strict=False)
    ]


def signature_of(graph: Graph) -> Signature:
    """Lower ``graph`` to builtin operators, with its state. Raises the errors of ``builtin_graph`` and ``state_of``."""
    state = state_of(graph)
    source = with_state_open(graph, state)
    return Signature(builtin_graph(source), source, state, first_contents(graph, state))


def builtin_graph(graph: Graph) -> Graph:
    """Lower ``graph`` to ops of the domain ``tflite``.

    Raises ``NotRepresentable`` naming every node that cannot be expressed, with the reason.
    """
    newest = retarget(graph, opset_version=max(26, graph.opsets.get("ai.onnx", 1)))
    if is_quantized(newest):
        with contextlib.suppress(NotRepresentable):  # falls back to computing the dequantized values
            lowered = fused(with_quantization_propagated(_lowered(with_builtins(newest))))
            quantized_tensors(lowered)
            return lowered
    return _lowered(newest)


def _lowered(graph: Graph) -> Graph:
    rewritten = fuse(simplify(graph), [ops.gelu, ops.hard_swish])
    rewritten = Rewriter(rewritten, _with_layers).run()
    rewritten = Rewriter(rewritten, _with_channels_last).run()
    placed = channels_first(prune(rewritten))
    target = Target({DOMAIN: 1}, runtime=LiteRT())
    return fused(fold(retarget_to(placed, target, spare_defaults=False).graph))


def _with_layers(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
    """Lower an LSTM to the builtin layer; None if it does not fit, is in a subgraph, or its last cell state is read."""
    if call.op is not ops.lstm or call.node is None or rewriter.outer is not None:
        return None
    cell = call.node.outputs[2] if len(call.node.outputs) > 2 else None
    if cell is not None and (cell in rewriter.source.outputs or rewriter.readers.get(cell)):
        return None
    with contextlib.suppress(NotRepresentable), rewriter.attempt():
        return lstm_layer(*call.inputs, **call.attributes)[: call.outputs]
    return None


def _with_channels_last(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
    """Lower an op on images to a channels-last operator between Transpose nodes; None if no lowering applies."""
    if call.op.domain != "ai.onnx" or call.op not in SPATIAL:
        return None
    for function in LOWERINGS[call.op]:
        try:
            with rewriter.attempt():
                counted = {"_outputs": call.outputs} if call.op.signature.counts_outputs else {}
                results = function(*call.inputs, **call.attributes, **counted)
                return results if isinstance(results, tuple) else (results,)
        except (NotRepresentable, TypeMismatch):
            continue
    return None
