"""QLinear ops from float ops: dequantize the operands, apply the float op, quantize the result."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from tenonnx.extend import Op, Requirement, Value, dtypes, same_dtype, shapes, static
from tenonnx_quantized.granularity import is_single, scalar
from tenonnx_quantized.quantize import dequantize_linear, quantize_linear


class Layout(NamedTuple):
    """Positions of the inputs of a QLinear op: each operand, its scale and zero point, and those of the result.

    Scale and zero point are None for operands that are not quantized.
    """

    operands: tuple[tuple[int, int | None, int | None], ...]
    result: tuple[int, int]

    @classmethod
    def of(cls, names: Sequence[str]) -> Layout:
        """The layout by names of inputs: ``X``, ``X_scale`` and ``X_zero_point`` belong together."""
        places = {name.lower(): place for place, name in enumerate(names)}
        scales = {name.removesuffix("_scale"): place for name, place in places.items() if name.endswith("_scale")}
        shifts = {name.removesuffix("_zero_point"): k for name, k in places.items() if name.endswith("_zero_point")}
        (result,) = set(scales) - set(places)
        operands = tuple(
            (place, scales.get(name), shifts.get(name))
            for name, place in places.items()
            if not name.endswith(("_scale", "_zero_point"))
        )
        return cls(operands, (scales[result], shifts[result]))

    def requirements(self, names: Sequence[str]) -> Iterator[Requirement]:
        """Require 8-bit quantized values, each with a single positive scale and a single zero point of its type."""
        coded = [(names[k], names[s], names[z]) for k, s, z in self.operands if s is not None and z is not None]
        for operand, _, zero_point in coded:
            yield same_dtype(operand, zero_point)
        yield dtypes(**dict.fromkeys((operand for operand, *_ in coded), "int8 uint8"))
        yield same_dtype(coded[0][0], names[self.result[1]])
        single = [names[k] for k in self.result] + [name for _, *parameters in coded for name in parameters]
        scales = [name for name in single if name.endswith("_scale")]
        yield shapes(**dict.fromkeys(single, "|1"))
        yield dtypes(**dict.fromkeys(scales, "float32"))


#: Maximum nodes of the normal form of one op.
MOST_STEPS = 8

#: The QLinear ops of each float op, with their layouts, for float ops between DequantizeLinear and QuantizeLinear.
QLINEAR: dict[Op, list[tuple[Op, Layout]]] = {}


def qlinear(
    name: str,
    of: Op | None = None,
    *,
    domain: str = "com.microsoft",
    step: Callable[[Value], Value] = lambda scale: scale,
) -> Callable[[Callable[..., Any]], Op]:
    """Define a QLinear op by a float function, which receives dequantized operands.

    The function has the signature of the op; scales and zero points are None when it is called. ``of`` is the float op
    that becomes the QLinear op between DequantizeLinear and QuantizeLinear. ``step`` maps the scale of the result to
    the distance of its quantized values.
    """

    def define(function: Callable[..., Any]) -> Op:
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        layout = Layout.of(names)
        first = next(place for place, scale, _ in layout.operands if scale is not None)

        @functools.wraps(function)
        def body(*inputs: Value | None, **attributes: Any) -> Value:
            floats: list[Value | None] = [None] * len(inputs)
            for place, scale, zero_point in layout.operands:
                given = [inputs[k] for k in (place, scale, zero_point) if k is not None]
                floats[place] = dequantized(*given) if scale is not None else given[0]  # type: ignore[misc]
            scale, zero_point = (inputs[k] for k in layout.result)
            assert scale is not None
            return requantized(function(*floats, **attributes), step(scale), zero_point, inputs[first])

        op = Op(body, name, domain=domain)
        op.requires(*layout.requirements(names))
        if of is not None:
            QLINEAR.setdefault(of, []).append((op, layout))
            op.pattern(lambda y: _match_quantized(y, op, of, layout))
            op.traits(on_request=True)
        return op

    return define


def _match_quantized(y: Value, op: Op, of: Op, layout: Layout) -> Iterator[tuple[list[Value | None], dict[str, Any]]]:
    """Match a float op on dequantized operands whose result ``y`` quantizes; yields the call on quantized operands."""
    quantized = _call(y, quantize_linear)
    found = None if quantized is None or quantized[0][0] is None else _match_float_op(of, quantized[0][0])
    if quantized is None or found is None:
        return
    inputs, attributes = found
    given: list[Value | None] = [None] * len(op.signature.inputs)
    given[layout.result[0]], given[layout.result[1]] = quantized[0][1:3]
    for (place, scale, zero_point), value in zip(layout.operands, inputs, strict=False):
        coded = None if scale is None or value is None else _call(value, dequantize_linear)
        for each, part in zip((place, scale, zero_point), [value] if coded is None else coded[0], strict=False):
            if each is not None:
                given[each] = part
    known = {p.name: static(v) for p, v in zip(of.signature.inputs, inputs, strict=False) if v is not None}
    attributes |= {name: contents.tolist() for name, contents in known.items() if contents is not None}
    yield given, {name: a for name, a in attributes.items() if name in op.signature.attributes}


def _match_float_op(of: Op, value: Value) -> tuple[list[Value | None], dict[str, Any]] | None:
    """The call of a float op; a unary op that the normal form expands matches any computation of one value."""
    result = _call(value, of)
    if result is not None or len(of.signature.inputs) != 1 or of.signature.attributes:
        return result
    for _ in range(MOST_STEPS):
        inner = [] if value.producer is None else [v for v in value.producer.uses if v.data is None]
        if len(inner) != 1 or _call(value, dequantize_linear) is not None:
            break
        value = inner[0]
    return [value], {}


def _call(value: Value, op: Op) -> tuple[list[Value | None], dict[str, Any]] | None:
    """The inputs and attributes of the call that computes a value, if it has that op."""
    from tenonnx.extend.transforms import bind  # imported lazily: not needed for loading a model

    return bind(value.producer) if value.producer is not None and value.producer.op is op else None


def dequantized(quantized: Value, scale: Value, zero_point: Value | None) -> Value:
    """Dequantized values, with one scale and zero point for all of them."""
    return dequantize_linear(quantized, scalar(scale), None if zero_point is None else scalar(zero_point))


def requantized(y: Value, scale: Value, zero_point: Value | None, like: Value) -> Value:
    """Quantize by a single scale and zero point, to the type of the zero point or else of ``like``."""
    if zero_point is None:
        return quantize_linear(y, scalar(scale), output_dtype=int(like.dtype))
    return quantize_linear(y, scalar(scale), scalar(zero_point))


def numbers(quantized: Value, scale: Value, zero_point: Value | None, axis: int) -> Value | None:
    """Dequantize by one scale, or by one per position of ``axis``; None for other scales."""
    if is_single(scale) and (zero_point is None or is_single(zero_point)):
        return dequantized(quantized, scale, zero_point)
    if scale.rank != 1 or (zero_point is not None and zero_point.rank != 1) or quantized.rank is None:
        return None
    if zero_point is not None and is_single(zero_point) != is_single(scale):
        return None
    return dequantize_linear(quantized, scale, zero_point, axis=axis % quantized.ndim)


def bias_numbers(bias: Value | None, x_scale: Value, w_scale: Value) -> Value | None:
    """Dequantize an int32 bias in units of the product of the two scales."""
    if bias is None:
        return None
    unit = scalar(x_scale) * (scalar(w_scale) if is_single(w_scale) else w_scale)
    return dequantize_linear(bias, unit, axis=0) if unit.rank else dequantize_linear(bias, unit)
