"""Conversion between element types."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import (
    DType,
    InvalidCall,
    Known,
    Op,
    TensorType,
    TypeMismatch,
    Value,
    constant,
    find_trait,
    limits,
    op,
    primitive,
)

Array = np.ndarray[Any, Any]

#: The float8 types that have neither infinities nor a negative zero.
_FNUZ = (DType.float8e4m3fnuz, DType.float8e5m2fnuz)
_FLOAT8 = (DType.float8e4m3fn, DType.float8e5m2, *_FNUZ)
_GREATEST = {
    DType.float8e4m3fn: 448.0,
    DType.float8e4m3fnuz: 240.0,
    DType.float8e5m2: 57344.0,
    DType.float8e5m2fnuz: 57344.0,
}


# ----- Cast -----------------------------------------------------------------------------------------------------------


@primitive("Cast")
def cast(input, *, to: int, saturate=1, round_mode="up"):
    """The elements of ``input`` converted to the element type ``to``.

    Floats are truncated on conversion to integers, integers keep the bits that fit, and any non-zero element becomes
    true. ``saturate`` clips what overflows a float8 type to its largest number. ``round_mode`` (``up``, ``down``,
    ``nearest``) applies to float8e8m0, which has only powers of two.
    """


def _cast_type(input: Value, *, to: int, saturate: int = 1, round_mode: str = "up") -> Any:
    target = _target(to)
    if round_mode not in ("up", "down", "nearest"):
        raise TypeMismatch(
            f'{cast.title}: round_mode is not "up", "down" or "nearest"', given=f"round_mode={round_mode!r}"
        )
    if input.dtype.is_complex:
        raise TypeMismatch(f"{cast.title} does not take complex numbers", given=repr(input))
    kind = input.tensor.with_dtype(target)
    known = None if input.data is not None else input.symbolic_contents
    return Known(kind, symbolic_contents=known) if target.is_integer and known is not None else kind


cast.type(_cast_type)


def _target(to: Any) -> DType:
    try:
        target = DType(to)
    except ValueError:
        target = DType.undefined
    if target is DType.undefined or target.is_complex:
        raise TypeMismatch(
            f"{cast.title}: to is not the number of an element type",
            given=f"to={to!r}",
            available=", ".join(f"{d.name}={int(d)}" for d in DType if d is not DType.undefined and not d.is_complex),
        )
    return target


@cast.numpy
def cast_numpy(input: Array, *, to: int, saturate: int = 1, round_mode: str = "up") -> Array:
    target = DType(to)
    if input.dtype == target.numpy:
        return input
    with np.errstate(all="ignore"):
        if target is DType.string:
            return _to_text(input)
        x = _from_text(input, target) if input.dtype == object else _plain(input)
        if target is DType.float8e8m0:
            return _to_powers_of_two(x, bool(saturate), round_mode)
        if target in _FLOAT8:
            x = x.astype(np.float64) if x.dtype.kind in "iub" else x
            if saturate:
                greatest = x.dtype.type(_GREATEST[target])
                x = np.clip(x, -greatest, greatest)
        return x.astype(target.numpy)


@cast.vjp
def cast_vjp(g: Value, y: Value, input: Value, *, to: int, saturate: int, round_mode: str) -> Value | None:
    """The gradient of rounding is the identity (straight-through estimator)."""
    if not y.dtype.is_float:
        return None
    return cast(g, to=input.dtype) if input.dtype.is_float else g if of_quantized(input) else None


def of_quantized(x: Value) -> bool:
    """Whether an integer value is a sum of quantized values, which may receive a cotangent.

    Decided by the trait ``integer_sums`` of its op.
    """
    node = x.producer
    fact = find_trait(node.op, "integer_sums") if node is not None and isinstance(node.op, Op) else None
    return fact is True or (fact == "inputs" and any(v is not None and of_quantized(v) for v in node.inputs))


def _plain(x: Array) -> Array:
    """``x`` in a native numpy dtype, or in bfloat16; any other dtype converts through float32."""
    kind = DType.of(x.dtype)
    if kind.is_integer:
        return x.astype(np.int8) if kind.bits < 8 else x
    return x.astype(np.float32) if kind.bits <= 8 and kind.is_float else x


def _to_powers_of_two(input: Array, saturate: bool, round_mode: str) -> Array:
    """Convert to float8e8m0: an element is stored as its exponent plus 127, NaN as 255."""
    wide = input.astype(np.float64)
    mantissa, exponent = np.frexp(np.abs(wide))
    code = exponent.astype(np.int64) + 126
    if round_mode == "up":
        code += mantissa > 0.5
    elif round_mode == "nearest":
        code += mantissa >= 0.75
    code = np.where(wide == 0, -1, np.where(np.isinf(wide), 255, code))
    code = np.clip(code, 0, 254) if saturate else np.where((code < 0) | (code > 254), 255, code)
    code = np.where(np.isnan(wide), 255, code)
    return code.astype(np.uint8).view(DType.float8e8m0.numpy)


# ----- text -----------------------------------------------------------------------------------------------------------


def _to_text(input: Array) -> Array:
    """Numbers formatted by C's ``%.8g``, booleans as 1 and 0, exactly like onnxruntime."""
    limits.check_memory(4 * input.size * limits.TEXT, f"the text of {cast.title}")
    result = np.empty(input.size, dtype=object)
    if input.dtype.kind in "iu" or input.dtype.name in ("int4", "uint4", "int2", "uint2"):
        result[:] = [str(int(v)) for v in input.reshape(-1)]
    elif input.dtype == bool:
        result[:] = ["1" if v else "0" for v in input.reshape(-1)]
    else:
        result[:] = [_float_text(v) for v in input.astype(np.float64).reshape(-1).tolist()]
    return result.reshape(input.shape)


