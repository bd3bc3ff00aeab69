"""Conversion of ONNX's QDQ format to LiteRT's QUANTIZE and DEQUANTIZE."""

from __future__ import annotations

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Graph, Node, Value, constant, static
from tenonnx.extend.transforms import Call, Rewriter, prune
from tenonnx.tools import plugins
from tenonnx_litert.builtins.quantization import RANGES, dequantize, quantize, rounded_as_it_runs
from tenonnx_litert.integers import SIGNED, Parameters, Results, rounded_constant

#: Further element types of quantized constants.
_WEIGHT_TYPES = (DType.int32, DType.int4, DType.uint4)

_PAIR = ("DequantizeLinear", "QuantizeLinear")

#: Integer products of ONNX, and the float ops of the same shape.
_PRODUCTS = {"MatMulInteger": ops.matmul, "ConvInteger": ops.conv}


#: Ops that move elements: they are applied to floats, between a DEQUANTIZE and a QUANTIZE, since lowerings take floats.
_MOVED = frozenset(
    {
        *(ops.max_pool, ops.reshape, ops.flatten, ops.transpose, ops.squeeze, ops.unsqueeze),
        *(ops.slice_, ops.gather, ops.identity, ops.depth_to_space, ops.space_to_depth, ops.tile, ops.expand),
    }
)


#: Products with hybrid kernels, for float inputs and int8 weights.
_HYBRID = (ops.matmul, ops.gemm, ops.conv)


def is_quantized(graph: Graph) -> bool:
    return any(node.op_type in (*_PAIR, *_PRODUCTS) or _is_operator(node) for node in graph.nodes)


def _is_operator(node: Node) -> bool:
    """Whether a node is in QOperator format, such as QLinearConv."""
    return node.op_type.startswith("QLinear") or node.op_type == "QGemm"


def with_builtins(graph: Graph) -> Graph:
    """``graph`` with QUANTIZE and DEQUANTIZE in place of ONNX's ops, as far as LiteRT supports their parameters.

    The transform ``qdq`` first converts QOperator to QDQ format.
    """
    return prune(Rewriter(_in_pairs(graph), _as_builtin).run())


def without_dynamic_rounding(graph: Graph) -> Graph | None:
    """``graph`` without the dynamic quantization that hybrid kernels apply themselves; None if it has none."""
    if not any(node.op_type == "DynamicQuantizeLinear" for node in graph.nodes):
        return None
    changed: list[None] = []

    def decide(rewriter: Rewriter, call: Call) -> Results:
        if call.op.name != "DequantizeLinear" or not _is_hybrid(rewriter, call):
            return None
        changed.append(None)
        return (call.inputs[0].producer.inputs[0],)  # type: ignore[union-attr]

    rewritten = prune(Rewriter(_in_pairs(graph), decide).run())
    return rewritten if changed else None


def _in_pairs(graph: Graph) -> Graph:
    """``graph`` with QOperator nodes converted to QDQ format."""
    if any(_is_operator(node) or node.op_type in _PRODUCTS for node in graph.nodes):
        for plugin in plugins("tenonnx.transforms", "qdq"):
            graph = plugin.load()(graph)
    return graph


def _as_builtin(rewriter: Rewriter, call: Call) -> Results:
    if call.op is ops.batch_normalization and not call.attributes.get("training_mode"):
        return _normalized(call)
    if call.op in _MOVED or (call.op is ops.resize and call.attributes["mode"] == "nearest"):
        return _on_floats(call)
    if call.op.domain == "ai.onnx" and call.op.name in _PRODUCTS:
        return _product(call)
    if call.op.domain != "ai.onnx" or call.op.name not in _PAIR:
        return None
    x, scale, *rest = call.inputs
    assert x is not None
    if _is_hybrid(rewriter, call):
        return (rounded_as_it_runs(x.producer.inputs[0]),)  # type: ignore[union-attr]
    x = _laid_out(x)
    kind = call.known[0].type.dtype if call.known[0] is not None else None  # type: ignore[union-attr]
    scales = None if scale is None else static(scale)
    if scales is None or scales.dtype != np.float32 or call.attributes.get("block_size") or x.shape is None:
        return None
    is_up = call.op.name == "QuantizeLinear"
    stored, number = (kind, x.dtype) if is_up else (x.dtype, kind)
    known_types = RANGES if is_up else (*RANGES, *_WEIGHT_TYPES)
    if number is not DType.float32 or stored not in known_types:
        return None
    zeros = np.zeros(scales.shape, stored.numpy) if not rest or rest[0] is None else static(rest[0])
    if zeros is None or (scales.size > 1 and not x.is_constant):
        return None
    shape = [1] * x.ndim
    if scales.size > 1:
        shape[call.attributes.get("axis", 1)] = -1
    if stored in (DType.int16, DType.uint16) and np.any(zeros != SIGNED.get(stored, (stored, 0))[1]):
        return None
    if stored in (DType.int4, DType.uint4) and not x.is_constant:
        return None
    sizes = tuple(shape) if scales.size > 1 else ()
    parameters = scales.reshape(sizes), zeros.reshape(sizes)
    if not is_up:
        return (dequantize(x, *map(constant, parameters)),)
    own = Parameters(*map(constant, parameters))
    return (rounded_constant(x, own) if x.is_constant else quantize(x, *own),)


