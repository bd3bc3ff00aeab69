"""Propagation of quantization: DEQUANTIZE moves down and QUANTIZE up the graph, until integer kernels match."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Graph, Node, Value, constant, static
from tenonnx.extend.transforms import Call, Rewriter, fold, prune
from tenonnx_litert.builtins import elementwise, movement, neural, reductions
from tenonnx_litert.builtins.quantization import dequantize, quantize

Results = Sequence[Value | None] | None

#: Maximum number of passes over the graph. Each pass moves a call past one other, so that long chains need many.
_PASSES = 64

#: Fraction of the int8 values that QUANTIZE may requantize differently from ONNX.
_MOST_OTHER = 0.1

#: Operators that move elements, and the indices of the inputs that they move; None for all inputs.
MOVING: dict[Any, tuple[int, ...] | None] = {
    movement.reshape: (0,),
    movement.transpose: (0,),
    movement.concatenation: None,
    movement.split: (1,),
    movement.split_v: (0,),
    movement.pack: None,
    movement.unpack: (0,),
    movement.slice_: (0,),
    movement.strided_slice: (0,),
    movement.gather: (0,),
    movement.gather_nd: (0,),
    movement.tile: (0,),
    movement.expand_dims: (0,),
    movement.squeeze: (0,),
    movement.pad: (0,),
    movement.padv2: (0, 2),
    movement.mirror_pad: (0,),
    neural.max_pool_2d: (0,),
    neural.resize_nearest_neighbor: (0,),
    neural.depth_to_space: (0,),
    neural.space_to_depth: (0,),
}

#: Operators whose kernels require that the result has the scale and zero point of the input.
_SAME = frozenset({neural.average_pool_2d, neural.resize_bilinear})

#: Operators whose kernels fix the scale and zero point of the result, for int8 and int16.
_FIXED = {
    elementwise.softmax: ((1 / 256, np.int8(-128)), (1 / 32768, np.int16(0))),
    elementwise.logistic: ((1 / 256, np.int8(-128)), (1 / 32768, np.int16(0))),
    elementwise.tanh: ((1 / 128, np.int8(0)), (1 / 32768, np.int16(0))),
}

#: Unsigned types, the signed types of the same width, and the offset between them.
SIGNED = {DType.uint8: (DType.int8, 128), DType.uint16: (DType.int16, 32768), DType.uint4: (DType.int4, 8)}


class Parameters(NamedTuple):
    """Scale and zero point, constants whose shapes broadcast to the tensor's."""

    scale: Value
    zero_point: Value

    @property
    def arrays(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        return np.asarray(static(self.scale)), np.asarray(static(self.zero_point))

    @property
    def is_single(self) -> bool:
        return self.arrays[0].size == 1

    def equals(self, other: Parameters) -> bool:
        return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(self.arrays, other.arrays, strict=True))

    @property
    def signed(self) -> Parameters:
        """The equivalent parameters of the signed type; those of a signed type unchanged."""
        return Parameters(self.scale, constant(as_signed(self.arrays[1], self.zero_point.dtype)))


