"""Conversion of quantized models to plain floats."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Graph, Op, Value, moves_data, static
from tenonnx.extend.transforms import Call, Rewriter, bind, changing, infer_call, leaving_defaults, prune
from tenonnx_quantized.computed import Computed, rows
from tenonnx_quantized.forms.qdq import to_qdq
from tenonnx_quantized.forms.quantized_nodes import QuantizationRewriter, is_dequantize, is_meaning, is_quantize
from tenonnx_quantized.forms.vendor_weights import FLOAT_FORMS
from tenonnx_quantized.granularity import is_single
from tenonnx_quantized.quantize import dynamic_quantize_linear, to

Array = np.ndarray[Any, Any]


def _clipped_to_range(x: Value, parameters: Sequence[Value | None], code: DType, dtype: DType) -> Value:
    """Activations without quantization, clipped to the range of quantized values if it starts at 0.

    Quantizers leave out a Relu or Clip before such quantized values, which makes it redundant.
    """
    scale, zero_point = map(static, parameters)
    least, greatest = code.bounds if code.is_integer else (0, 0)
    shift = 0 if zero_point is None else int(zero_point.reshape(-1)[0])
    if scale is not None and scale.size == 1 and shift == least < greatest:
        x = ops.clip(x, 0.0, float(scale.reshape(-1)[0]) * (greatest - least))
    return to(x, dtype)


def _before_quantization(quantized: Value, parameters: Sequence[Value | None], dtype: DType) -> Value | None:
    """The activations before quantization, after the same data movement; None if the graph does not quantize them."""
    node = quantized.producer
    if node is None or not isinstance(node.op, Op):
        return None
    inputs, attributes = bind(node)
    if is_quantize(node.op) or is_meaning(node.op, dynamic_quantize_linear):
        return _clipped_to_range(inputs[0], parameters, quantized.dtype, dtype)
    others = [v for v in inputs[1:] if v is not None and v.type is not None and v.dtype is quantized.dtype]
    if not moves_data(node.op, attributes) or others or quantized is not node.outputs[0]:
        return None
    if not all(p is None or is_single(p) for p in parameters):
        return None
    x = _before_quantization(inputs[0], parameters, dtype)
    result = None if x is None else node.op(x, *inputs[1:], **attributes)
    return result[0] if isinstance(result, tuple) else result


def _numbers(call: Call, start: int, stop: int) -> Array:
    """Part of the dequantized values of a constant, from ``start`` to ``stop`` along the first axis."""
    quantized, *parameters = call.inputs
    attributes = dict(call.attributes)
    if not quantized.rank:
        return np.array(call.op(*(static(v) for v in call.inputs), **attributes))
    given = [p for p in parameters if p is not None]
    first = start
    if (
        attributes.get("axis") or 0
    ) % quantized.ndim:  # blocks of columns: parameters have the rows of the quantized values
        parts = [static(p) if p.ndim < 2 or is_single(p) else rows(p, start, stop) for p in given]
    else:
        block = (attributes.get("block_size") or 1) if given[0].ndim > 1 else 1
        first -= start % block
        parts = [static(p) if is_single(p) else rows(p, first // block, -(-stop // block)) for p in given]
    return call.op(rows(quantized, first, stop), *parts, **attributes)[start - first :]


@changing("numbers")
@leaving_defaults
def to_floats(graph: Graph) -> Graph:
    """Convert a quantized model to floating point.

    Weights are dequantized lazily, when the model is saved. Activations are not rounded, but clipped to ranges that
    start at 0. Quantized inputs and outputs stay quantized.
    """

    def decide(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
        if not isinstance(rewriter, QuantizationRewriter):
            return None
        if (form := FLOAT_FORMS.get(call.op)) is not None:
            values = rewriter.inside(form, rewriter, *call.inputs, **call.attributes)
            return values if values is None or isinstance(values, tuple) else (values,)
        if not is_dequantize(call.op):
            return None
        quantized = call.inputs[0]
        assert quantized is not None
        (known,) = infer_call(call.op, call.inputs, call.attributes)
        if all(v is None or v.is_constant for v in call.inputs):
            shape = [d for d in quantized.shape if isinstance(d, int)]
            numbers = Computed(known.type.dtype, shape, partial(_numbers, call))
            return (rewriter.place(f"{quantized.name}/floats", numbers),)
        found = rewriter.inside(_before_quantization, quantized, call.inputs[1:3], known.type.dtype)
        return None if found is None else (found,)

    return prune(QuantizationRewriter(to_qdq(graph), decide).run())