def _laid_out(x: Value) -> Value:
    """``x``, with a Transpose of a constant folded."""
    node = x.producer
    if node is None or node.op is not ops.transpose or node.inputs[0] is None or not node.inputs[0].is_constant:
        return x
    return constant(np.transpose(static(node.inputs[0]), node.attributes["perm"]))  # type: ignore[arg-type]


def _is_hybrid(rewriter: Rewriter, call: Call) -> bool:
    """Whether a call dequantizes a DynamicQuantizeLinear for products with int8 weights only."""
    node = call.inputs[0].producer if call.inputs[0] is not None else None
    if node is None or node.op_type != "DynamicQuantizeLinear" or call.node is None:
        return False
    output = call.node.outputs[0]
    if output in rewriter.source.outputs:
        return False
    readers = rewriter.readers.get(output, ())  # type: ignore[arg-type]
    return bool(readers) and all(map(_has_weights_in_int8, readers))


def _has_weights_in_int8(node: Node) -> bool:
    weights = node.inputs[1].producer if node.op in _HYBRID and node.inputs[1] is not None else None
    if weights is None or weights.op_type != "DequantizeLinear" or weights.attributes.get("block_size"):
        return False
    quantized, _, *zeros = weights.inputs
    if quantized is None or not quantized.is_constant or quantized.dtype is not DType.int8:
        return False
    if not zeros or zeros[0] is None:
        return True
    zero = static(zeros[0])
    return zero is not None and not np.any(zero)


def _on_floats(call: Call) -> Results:
    """Dequantize the input, apply the op to floats, and quantize the result with the same parameters."""
    x, *others = call.inputs
    node = None if x is None else x.producer
    if node is None or node.op is not quantize or len(call.known) != 1:
        return None
    own = Parameters(*node.inputs[1:])  # type: ignore[arg-type]
    return (quantize(call.op(dequantize(x, *own), *others, **call.attributes), *own),)


def _product(call: Call) -> Results:
    """MatMulInteger or ConvInteger in float32, exact for sums up to 2**24; the weights stay integers in the file."""
    x, weights, x_zero, weights_zero = (*call.inputs, None, None)[:4]
    if x is None or weights is None or not weights.is_constant or weights.dtype not in (DType.int8, DType.uint8):
        return None
    zeros = np.zeros((), weights.dtype.numpy) if weights_zero is None else static(weights_zero)
    if zeros is None or (zeros.size > 1 and call.op.name != "MatMulInteger"):
        return None
    zeros = zeros.reshape(()) if zeros.size == 1 else zeros.reshape(*[1] * (weights.ndim - 1), -1)
    floats = ops.cast(x, to=DType.float32)
    if x_zero is not None:
        floats = floats - ops.cast(x_zero, to=DType.float32)
    numbers = dequantize(weights, constant(np.ones(zeros.shape, np.float32)), constant(zeros))
    inputs = (floats, numbers, None) if call.op.name == "ConvInteger" else (floats, numbers)
    return (ops.cast(_PRODUCTS[call.op.name](*inputs, **call.attributes), to=DType.int32),)


def _normalized(call: Call) -> Results:
    """BatchNormalization with constants as a product and a sum, past which transposes can move."""
    x, *others = call.inputs
    known = [None if v is None else static(v) for v in others]
    if x is None or x.shape is None or any(each is None for each in known):
        return None
    scale, shift, mean, variance = (np.asarray(each, np.float64) for each in known)
    factor = scale / np.sqrt(variance + call.attributes["epsilon"])
    shape = [-1, *[1] * (x.ndim - 2)]
    parts = [constant(each.reshape(shape).astype(np.float32)) for each in (factor, shift - mean * factor)]
    return (ops.add(ops.mul(x, parts[0]), parts[1]),)
