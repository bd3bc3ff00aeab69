"""Random numbers and fake quantization."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, NotRepresentable, Value, constant
from tenonnx_tensorflow.attributes import dtype_of
from tenonnx_tensorflow.rules import rule
from tenonnx_tensorflow.rules.elementwise import erfinv
from tenonnx_tensorflow.tracked_values import as_dtype, int64, integers, number


def _seed(node: Any) -> Any:
    seed = int(node.get("seed2", 0)) or int(node.get("seed", 0))
    return {"seed": float(seed)} if seed else {}


def _like(shape: Value, dtype: DType) -> Value:
    return ops.expand(constant(np.zeros((), dtype.numpy)), int64(shape))


@rule("RandomUniform")
def uniform(node: Any, shape: Value) -> Value:
    return ops.random_uniform_like(_like(shape, dtype_of(node["dtype"])), **_seed(node))


@rule("RandomStandardNormal")
def normal(node: Any, shape: Value) -> Value:
    return ops.random_normal_like(_like(shape, dtype_of(node["dtype"])), **_seed(node))


@rule("TruncatedNormal")
def truncated(node: Any, shape: Value) -> Value:
    """Truncated normal numbers: the normal quantile function of uniform numbers between Phi(-2) and Phi(2)."""
    dtype = dtype_of(node["dtype"])
    wide = DType.float64 if dtype is DType.float64 else DType.float32
    edge = math.erf(math.sqrt(2))
    drawn = ops.random_uniform_like(_like(shape, wide), low=-edge, high=edge, **_seed(node))
    return as_dtype(ops.mul(erfinv(node, drawn), number(math.sqrt(2), wide)), dtype)


@rule("RandomShuffle")
def shuffled(node: Any, x: Value) -> Value:
    """Shuffle the rows: sort them by random numbers."""
    count = ops.slice_(ops.shape(x), [0], [1], [0])
    _, order = ops.top_k(ops.random_uniform_like(_like(count, DType.float32), **_seed(node)), count)
    return ops.gather(x, order, axis=0)


@rule("RandomUniformInt")
def uniform_integers(node: Any, shape: Value, low: Value, high: Value) -> Value:
    drawn = ops.random_uniform_like(_like(shape, DType.float32), **_seed(node))
    span = ops.cast(ops.sub(high, low), to=DType.float32)
    offset = as_dtype(ops.floor(ops.mul(drawn, span)), low.dtype)
    return ops.minimum(ops.add(offset, low), ops.sub(high, number(1, high)))


@rule("Multinomial")
def multinomial(node: Any, logits: Value, count: Value) -> Value:
    """Sample classes by the Gumbel-max trick (E. J. Gumbel, 1954)."""
    logits_ = as_dtype(logits, DType.float32)
    sizes = ops.shape(logits_)
    rows, columns = ops.slice_(sizes, [0], [1], [0]), ops.slice_(sizes, [1], [2], [0])
    shape = ops.concat(rows, ops.reshape(int64(count), [1]), columns, axis=0)
    drawn = ops.random_uniform_like(_like(shape, DType.float32), low=1e-7, high=1.0, **_seed(node))
    noise = ops.neg(ops.log(ops.neg(ops.log(drawn))))
    found = ops.argmax(ops.add(ops.unsqueeze(logits_, [1]), noise), axis=2, keepdims=0)
    return as_dtype(found, dtype_of(node.get("output_dtype", 9)))


@rule(
    "StatelessMultinomial",
    "StatelessShuffle",
    "RandomIndexShuffle",
    "RandomGamma",
    "RandomGammaV2",
    "RandomPoissonV2",
    "StatelessRandomGammaV2",
    "StatelessRandomGammaV3",
    "StatelessRandomPoisson",
    "StatelessRandomBinomial",
    "StatelessParameterizedTruncatedNormal",
    "StatefulStandardNormalV2",
    "StatefulUniform",
    "StatefulTruncatedNormal",
    "StatefulUniformInt",
    "StatefulRandomBinomial",
)
def other_draws(node: Any, *_: Any) -> Any:
    raise NotRepresentable(
        "random numbers are neither uniform, normal nor seeded",
        given=node.title,
        do="use tf.random.uniform, tf.random.normal or tf.random.stateless_uniform, stateless_normal or "
        "stateless_truncated_normal, or draw before the model and give the numbers as an input",
    )


# ----- fake quantization ----------------------------------------------------------------------------------------------


def _nudged(low: Any, high: Any, bits: int, narrow: bool) -> tuple[Any, Any, Any]:
    """The scale, and a range shifted so that zero is a quantized value."""
    first, last = number(1 if narrow else 0, low), number(2**bits - 1, low)
    scale = ops.div(ops.sub(high, low), ops.sub(last, first))
    point = ops.sub(first, ops.div(low, scale))
    rounded = ops.floor(ops.add(point, number(0.5, low)))
    zero = ops.clip(rounded, first, last)
    return ops.mul(ops.sub(first, zero), scale), ops.mul(ops.sub(last, zero), scale), scale


def _imitated(x: Value, low: Value, high: Value, node: Any) -> Value:
    start, end, scale = _nudged(low, high, int(node.get("num_bits", 8)), bool(node.get("narrow_range", False)))
    clipped = ops.minimum(ops.maximum(x, start), end)
    quantized = ops.floor(ops.add(ops.div(ops.sub(clipped, start), scale), number(0.5, x)))
    return ops.add(ops.mul(quantized, scale), start)


@rule("FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxVarsPerChannel")
def fake_quantized(node: Any, x: Value, low: Value, high: Value) -> Value:
    none = ops.and_(ops.equal(low, number(0, low)), ops.equal(high, number(0, high)))
    one = ops.where(none, number(1, high), high)
    return ops.where(none, ops.zeros_like(x), _imitated(x, low, one, node))


@rule("FakeQuantWithMinMaxArgs")
def fake_quantized_by_numbers(node: Any, x: Value) -> Value:
    low, high = (
        constant(np.asarray(node.get(name, default), np.float32)) for name, default in (("min", -6.0), ("max", 6.0))
    )
    return _imitated(x, low, high, node)


@rule("QuantizeAndDequantizeV2", "QuantizeAndDequantizeV4")
def quantized_and_back(node: Any, x: Value, low: Value, high: Value) -> Value:
    return _by_a_symmetric_scale(node, x, low, high, int(node.get("num_bits", 8)))


@rule("QuantizeAndDequantizeV3")
def quantized_and_back_by_inputs(node: Any, x: Value, low: Value, high: Value, bits: Value) -> Value:
    (count,) = integers(bits, "the number of bits")
    return _by_a_symmetric_scale(node, x, low, high, count)


def _by_a_symmetric_scale(node: Any, x: Value, low: Value, high: Value, bits: int) -> Value:
    """Quantize symmetrically and dequantize, with a scale, or one per slice of ``axis``, that covers the range."""
    axis, is_signed = int(node.get("axis", -1)), bool(node.get("signed_input", True))
    last = 2 ** (bits - 1) - 1 if is_signed else 2**bits - 1
    first = 0
    if is_signed:
        first = -last if node.get("narrow_range", False) else -last - 1
    others = [k for k in range(x.ndim) if k != axis]
    shape = [-1 if k == axis else 1 for k in range(x.ndim)] if axis >= 0 else []
    if node.get("range_given", False):
        low, high = (
            ops.reshape(low, constant(np.asarray(shape, np.int64))),
            ops.reshape(high, constant(np.asarray(shape, np.int64))),
        )
    else:
        low, high = ops.reduce_min(x, others, keepdims=1), ops.reduce_max(x, others, keepdims=1)
    zero, one = number(0, x), number(1, x)
    largest = number(np.finfo(x.dtype.numpy).max, x)
    scales = []
    for code, end in ((first, low), (last, high)):
        same_side = ops.greater(ops.mul(end, number(code, x)), zero)
        scales.append(ops.where(same_side, ops.div(number(code, x), ops.where(same_side, end, one)), largest))
    scale = ops.minimum(*scales)
    if first:
        by_low = ops.less(*scales)
        inverse = ops.where(by_low, ops.div(low, number(first, x)), ops.div(high, number(last, x)))
    else:
        inverse = ops.div(high, number(last, x))
    if node.get("range_given", False):
        x = ops.maximum(ops.minimum(x, ops.mul(number(last, x), inverse)), ops.mul(number(first, x), inverse))
    scaled = ops.mul(x, scale)
    up = node.get("round_mode", "HALF_TO_EVEN") == "HALF_UP"
    rounded = ops.floor(ops.add(scaled, number(0.5, x))) if up else ops.round_(scaled)
    return ops.mul(rounded, inverse)
