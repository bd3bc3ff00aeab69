"""Weights in packed block formats, selected by a number: MatMulPacked, GatherPacked and MoEPacked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import (
    REQUIRED,
    DType,
    TypeMismatch,
    Value,
    at_least,
    constant,
    dims,
    dtypes,
    floats,
    holds,
    one_of,
    op,
    same_dtype,
    shapes,
)
from tenonnx_quantized.quantize import to, wide
from tenonnx_standard.gated_activation import swiglu

# ----- the formats ----------------------------------------------------------------------------------------------------


def _floats(parts: Value, exponent: int, mantissa: int) -> Value:
    """Little-endian bytes along the last axis as floats with these bits of exponent and mantissa."""
    whole = ops.reduce_sum(parts * constant(256 ** np.arange(dims(parts)[-1]), DType.int64), [-1])
    digits, power = whole % (1 << mantissa), whole / (1 << mantissa) % (1 << exponent)
    last, bias = (1 << exponent) - 1, (1 << exponent - 1) - 1
    steps = np.exp2(np.maximum(np.arange(last + 1.0), 1) - bias - mantissa)
    steps[last] = np.inf
    implied = ops.where(power > 0, 1 << mantissa, 0)
    found = ops.cast(digits + implied, to=DType.float32) * ops.gather(constant(steps.astype(np.float32)), power)
    found = ops.where(ops.equal(power, last) & (digits > 0), np.float32(np.nan), found)
    return ops.where(whole >= (1 << mantissa + exponent), -found, found)


def _half(b: Value, at: int = 0) -> Value:
    return _floats(b[..., at : at + 2], 5, 10)


def _float(x: Value) -> Value:
    return ops.cast(x, to=DType.float32)


def _signed(b: Value) -> Value:
    return b - ops.where(b >= 128, 256, 0)


def _digits(b: Value, base: int, count: int) -> Value:
    """The lowest ``count`` digits of each number, lowest first, along a new last axis."""
    return ops.unsqueeze(b, [-1]) / constant(base ** np.arange(count), DType.int64) % base


def _halves(b: Value) -> Value:
    """The low four bits of all bytes, then the high ones."""
    return ops.concat(b % 16, b / 16, axis=-1)


def _shaped(b: Value, *sizes: int) -> Value:
    return ops.reshape(b, [*dims(b)[:-1], *sizes])


def _flat(x: Value, axes: int) -> Value:
    """Flatten the last axes."""
    *outer, last = dims(x)[: x.ndim - axes + 1]
    return ops.reshape(x, [*outer, last * int(np.prod(dims(x)[x.ndim - axes + 1 :]))])


def _two_bits(b: Value) -> Value:
    return _half(b) * _float(_flat(_digits(b[..., 2:], 4, 4), 2) - 1)


def _four_bits(b: Value) -> Value:
    return _half(b) * _float(_halves(b[..., 2:]) - 8)


def _five_bits(b: Value) -> Value:
    return _half(b) * _float(_halves(b[..., 6:]) + _flat(_digits(b[..., 2:6], 2, 8), 2) * 16 - 16)


def _eight_bits(b: Value) -> Value:
    return _half(b) * _float(_signed(b[..., 2:]))


#: 4-bit code book with smaller steps around zero.
_UNEVEN = np.float32([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113])


def _uneven(b: Value) -> Value:
    return _half(b) * ops.gather(constant(_UNEVEN), _halves(b[..., 2:]))


def _uneven_in_parts(b: Value) -> Value:
    """Eight parts of 32 elements, with 6-bit scales."""
    high = _digits(b[..., 2] + b[..., 3] * 256, 4, 8)
    scale = _half(b) * _float(_flat(_digits(b[..., 4:8], 16, 2), 2) + high * 16 - 32)
    quantized = ops.gather(constant(_UNEVEN), _halves(_shaped(b[..., 8:], 8, 16)))
    return _flat(ops.unsqueeze(scale, [-1]) * quantized, 2)


def _five_bits_in_parts(b: Value) -> Value:
    """Eight parts of 32 elements, with 6-bit scales and offsets."""
    first, middle, last = b[..., 4:8], b[..., 8:12], b[..., 12:16]
    scale = ops.concat(first % 64, last % 16 + first / 64 * 16, axis=-1)
    offset = ops.concat(middle % 64, last / 16 + middle / 64 * 16, axis=-1)
    low = _shaped(b[..., 48:], 4, 1, 32) / constant([[1], [16]], DType.int64) % 16
    high = ops.unsqueeze(b[..., 16:48], [-2]) / constant(2 ** np.arange(8)[:, None], DType.int64) % 2
    quantized = _float(ops.reshape(low, dims(high)) + high * 16)
    parts = ops.unsqueeze(_half(b) * _float(scale), [-1]) * quantized
    return _flat(parts - ops.unsqueeze(_half(b, 2) * _float(offset), [-1]), 2)


def _six_bits_in_parts(b: Value) -> Value:
    """Sixteen parts of 16 elements, with 8-bit scales."""
    low = _shaped(b[..., :128], 2, 2, 32)
    low = ops.concat(low % 16, low / 16, axis=-2)
    high = _shaped(b[..., 128:192], 2, 1, 32) / constant(4 ** np.arange(4)[:, None], DType.int64) % 4
    scale = ops.unsqueeze(_half(b, 208) * _float(_signed(b[..., 192:208])), [-1])
    quantized = ops.reshape(_float(low + high * 16 - 32), [*dims(b)[:-1], 16, 16])
    return _flat(scale * quantized, 2)


class Format(NamedTuple):
    """A block format: bytes and elements per block, and a function that decodes bytes along the last axis."""

    size: int
    count: int
    numbers: Callable[[Value], Value]


#: Formats by their number in attributes.
FORMATS = {
    0: Format(4, 1, lambda b: _floats(b, 8, 23)),
    1: Format(2, 1, _half),
    2: Format(18, 32, _four_bits),
    6: Format(22, 32, _five_bits),
    8: Format(34, 32, _eight_bits),
    13: Format(176, 256, _five_bits_in_parts),
    14: Format(210, 256, _six_bits_in_parts),
    20: Format(18, 32, _uneven),
    23: Format(136, 256, _uneven_in_parts),
    30: Format(2, 1, lambda b: _floats(b, 8, 7)),
    42: Format(18, 64, _two_bits),
}

#: Formats of onnxruntime whose code books are not part of the model.
WITH_CODE_BOOKS = (16, 17, 18, 22)


def _unpacked(packed: Value, number: int, columns: int) -> Value:
    """Decode rows of bytes along the last axis to float32 rows of length ``columns``."""
    form = FORMATS[number]
    *outer, _ = dims(packed)
    blocks = ops.cast(ops.reshape(packed, [*outer, columns // form.count, form.size]), to=DType.int64)
    return ops.reshape(form.numbers(blocks), [*outer, columns])


def _wrong(packed: dict[str, Any], number: int, columns: Any) -> str | None:
    """Reason why rows of bytes are invalid in a format, or None."""
    (name, value), *_ = packed.items()
    if number in WITH_CODE_BOOKS:
        return f"format {number} looks numbers up in a code book, which a file does not hold"
    if number not in FORMATS:
        return f"format {number} of {name} is not one of {', '.join(map(str, FORMATS))}"
    if value is None or not isinstance(columns, int):
        return None
    form = FORMATS[number]
    if columns < 1 or columns % form.count:
        return f"rows of {name} are not whole blocks of {form.count} numbers"
    width, wanted = (value.shape[-1] if value.rank else None), columns // form.count * form.size
    return f"rows of {name} do not have {wanted} bytes" if isinstance(width, int) and width != wanted else None


# ----- the ops --------------------------------------------------------------------------------------------------------

_OUTPUTS = {1: DType.float32, 10: DType.float16, 16: DType.bfloat16}
_ACTIVATIONS: dict[str, Callable[[Value], Value]] = {
    "none": lambda x: x,
    "relu2": lambda x: ops.relu(x) * ops.relu(x),
    "relu_squared": lambda x: ops.relu(x) * ops.relu(x),
    "silu": lambda x: ops.swish(x),
}


@op("GatherPacked", domain="com.microsoft")
def gather_packed(data, indices, *, K: int, output_dtype=16, packed_type: int):
    """Gather rows of a packed table; out-of-range indices read its first row."""
    rows = ops.cast(indices, to=DType.int64)
    size = dims(data)[0]
    clipped = ops.where((rows >= 0) & ops.less(rows, size), rows, 0)
    return to(_unpacked(ops.gather(data, clipped), packed_type, K), _OUTPUTS[output_dtype])


gather_packed.traits(on_request=True)


gather_packed.requires(
    shapes(data="rows bytes"),
    dtypes(data="uint8", indices="int32 int64"),
    one_of(output_dtype=_OUTPUTS),
    holds(lambda data, packed_type, K: _wrong({"data": data}, packed_type, K)),
)


@op("MatMulPacked", domain="com.microsoft")
def matmul_packed(A, B, global_scale=None, *, K: int, N: int, activation_type="none", packed_type: int):
    """``A`` times the transpose of packed weights rounded to its dtype, then an activation."""
    if global_scale is not None:
        raise TypeMismatch(f"{matmul_packed.title}: global_scale is of a format that is not among those known here")
    stage = wide(A.dtype)
    weights = to(to(_unpacked(B, packed_type, K), A.dtype), stage)
    y = to(ops.matmul(to(A, stage), ops.transpose(weights, perm=[1, 0])), A.dtype)
    return to(_ACTIVATIONS[activation_type](to(y, stage)), A.dtype)


matmul_packed.traits(on_request=True)


matmul_packed.requires(
    shapes(A="... K", B="N bytes"),
    floats("A"),
    dtypes(B="uint8"),
    one_of(activation_type=_ACTIVATIONS),
    holds(lambda B, packed_type, K: _wrong({"B": B}, packed_type, K)),
)


@op("MoEPacked", domain="com.microsoft")
def moe_packed(
    input,
    router_probs,
    gate_experts_weights,
    up_experts_weights=None,
    down_experts_weights=REQUIRED,
    router_weights=None,
    *,
    activation_type="swiglu",
    down_type: int,
    gate_type: int,
    k=1,
    normalize_routing_weights=1,
    routed_scaling_factor=1.0,
    routing_epsilon=0.0,
    up_type=-1,
):
    """A mixture of experts with packed weights: SwiGLU of two layers or squared Relu of one, and an output layer.

    Experts are the ``k`` with the highest ``router_probs``, weighted by their softmax, or by ``router_weights`` if
    given.
    """
    stage, size = wide(input.dtype), dims(input)[-1]
    x = ops.unsqueeze(to(ops.reshape(input, [-1, size]), stage), [0])
    inner = dims(gate_experts_weights)[1]

    def layer(x: Value, packed: Value, number: int, columns: Any) -> Value:
        weights = to(to(_unpacked(packed, number, columns), input.dtype), stage)
        return ops.matmul(x, ops.transpose(weights, perm=[0, 2, 1]))

    hidden = layer(x, gate_experts_weights, gate_type, size)
    if up_experts_weights is not None:
        hidden = swiglu(hidden, layer(x, up_experts_weights, up_type, size))
    else:
        hidden = ops.relu(hidden) * ops.relu(hidden)
    y = layer(hidden, down_experts_weights, down_type, inner)
    logits = to(router_probs, DType.float32) if router_probs.dtype.bits < 32 else router_probs
    _, chosen = ops.top_k(logits, ops.constant(value_ints=[k]))
    shares = ops.softmax(logits) if router_weights is None else to(router_weights, logits.dtype)
    kept = ops.gather_elements(shares, chosen, axis=-1)
    if normalize_routing_weights:
        total = ops.reduce_sum(kept, [-1]) + routing_epsilon
        kept = ops.where(ops.equal(total, 0.0), 0.0, kept / total)
    weights = ops.scatter_elements(ops.zeros_like(logits), chosen, kept * routed_scaling_factor, axis=-1)
    mixed = y * to(ops.unsqueeze(ops.transpose(weights, perm=[1, 0]), [2]), stage)
    return to(ops.reshape(ops.reduce_sum(mixed, [0], keepdims=0), dims(input)), input.dtype)


moe_packed.traits(on_request=True)


moe_packed.requires(
    shapes(
        input="... hidden",
        router_probs="rows experts",
        router_weights="rows experts",
        gate_experts_weights="experts inner gate_bytes",
        up_experts_weights="experts inner up_bytes",
        down_experts_weights="experts hidden down_bytes",
    ),
    floats("input", "router_probs"),
    same_dtype("router_probs", "router_weights"),
    dtypes(gate_experts_weights="uint8", up_experts_weights="uint8", down_experts_weights="uint8"),
    one_of(activation_type=("swiglu", "relu2", "relu_squared")),
    at_least(k=1),
    holds(
        lambda activation_type, up_experts_weights: (
            "only one of up_experts_weights and activation swiglu is given"
            if (activation_type == "swiglu") != (up_experts_weights is not None)
            else None
        )
    ),
    holds(
        lambda gate_experts_weights, gate_type, hidden: _wrong(
            {"gate_experts_weights": gate_experts_weights}, gate_type, hidden
        )
    ),
    holds(
        lambda up_experts_weights, up_type, hidden: (
            None if up_experts_weights is None else _wrong({"up_experts_weights": up_experts_weights}, up_type, hidden)
        )
    ),
    holds(
        lambda down_experts_weights, down_type, inner: _wrong(
            {"down_experts_weights": down_experts_weights}, down_type, inner
        )
    ),
)