def _float_text(number: float) -> str:
    text = f"{number:.8g}"
    return {"inf": "INF", "-inf": "-INF", "nan": "NaN"}.get(text, text)


def _from_text(input: Array, target: DType) -> Array:
    flat = input.reshape(-1).tolist()
    if flat and not isinstance(flat[0], str):
        return input
    try:
        if target.is_float:
            numbers: Any = np.asarray([float(v) for v in flat], dtype=np.float64)
        elif target is DType.bool:
            numbers = np.asarray([float(v) != 0 for v in flat], dtype=bool)
        else:
            bits = 64 if target.is_signed else target.bits
            numbers = np.asarray([_integer(v) & ((1 << bits) - 1) for v in flat], dtype=np.uint64)
    except (ValueError, OverflowError) as error:
        raise InvalidCall(f"{cast.title}: cannot convert text to {target}", given=str(error)) from error
    return numbers.reshape(input.shape)


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return int(float(text))


# ----- older versions -------------------------------------------------------------------------------------------------


@cast.until(24)
def cast_infinity_to_nan(input, *, to: int, saturate=1):
    """Cast in which infinities become NaN in the float8 types without infinity, even with ``saturate``."""
    target = _target(to)
    if target in _FNUZ and saturate and input.dtype.is_float:
        finite = ops.where(ops.isinf(input), float("nan"), input)
        return cast(finite, to=target)
    return cast(input, to=target, saturate=saturate)


cast_infinity_to_nan.until(19, lacks=["saturate"])


@cast.lower(to=cast_infinity_to_nan)
def cast_to_cast_infinity_to_nan(input: Value, *, to: int, saturate: int, round_mode: str) -> Value | None:
    if DType(to) in _FNUZ and saturate and input.dtype.is_float:
        greatest = np.asarray(_GREATEST[DType(to)])
        bounded = ops.clip(input, constant(-greatest, input.dtype), constant(greatest, input.dtype))
        return cast_infinity_to_nan(bounded, to=to)  # type: ignore[no-any-return]
    return cast_infinity_to_nan(input, to=to, saturate=saturate if DType(to) in _FLOAT8 else 1)  # type: ignore[no-any-return]


_NAMES = {
    DType.float32: "FLOAT",
    DType.float64: "DOUBLE",
}


@cast_infinity_to_nan.until(6)
def cast_by_name(input, *, to: str):
    """Cast to an element type given by its name, such as ``FLOAT``."""
    named = {_NAMES.get(d, d.name.upper()): d for d in DType}
    text = to.decode() if isinstance(to, bytes) else str(to)
    if text.upper() not in named:
        raise TypeMismatch(
            f"{cast.title}: to does not name an element type", given=repr(to), available=", ".join(named)
        )
    return cast_infinity_to_nan(input, to=named[text.upper()])


@cast_infinity_to_nan.lower(to=cast_by_name)
def cast_infinity_to_nan_to_cast_by_name(input: Value, *, to: int, saturate: int) -> Value:
    return cast_by_name(input, to=_NAMES.get(DType(to), DType(to).name.upper()))


# ----- CastLike and BitCast -------------------------------------------------------------------------------------------


@op("CastLike", since=15)
def cast_like(input, target_type, *, saturate=1, round_mode="up"):
    """``input`` converted to the element type of ``target_type``."""
    return cast(input, to=target_type.dtype, saturate=saturate, round_mode=round_mode)


@cast_like.until(24)
def cast_like_infinity_to_nan(input, target_type, *, saturate=1):
    """CastLike in which infinities become NaN in the float8 types without infinity."""
    return cast_infinity_to_nan(input, to=target_type.dtype, saturate=saturate)


cast_like_infinity_to_nan.until(19, lacks=["saturate"])


@primitive("BitCast", since=26)
def bitcast(input, *, to: int):
    """The bits of every element reinterpreted as the element type ``to``, which has the same width."""


@bitcast.type
def bitcast_type(input: Value, *, to: int) -> TensorType:
    try:
        target = DType(to)
    except ValueError:
        target = DType.undefined
    given = f"{input!r}, to={to!r}"
    if DType.string in (input.dtype, target) or target is DType.undefined:
        raise TypeMismatch(f"{bitcast.title}: strings have no bit representation", given=given)
    if input.dtype.bits != target.bits:
        same = ", ".join(f"{d.name}={int(d)}" for d in DType if d.bits == input.dtype.bits)
        raise TypeMismatch(
            f"{bitcast.title}: element types differ in their number of bits", given=given, available=same
        )
    return input.tensor.with_dtype(target)


@bitcast.numpy
def bitcast_numpy(input: Array, *, to: int) -> Array:
    target = DType(to)
    return input.view(np.uint8) != 0 if target is DType.bool else input.view(target.numpy)


bitcast.vjp(lambda g, y, x, *, to: None)


@bitcast.lower()
def bitcast_lowering(input: Value, *, to: int) -> Value | None:
    """Between integer types of one width, Cast keeps the bits."""
    whole = (input.dtype, DType(to))
    return cast(input, to=to) if all(d.is_integer or d is DType.bool for d in whole) else None
