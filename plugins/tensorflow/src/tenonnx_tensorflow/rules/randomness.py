"""What is drawn at random, and what imitates quantization."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, NotRepresentable, Value, constant
from tenonnx_tensorflow.attributes import dtype_of
from tenonnx_tensorflow.held import as_dtype, int64, number
from tenonnx_tensorflow.rules import rule
from tenonnx_tensorflow.rules.elementwise import erfinv


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
    """The quantile of the normal distribution, of numbers that are uniform between its values at -2 and 2."""
    dtype = dtype_of(node["dtype"])
    wide = DType.float64 if dtype is DType.float64 else DType.float32
    edge = math.erf(math.sqrt(2))
    drawn = ops.random_uniform_like(_like(shape, wide), low=-edge, high=edge, **_seed(node))
    return as_dtype(ops.mul(erfinv(node, drawn), number(math.sqrt(2), wide)), dtype)


@rule("RandomShuffle")
def shuffled(node: Any, x: Value) -> Value:
    """Rows in the order of random numbers."""
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
    """The largest of logits and Gumbel noise is drawn by their softmax (E. J. Gumbel, 1954)."""
    held = as_dtype(logits, DType.float32)
    sizes = ops.shape(held)
    rows, columns = ops.slice_(sizes, [0], [1], [0]), ops.slice_(sizes, [1], [2], [0])
    shape = ops.concat(rows, ops.reshape(int64(count), [1]), columns, axis=0)
    drawn = ops.random_uniform_like(_like(shape, DType.float32), low=1e-7, high=1.0, **_seed(node))
    noise = ops.neg(ops.log(ops.neg(ops.log(drawn))))
    found = ops.argmax(ops.add(ops.unsqueeze(held, [1]), noise), axis=2, keepdims=0)
    return as_dtype(found, dtype_of(node.get("output_dtype", 9)))


@rule("StatelessMultinomial", "StatelessShuffle", "RandomIndexShuffle", "RandomGamma", "RandomGammaV2", "RandomPoissonV2",
      "StatelessRandomGammaV2", "StatelessRandomGammaV3", "StatelessRandomPoisson", "StatelessRandomBinomial",
      "StatelessParameterizedTruncatedNormal", "StatefulStandardNormalV2", "StatefulUniform",
      "StatefulTruncatedNormal", "StatefulUniformInt", "StatefulRandomBinomial")  # fmt: skip
def other_draws(node: Any, *_: Any) -> Any:
    raise NotRepresentable(
        "random numbers must be uniform or normal, or of a seed that is given",
        given=node.title,
        do="use tf.random.uniform, tf.random.normal or tf.random.stateless_uniform, stateless_normal or "
        "stateless_truncated_normal, or draw before the model and give the numbers as an input",
    )


# ----- numbers as quantization would leave them -----------------------------------------------------------------------


def _nudged(low: Any, high: Any, bits: int, narrow: bool) -> tuple[Any, Any, Any]:
    """The scale, and both ends moved so that zero is a code."""
    first, last = number(1 if narrow else 0, low), number(2**bits - 1, low)
    scale = ops.div(ops.sub(high, low), ops.sub(last, first))
    point = ops.sub(first, ops.div(low, scale))
    rounded = ops.floor(ops.add(point, number(0.5, low)))
    zero = ops.clip(rounded, first, last)
    return ops.mul(ops.sub(first, zero), scale), ops.mul(ops.sub(last, zero), scale), scale


def _imitated(x: Value, low: Value, high: Value, node: Any) -> Value:
    start, end, scale = _nudged(low, high, int(node.get("num_bits", 8)), bool(node.get("narrow_range", False)))
    held = ops.minimum(ops.maximum(x, start), end)
    codes = ops.floor(ops.add(ops.div(ops.sub(held, start), scale), number(0.5, x)))
    return ops.add(ops.mul(codes, scale), start)


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
