"""QOperator: QLinear ops instead of float ops between DequantizeLinear and QuantizeLinear."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Graph, Node, Op, Value, constant, moves_data, static
from tenonnx.extend.transforms import Call, Rewriter, bind, leaving_defaults, prune, same_attribute
from tenonnx_quantized.blocks import matmul_nbits
from tenonnx_quantized.computed import Computed, transposed_rows
from tenonnx_quantized.convolution import conv_integer, qlinear_conv
from tenonnx_quantized.elementwise import qlinear_concat, qlinear_softmax
from tenonnx_quantized.formats import packed_array
from tenonnx_quantized.forms.quantized_nodes import QuantizationRewriter, dequantized, is_meaning, is_quantize
from tenonnx_quantized.granularity import is_single, scalar
from tenonnx_quantized.matrix import matmul_integer, qlinear_matmul
from tenonnx_quantized.pooling import qlinear_reduce_mean
from tenonnx_quantized.products import qgemm
from tenonnx_quantized.qlinear import QLINEAR
from tenonnx_quantized.quantize import dynamic_quantize_linear, is_zero

_EIGHT_BITS = (DType.int8, DType.uint8)

#: Quantized values, their scale and their zero point.
Coded = tuple[Value, Value, Value]

#: Largest bias in steps of input times weight: that of int32, slightly reduced since scales are rounded to float32.
LARGEST_BIAS = 2.0**31 * (1 - 2.0**-16)


@leaving_defaults
def to_qoperator(graph: Graph) -> Graph:
    """Convert to QOperator form.

    QLinear ops replace float ops between DequantizeLinear and QuantizeLinear, and MatMulNBits replaces products with
    4-bit weights. The ops are those of ai.onnx and com.microsoft. Ops that only move or select elements work on the
    quantized values. Ops without a QLinear op stay.
    """
    used_once = {v for v, nodes in graph.uses().items() if len(nodes) == 1} - set(graph.outputs)
    rounded = {n.inputs[0] for n in graph.walk() if is_quantize(n.op)}
    rounded |= {n.inputs[0] for n in graph.walk() if is_meaning(n.op, ops.relu) and n.outputs[0] in rounded}

    def decide(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
        if is_meaning(call.op, *_INTEGER):
            is_rounded = call.node is not None and call.node.outputs[0] in rounded
            found = rewriter.inside(_as_integers, call.op, call.inputs, call.attributes, is_rounded)
            if found is None and is_meaning(call.op, ops.matmul):
                found = rewriter.inside(_in_blocks, rewriter, *call.inputs)
            return None if found is None else (found,)
        if call.node is None or not is_quantize(call.op) or call.node.inputs[0] not in used_once:
            return None
        found = rewriter.inside(_between_quantized, call)
        return None if found is None else (found,)

    return prune(QuantizationRewriter(graph, decide).run())


def _between_quantized(call: Call) -> Value | None:
    """The result of a QuantizeLinear as a single op on quantized values, if there is one."""
    x, scale, zero_point = call.inputs[:3]
    if x is None or scale is None or call.attributes.get("block_size") or not is_single(scale):
        return None
    dtype = DType(call.attributes.get("output_dtype") or DType.uint8) if zero_point is None else zero_point.dtype
    if dtype not in _EIGHT_BITS:
        return None
    zero = _zero(dtype) if zero_point is None else scalar(zero_point)
    node = _behind_relu(x.producer, zero, dtype)
    if node is None or not isinstance(node.op, Op):
        return None
    inputs, attributes = bind(node)
    result = scalar(scale), zero
    special = next((rule for op, rule in _RULES if is_meaning(node.op, op)), None)
    if special is not None:
        return special(inputs, attributes, result)
    known = next((forms for op, forms in QLINEAR.items() if is_meaning(node.op, op)), [])
    if known and known[0][0] is not qlinear_reduce_mean:  # no runtime has a kernel
        return _by_layout(known[0], inputs, attributes, result)
    return _on_quantized_values(node.op, inputs, attributes, result) if moves_data(node.op, attributes) else None


def _zero(dtype: DType) -> Value:
    return constant(np.zeros(()), dtype)


def _behind_relu(node: Node | None, zero: Value, dtype: DType) -> Node | None:
    """The node, or the one before a Relu that the range of quantized values makes redundant."""
    if node is None or not is_meaning(node.op, ops.relu):
        return node
    contents = static(zero)
    at_end = contents is not None and int(contents) == dtype.bounds[0]
    return node.inputs[0].producer if at_end and node.inputs[0] is not None else None


def _coded(value: Value | None, *, axis: int | None = None) -> Coded | None:
    """Inputs of an 8-bit DequantizeLinear, with one scale, or with one per position of ``axis``."""
    found = dequantized(value)
    if found is None:
        return None
    (quantized, scale, zero_point), attributes = found
    if quantized is None or scale is None or quantized.dtype not in _EIGHT_BITS or attributes.get("block_size"):
        return None
    contents = static(scale)
    if contents is not None and not (contents > 0).all():  # QLinear ops refuse such scales
        return None
    if is_single(scale):
        return quantized, scalar(scale), _zero(quantized.dtype) if zero_point is None else scalar(zero_point)
    if axis is None or scale.rank != 1 or (attributes["axis"] or 0) % quantized.ndim != axis % quantized.ndim:
        return None
    none = ops.expand(constant(np.zeros(1), quantized.dtype), ops.shape(scale))
    return quantized, scale, none if zero_point is None else zero_point


def _by_layout(
    form: tuple[Op, Any], inputs: Sequence[Value | None], attributes: dict[str, Any], result: tuple[Value, Value]
) -> Value | None:
    """The QLinear op of a float op, by its layout."""
    op, layout = form
    given: list[Value | None] = [None] * len(op.signature.inputs)
    given[layout.result[0]], given[layout.result[1]] = result
    for (place, scale, zero_point), value in zip(layout.operands, inputs, strict=False):
        if scale is None:
            given[place] = value
            continue
        coded = _coded(value)
        if coded is None:
            return None
        given[place], given[scale], given[zero_point] = coded
    written = dict(attributes)
    for k, value in enumerate(inputs[len(layout.operands) :]):  # attributes of the QLinear op
        known = static(value)
        if known is None:
            return None
        written[_EXTRA[k]] = known.reshape(-1).tolist()
    for name, contents in attributes.items():
        if name not in op.signature.attributes:
            if not _is_default(name, contents):
                return None
            del written[name]
    return op(*given, **{name: contents for name, contents in written.items() if contents is not None})


_EXTRA = ("axes",)

#: Attributes that QLinear ops lack, and the values they must have.
_DEFAULTS = {"noop_with_empty_axes": 0, "dilations": None, "axis": None}


def _is_default(name: str, contents: Any) -> bool:
    return name in _DEFAULTS and (contents is None or same_attribute(contents, _DEFAULTS[name]))


def _on_quantized_values(
    op: Op, inputs: Sequence[Value | None], attributes: dict[str, Any], result: tuple[Value, Value]
) -> Value | None:
    """An op that moves or selects elements, applied to quantized values; scale and zero point must not change."""
    coded = _coded(inputs[0]) if inputs else None
    if coded is None or any(dequantized(v) is not None for v in inputs[1:]):
        return None
    if not all(_same(a, b) for a, b in zip(coded[1:], result, strict=True)):
        return None
    found = op(coded[0], *inputs[1:], **attributes)
    return found if isinstance(found, Value) else None


def _same(a: Value, b: Value) -> bool:
    x, y = static(a), static(b)
    return a is b or (x is not None and y is not None and x.dtype == y.dtype and np.array_equal(x, y))


def _bias(value: Value | None, x_scale: Value, w_scale: Value) -> Value | None:
    """A bias as int32 in units of the product of the two scales."""
    found = dequantized(value)
    if found is not None and found[0][0].dtype is DType.int32:
        return found[0][0]
    return ops.cast(ops.round_(value / (x_scale * w_scale)), to=DType.int32)


def _is_int32(bias: Value | None, x_scale: Value, w_scale: Value) -> bool:
    """Whether a bias, as far as known, is an int32 in units of the product of the two scales."""
    contents = None if bias is None else static(bias)
    scales = static(x_scale), static(w_scale)
    if contents is None or scales[0] is None or scales[1] is None:
        return True
    with np.errstate(all="ignore"):
        steps = np.abs(contents.astype(np.float64) / (scales[0].astype(np.float64) * scales[1]))
    return not (steps >= LARGEST_BIAS).any()


def _conv(inputs: Sequence[Value | None], attributes: dict[str, Any], result: tuple[Value, Value]) -> Value | None:
    x, w = _coded(inputs[0]), _coded(inputs[1], axis=0)
    if x is None or w is None or not _is_int32(inputs[2], x[1], w[1]):
        return None
    bias = None if inputs[2] is None else _bias(inputs[2], x[1], w[1])
    return qlinear_conv(*x, *w, *result, bias, **attributes)


def _matmul(inputs: Sequence[Value | None], attributes: dict[str, Any], result: tuple[Value, Value]) -> Value | None:
    a, b = _coded(inputs[0]), _coded(inputs[1], axis=-1)
    return None if a is None or b is None else qlinear_matmul(*a, *b, *result)


def _gemm(inputs: Sequence[Value | None], attributes: dict[str, Any], result: tuple[Value, Value]) -> Value | None:
    a, b = _coded(inputs[0]), _coded(inputs[1], axis=0 if attributes["transB"] else 1)
    if a is None or b is None or (inputs[2] is not None and attributes["beta"] != attributes["alpha"]):
        return None
    if not _is_int32(inputs[2], a[1], b[1]):
        return None
    c = None if inputs[2] is None else _bias(inputs[2], a[1], b[1])
    return qgemm(*a, *b, c, *result, **{name: attributes[name] for name in ("alpha", "transA", "transB")})


def _softmax(inputs: Sequence[Value | None], attributes: dict[str, Any], result: tuple[Value, Value]) -> Value | None:
    x = _coded(inputs[0])
    return None if x is None else qlinear_softmax(*x, *result, axis=attributes["axis"], opset=13)


def _concat(inputs: Sequence[Value | None], attributes: dict[str, Any], result: tuple[Value, Value]) -> Value | None:
    parts = [_coded(value) for value in inputs]
    if any(part is None for part in parts):
        return None
    return qlinear_concat(*result, *(v for part in parts if part is not None for v in part), axis=attributes["axis"])


_RULES: tuple[tuple[Op, Callable[..., Value | None]], ...] = (
    (ops.conv, _conv),
    (ops.matmul, _matmul),
    (ops.gemm, _gemm),
    (ops.softmax, _softmax),
    (ops.concat, _concat),
)


_INTEGER = (ops.matmul, ops.conv, ops.gemm)


def _as_integers(
    op: Op, inputs: Sequence[Value | None], attributes: Mapping[str, Any], is_rounded: bool
) -> Value | None:
    """A product of quantized activations and 8-bit weights as an integer product with a float result.

    Activations are quantized by DynamicQuantizeLinear; for a matrix product without quantized result, by any op.
    """
    first, weights = inputs[:2]
    if is_meaning(op, ops.gemm) and (attributes["transA"] or attributes["alpha"] != 1 or attributes["beta"] != 1):
        return None
    place = {"Conv": 0, "MatMul": -1}.get(op.name, 0 if attributes.get("transB") else 1)
    x, w = _coded(first), _coded(weights, axis=place)
    if x is None or w is None:
        return None
    as_it_runs = is_meaning(getattr(x[0].producer, "op", None), dynamic_quantize_linear)
    if not as_it_runs and (is_rounded or is_meaning(op, ops.conv)):
        return None
    quantized, scale, zero = w
    zero = None if is_zero(zero) else _single_zero_point(zero)  # runtimes rarely support one per channel
    if is_meaning(op, ops.conv):
        sums = conv_integer(x[0], quantized, x[2], zero, **attributes)
        behind = [1] * (quantized.ndim - 2)
        scale = ops.reshape(scale, [-1, *behind]) if scale.rank else scale
        bias = None if inputs[2] is None else ops.reshape(inputs[2], [-1, *behind])
    else:
        quantized = ops.transpose(quantized, perm=[1, 0]) if attributes.get("transB") else quantized
        sums = matmul_integer(x[0], quantized, x[2], zero)
        bias = inputs[2] if len(inputs) > 2 else None
    y = ops.cast(sums, to=DType.float32) * (x[1] * scale)
    return y if bias is None else y + bias


def _single_zero_point(zero: Value) -> Value:
    """A single zero point instead of several equal ones."""
    contents = static(zero)
    if contents is None or not contents.size or (contents != contents.flat[0]).any():
        return zero
    return constant(contents.reshape(-1)[:1].reshape(()), zero.dtype)


def _in_blocks(rewriter: QuantizationRewriter, A: Value, B: Value) -> Value | None:
    """A product with blocked constant weights of few bits, as MatMulNBits."""
    found = dequantized(B)
    if found is None or A.dtype not in (DType.float32, DType.float16):
        return None
    (quantized, scale, zero_point), attributes = found
    block, dtype = attributes.get("block_size", 0), quantized.dtype
    constants = [v for v in (quantized, scale, zero_point) if v is not None]
    fits = dtype.is_integer and dtype.bits in (2, 4, 8) and block >= 16 and not block & (block - 1)
    if not fits or quantized.rank != 2 or attributes["axis"] % 2 or not all(v.is_constant for v in constants):
        return None
    (rows, columns), bits = quantized.shape, dtype.bits
    blocks = -(-rows // block)
    offset = 1 << bits - 1 if dtype.is_signed else 0

    if scale.dtype is not A.dtype:
        return None
    form = {"K": rows, "N": columns, "bits": bits, "block_size": block}

    def packed(value, count, start, stop):
        transposed = transposed_rows(value, lambda quantized: quantized[:, start:stop].astype(np.int16) + offset)
        return packed_array(np.pad(transposed, [(0, 0), (0, count - transposed.shape[1])]), bits)

    def weights(start, stop):
        return packed(quantized, blocks * block, start, stop).reshape(stop - start, blocks, -1)

    def shifts(start, stop):
        none = np.zeros((stop - start, size[1]), np.uint8)
        return none if zero_point is None else packed(zero_point, blocks, start, stop)

    data = Computed(DType.uint8, (columns, blocks, block * bits // 8), weights)
    scales = Computed(
        scale.dtype, (columns, blocks), lambda start, stop: transposed_rows(scale, lambda s: s[:, start:stop])
    )
    size = columns, -(-blocks * bits // 8)
    zero = (
        None
        if zero_point is None and offset
        else rewriter.place(f"{quantized.name}/zero_point", Computed(DType.uint8, size, shifts))
    )
    placed = rewriter.place(f"{quantized.name}/packed", data), rewriter.place(f"{quantized.name}/scale", scales)
    return matmul_nbits(A, *placed, zero, **form)  # type: ignore[no-any-return]