def as_signed(array: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    """Convert quantized values or zero points from an unsigned type to the signed one."""
    signed, offset = SIGNED[dtype]
    return (array.astype(np.int32) - offset).astype(signed.numpy)


def dequantized(value: Value | None) -> tuple[Value, Parameters] | None:
    """The quantized tensor and the parameters of a dequantized float; None for another value."""
    node = None if value is None else value.producer
    if node is None or node.op is not dequantize:
        return None
    x, scale, zero_point = node.inputs
    assert x is not None
    assert scale is not None
    assert zero_point is not None
    return x, Parameters(scale, zero_point)


def is_weight(value: Value | None) -> bool:
    """Whether a value is a constant, also after a dequantization or a transpose."""
    node = None if value is None else value.producer
    if node is not None and node.op in (ops.transpose, movement.transpose):
        return is_weight(node.inputs[0])
    pair = dequantized(value)
    return value is not None and (value.is_constant or (pair is not None and pair[0].is_constant))


# ----- moving ---------------------------------------------------------------------------------------------------------


def with_quantization_propagated(graph: Graph) -> Graph:
    """``graph`` of builtin operators with quantization propagated, and int8 in place of uint8."""
    for _ in range(_PASSES):
        changed: list[None] = []

        def decide(rewriter: Rewriter, call: Call, changed: list[None] = changed) -> Results:
            rule = _RULES.get(call.op)
            results = None if rule is None or call.node is None else rule(rewriter, call)
            if results is not None:
                changed.append(None)
            return results

        graph = prune(Rewriter(graph, decide).run())
        if not changed:
            break
    return fold(graph)


def _readers(rewriter: Rewriter, call: Call) -> list[Node]:
    """The consumers of the first result in the source graph; none if it is a graph output."""
    assert call.node is not None
    output = call.node.outputs[0]
    return [] if output is None or output in rewriter.source.outputs else list(rewriter.readers.get(output, ()))


def _quantize(rewriter: Rewriter, call: Call) -> Results:
    x, scale, zero_point = call.inputs
    assert x is not None
    assert scale is not None
    assert zero_point is not None
    own = Parameters(scale, zero_point)
    if x.is_constant:
        return (rounded_constant(x, own),)
    pair = dequantized(x)
    if pair is not None and own.equals(pair[1]) and pair[0].producer is not None:
        return (pair[0],)
    if zero_point.dtype in SIGNED:
        if pair is not None and own.signed.equals(pair[1]):
            return None
        return (quantize(dequantize(quantize(x, *own.signed), *own.signed), *own),)
    if pair is not None and pair[1].is_single and _is_coarse(pair[1], own):
        placed = _placed_channels(x, np.ones(1, np.float32), np.zeros(1, np.float32)) if x.shape else None
        if placed is not None:
            images, factors, terms, back = placed
            return (quantize(back(_depthwise(images, factors, terms, "NONE")), *own),)
    node = x.producer
    source = call.node.inputs[0] if call.node is not None else None
    alone = source not in rewriter.source.outputs and len(rewriter.readers.get(source, ())) == 1  # type: ignore[arg-type]
    if (
        node is None
        or node.op not in MOVING
        or not alone
        or node.attributes.get("fused_activation_function", "NONE") != "NONE"
    ):
        return None
    if len(node.outputs) != 1 or (pair is not None):
        return None
    return (_over(node.op, node.inputs, node.attributes, own, lambda v: quantize(v, *own)),)


def _is_coarse(before: Parameters, own: Parameters) -> bool:
    """Whether QUANTIZE kernels requantize too many int8 values differently from the exact ratio of the scales.

    XNNPACK rounds the ratio to a multiple of 2**-8; the reference kernel rounds the product before it shifts it.
    """
    (first, zero), (second, other) = before.arrays, own.arrays
    if (zero.dtype, other.dtype) != (np.int8, np.int8):
        return False
    ratio = float(first) / float(second)
    steps = np.arange(-128, 128) - int(zero)
    mantissa, exponent = np.frexp(ratio)
    exact = np.rint(steps * ratio)
    short = np.floor(steps * np.rint(ratio * 256) / 256 + 0.5)
    shifted = np.floor(np.floor(steps * mantissa + 0.5) * 2.0**exponent + 0.5) if exponent <= 0 else exact
    return bool(max((short != exact).mean(), (shifted != exact).mean()) > _MOST_OTHER)


def _over(
    op: Any, inputs: Sequence[Value | None], attributes: Any, own: Parameters, of: Callable[[Value], Value]
) -> Any:
    """Apply an operator that moves elements to quantized values."""
    operands = list(inputs)
    places = MOVING[op]
    if op is movement.pad:
        return movement.padv2(of(operands[0]), operands[1], constant(np.reshape(own.arrays[1], 1)))  # type: ignore[arg-type]
    for place in range(len(operands)) if places is None else places:
        value = operands[place]
        assert value is not None
        operands[place] = rounded_constant(value, own) if value.is_constant and place == 2 else of(value)
    return op(*operands, **attributes)


def rounded_constant(value: Value, own: Parameters) -> Value:
    """Quantize a float constant with the given parameters; values saturate."""
    scale, zero_point = own.arrays
    limits = np.iinfo(zero_point.dtype)
    with np.errstate(over="ignore"):
        steps = np.rint(np.asarray(static(value)) / scale) + zero_point.astype(np.float32)
    return constant(np.clip(steps, limits.min, limits.max).astype(zero_point.dtype))


def _dequantize(rewriter: Rewriter, call: Call) -> Results:
    x, scale, zero_point = call.inputs
    assert x is not None
    assert scale is not None
    assert zero_point is not None
    own = Parameters(scale, zero_point)
    if zero_point.dtype not in SIGNED:
        return None
    if x.is_constant:
        return (dequantize(constant(as_signed(static(x), x.dtype)), *own.signed),)  # type: ignore[arg-type]
    before = None if x.producer is None or x.producer.op is not quantize else x.producer
    inner = dequantized(before.inputs[0]) if before is not None else None
    if inner is not None and own.signed.equals(inner[1]):
        return (dequantize(inner[0], *own.signed),)
    readers = _readers(rewriter, call)
    if readers and all(node.op is quantize and node.inputs[2].dtype not in SIGNED for node in readers):  # type: ignore[union-attr]
        return None
    return (dequantize(quantize(dequantize(x, *own), *own.signed), *own.signed),)


def _moving(rewriter: Rewriter, call: Call) -> Results:
    places = MOVING[call.op]
    if call.attributes.get("fused_activation_function", "NONE") != "NONE":
        return None
    chosen = [call.inputs[k] for k in (range(len(call.inputs)) if places is None else places)]
    pairs = [dequantized(v) for v in chosen if v is None or not v.is_constant]
    if not pairs or any(each is None for each in pairs):
        return None
    first = pairs[0][1]  # type: ignore[index]
    if any(not first.equals(each[1]) for each in pairs[1:] if each is not None):
        return None
    if places is None and len(pairs) < len(chosen):
        return None
    parameters = first if first.is_single else _placed(call, first)
    if parameters is None:
        return None
    results = _over(call.op, call.inputs, call.attributes, first, lambda v: dequantized(v)[0])  # type: ignore[index]
    several = results if isinstance(results, (tuple, list)) else (results,)
    return [dequantize(v, *parameters) for v in several]


def _placed(call: Call, own: Parameters) -> Parameters | None:
    """Per-channel parameters after TRANSPOSE or RESHAPE; None if the channels do not stay on one axis."""
    x, other = call.inputs[:2]
    contents = None if other is None else static(other)
    if contents is None or x is None:
        return None
    if call.op is movement.transpose:
        return Parameters(*(constant(np.transpose(each, contents)) for each in own.arrays))
    shape = call.known[0].type.shape if call.known[0] is not None else None  # type: ignore[union-attr]
    if call.op is not movement.reshape or shape is None or None in (*shape, *x.shape):
        return None
    axis = int(np.argmax(np.asarray(own.arrays[0].shape) != 1))
    for place, size in enumerate(shape):
        if str(size) == str(x.shape[axis]) and str(math.prod(shape[:place])) == str(math.prod(x.shape[:axis])):
            sizes = [size if k == place else 1 for k in range(len(shape))]
            return Parameters(*(constant(each.reshape(sizes)) for each in own.arrays))
    return None


def _position(rewriter: Rewriter, call: Call) -> Results:
    pair = dequantized(call.inputs[0])
    if pair is None or not pair[1].is_single:
        return None
    return (call.op(pair[0], *call.inputs[1:], **call.attributes),)


def _restricted(rewriter: Rewriter, call: Call) -> Results:
    """Apply an operator that fixes the parameters of its result, then requantize."""
    pair = dequantized(call.inputs[0])
    readers = _readers(rewriter, call)
    if pair is None or not readers or any(node.op is not quantize for node in readers):
        return None
    own = pair[1]
    if call.op in _FIXED:
        scale, zero_point = _FIXED[call.op][own.arrays[1].dtype == np.int16]
        own = Parameters(constant(np.float32(scale)), constant(zero_point))
    wanted = [Parameters(node.inputs[1], node.inputs[2]) for node in readers]  # type: ignore[arg-type]
    if all(own.equals(each) for each in wanted) or any(own.arrays[0] > 2 * each.arrays[0] for each in wanted):
        return None
    if call.op is neural.average_pool_2d and (value := _averages(call)) is not None:
        return (value,)
    value = call.op(*call.inputs, **call.attributes)
    return (dequantize(quantize(value, *own), *own),)


def _averages(call: Call) -> Value | None:
    """AVERAGE_POOL_2D as a depthwise convolution, which rounds only once; None for padding or dynamic channels."""
    x, options = call.inputs[0], dict(call.attributes)
    channels = x.shape[3] if x is not None and x.shape is not None else None
    if options["padding"] != "VALID" or not isinstance(channels, int):
        return None
    height, width = options.pop("filter_height"), options.pop("filter_width")
    steps = constant(np.full((1, height, width, channels), 127, np.int8))
    scale, zero_point = constant(np.float32(1 / (127 * height * width))), constant(np.int8(0))
    bias = constant(np.zeros(channels, np.float32))
    return neural.depthwise_conv_2d(x, dequantize(steps, scale, zero_point), bias, **options)  # type: ignore[no-any-return]


def _scaled(rewriter: Rewriter, call: Call) -> Results:
    """A product or sum with constants as a depthwise convolution, which represents the constants exactly."""
    readers = _readers(rewriter, call)
    if not _is_rounded(rewriter, readers):
        return None
    if call.op is elementwise.mul and [node.op for node in readers] == [elementwise.add]:
        return None  # fused into the sum
    x, factor, term = _linear(call.op, call.inputs)
    node = None if x is None else x.producer
    is_inner = node is not None and node.op is elementwise.mul
    if is_inner and call.op is elementwise.add and node.attributes.get("fused_activation_function", "NONE") == "NONE":  # type: ignore[union-attr]
        x, factor, _ = _linear(node.op, node.inputs)  # type: ignore[union-attr]
    kind = call.known[0].type if call.known[0] is not None else None
    shape = getattr(kind, "shape", None)
    if x is None or dequantized(x) is None or shape is None or x.shape is None or list(shape) != list(x.shape):
        return None
    placed = _placed_channels(x, *np.broadcast_arrays(factor, term)) if shape else None
    if placed is None:
        return None
    images, factors, terms, back = placed
    return (back(_depthwise(images, factors, terms, call.attributes["fused_activation_function"])),)


def _linear(op: Any, inputs: Sequence[Value | None]) -> tuple[Value | None, Any, Any]:
    """The computed operand of a product or sum, the constant factor and the constant term; None thrice for another."""
    swapped = inputs[0] is not None and inputs[0].is_constant
    x, other = inputs[::-1] if swapped else inputs
    contents = None if other is None else static(other)
    if contents is None or contents.dtype != np.float32:
        return None, None, None
    one, zero = np.float32(1), np.float32(0)
    if op is elementwise.mul:
        return x, contents, zero
    if op is elementwise.add:
        return x, one, contents
    return (x, -one, contents) if swapped else (x, one, -contents)


def _depthwise(images: Value, factors: Any, terms: Any, activation: str) -> Value:
    scale = np.where(factors == 0, 1, np.abs(factors) / 127).astype(np.float32).reshape(1, 1, 1, -1)
    steps = constant((np.sign(factors) * 127).astype(np.int8).reshape(scale.shape))
    weights = dequantize(steps, constant(scale), constant(np.zeros(scale.shape, np.int8)))
    bias = constant(np.ascontiguousarray(terms))
    return neural.depthwise_conv_2d(  # type: ignore[no-any-return]
        images, weights, bias, padding="VALID", fused_activation_function=activation
    )


def _placed_channels(x: Value, *parts: Any) -> tuple[Value, Any, Any, Callable[[Value], Value]] | None:
    """``x`` as images with one channel per element of the constants, these elements, and the inverse reshape."""
    shape = list(x.shape)
    full = [1] * (len(shape) - parts[0].ndim) + list(parts[0].shape)
    long = [axis for axis, size in enumerate(full) if size != 1]
    first = min(long, default=len(shape) - 1)
    rest, before = shape[first:], shape[:first]
    sizes = [n if isinstance(n, int) else -1 for n in shape]
    if not all(isinstance(n, int) for n in rest) or 0 in sizes:
        return None
    if first and (len(shape) != 4 or first == 3) and int(np.prod(rest)) <= 4 * max(parts[0].size, rest[-1]):
        flat = [np.broadcast_to(each.reshape(full[first:]), rest).reshape(-1) for each in parts]
        if len(shape) == 4:
            return x, flat[0], flat[1], lambda y: y
        if sizes.count(-1) > 1 or not before:
            return None
        images = movement.reshape(x, constant(np.int32([-1, 1, 1, int(np.prod(rest))])))
        return images, flat[0], flat[1], lambda y: movement.reshape(y, constant(np.int32(sizes)))
    if len(shape) == 4 and long == [1]:
        orders = [constant(np.int32(order)) for order in ([0, 2, 3, 1], [0, 3, 1, 2])]
        images = movement.transpose(x, orders[0])
        return images, parts[0].reshape(-1), parts[1].reshape(-1), lambda y: movement.transpose(y, orders[1])
    return None


def _is_rounded(rewriter: Rewriter, readers: list[Node]) -> bool:
    """Whether the readers lead to QUANTIZE alone, with only sums, activations and data movement in between."""
    for _ in range(_PASSES):
        if not readers or all(node.op is quantize for node in readers):
            return bool(readers)
        if len(readers) > 1 or readers[0].op not in _BETWEEN or readers[0].outputs[0] in rewriter.source.outputs:
            return False
        if readers[0].op is elementwise.add and not any(v is not None and v.is_constant for v in readers[0].inputs):
            return False
        readers = list(rewriter.readers.get(readers[0].outputs[0], ()))  # type: ignore[arg-type]
    return False


_BETWEEN = frozenset(
    {
        *(elementwise.add, elementwise.relu, elementwise.relu6, elementwise.relu_n1_to_1),
        *(movement.transpose, movement.reshape),
    }
)


_RULES: dict[Any, Callable[[Rewriter, Call], Results]] = {
    quantize: _quantize,
    dequantize: _dequantize,
    **dict.fromkeys(MOVING, _moving),
    **dict.fromkeys((*_SAME, *_FIXED), _restricted),
    **dict.fromkeys((elementwise.mul, elementwise.add, elementwise.sub), _scaled),
    reductions.arg_max: _position,
    reductions.arg_min: _position,
}
