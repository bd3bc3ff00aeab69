"""Stateless random numbers: TensorFlow's Philox generator (J. K. Salmon et al., 2011) in integer arithmetic.

A generator numbers its blocks, of four 32-bit words each, and scrambles each number by a key. Words and keys are int64
below 2**32, since runtimes have few ops for unsigned integers; 64-bit integers of TensorFlow are pairs of words.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, NotRepresentable, Value, constant, static
from tenonnx_tensorflow.attributes import dtype_of
from tenonnx_tensorflow.rules import rule
from tenonnx_tensorflow.tracked_values import as_dtype, int64, number, scalar

WORD = 1 << 32
#: Factors of the first and the third word in each round, increments of the key, and the number of rounds.
_FACTORS, _STEPS, _ROUNDS = ((0xD2511F53,), (0xCD9E8D57,)), ((0x9E3779B9,), (0xBB67AE85,)), 10
#: Key with which TensorFlow derives key and counter from a seed.
_OF_SEEDS = ((0x3EC8F720,), (0x02461E29,))
#: TensorFlow's numbers of algorithms: Philox, and the device's choice, which is Philox except on TPUs.
_PHILOX, _OF_DEVICE = 1, 3
#: Number of blocks that TensorFlow reserves for four results with rejections, and number of them to compute. Eight
#: blocks leave too few results less than once in 10**19 times.
_KEPT, _LOOKED_AT = 256, 8


class Blocks(NamedTuple):
    """A generator: key as a column of two words, counter as a column of four."""

    key: Value
    counter: Value

    def words(self, places: Value) -> Value:
        """The words of the blocks at these indices, as rows of four."""
        low = ops.add(_row(self.counter, 0), ops.unsqueeze(places, [0]))
        second = ops.add(_row(self.counter, 1), ops.div(low, number(WORD, low)))
        rest = ops.expand(ops.slice_(self.counter, [2], [4], [0]), ops.concat([1], ops.shape(places), axis=0))
        return ops.transpose(_scrambled(self.key, ops.concat(_word(low), _word(second), rest, axis=0)), perm=[1, 0])


def _row(x: Value, k: int) -> Value:
    return ops.slice_(x, [k], [k + 1], [0])


def _range(count: Value) -> Value:
    return ops.range_(number(0, DType.int64), scalar(count), number(1, DType.int64))


def _word(x: Value) -> Value:
    """Integers modulo 2**32."""
    return ops.mod(x, number(WORD, DType.int64))


def _column(*numbers: tuple[int, ...]) -> Value:
    return constant(np.asarray(numbers, np.int64))


def _scrambled(key: Value, counter: Value) -> Value:
    """Scramble counters, columns of four words, by a key, a column of two."""
    half = number(1 << 16, DType.int64)
    even, odd = (ops.gather(counter, constant(np.asarray([k, k + 2])), axis=0) for k in range(2))
    for k in range(_ROUNDS):
        by_step = _word(ops.add(key, ops.mul(_column(*_STEPS), number(k, DType.int64))))
        low, high = (ops.mul(part, _column(*_FACTORS)) for part in (ops.mod(even, half), ops.div(even, half)))
        product = ops.add(ops.div(low, half), high)  # without its last 16 bits, below 2**49
        swapped = constant(np.asarray([1, 0]))
        outer = ops.gather(ops.div(product, half), swapped, axis=0)
        inner = _word(ops.add(low, ops.mul(ops.mod(high, half), half)))
        even = ops.bitwise_xor(ops.bitwise_xor(outer, odd), by_step)
        odd = ops.gather(inner, swapped, axis=0)
    return ops.gather(ops.concat(even, odd, axis=0), constant(np.asarray([0, 2, 1, 3])), axis=0)


def _halves(x: Value) -> Value:
    """The two words of 64-bit integers, along a new last axis."""
    signed = as_dtype(x, DType.int64)
    low = _word(signed)
    high = _word(ops.div(ops.sub(signed, low), number(WORD, signed)))
    return ops.concat(ops.unsqueeze(low, [x.ndim]), ops.unsqueeze(high, [x.ndim]), axis=x.ndim)


def _joined(low: Value, high: Value) -> Value:
    """The int64 integers with these words."""
    half = number(WORD >> 1, high)
    signed = ops.sub(ops.mod(ops.add(high, half), number(WORD, high)), half)
    return ops.add(ops.mul(signed, number(WORD, high)), low)


def _of_seed(seed: Value) -> Blocks:
    words = ops.reshape(_halves(seed), [4, 1])
    mixed = _scrambled(_column(*_OF_SEEDS), words)
    zeros = _column((0,), (0,))
    return Blocks(ops.slice_(mixed, [0], [2], [0]), ops.concat(zeros, ops.slice_(mixed, [2], [4], [0]), axis=0))


def _of_key(node: Any, key: Value, counter: Value, algorithm: Value) -> Blocks:
    contents = static(algorithm)
    if contents is None or int(contents) not in (_PHILOX, _OF_DEVICE):
        raise NotRepresentable(
            "seeded random numbers are not those of Philox",
            given=f"{node.title} of algorithm {contents}",
            do='alg="philox"',
        )
    return Blocks(ops.reshape(_halves(key), [2, 1]), ops.reshape(_halves(counter), [4, 1]))


@rule("StatelessRandomGetKeyCounter", outputs="key counter")
def key_and_counter(node: Any, seed: Value) -> list[Value]:
    pair = _of_seed(seed)
    pairs = [ops.reshape(words, [-1, 2]) for words in pair]
    joined = (_joined(*(ops.squeeze(ops.slice_(p, [k], [k + 1], [1]), [1]) for k in range(2))) for p in pairs)
    return [ops.cast(each, to=DType.uint64) for each in joined]


@rule("StatelessRandomGetKeyCounterAlg", outputs="key counter alg")
def key_counter_and_algorithm(node: Any, seed: Value) -> list[Value]:
    return [*key_and_counter(node, seed), number(_PHILOX, DType.int32)]


@rule("StatelessRandomGetAlg")
def algorithm(node: Any) -> Value:
    return number(_PHILOX, DType.int32)


# ----- numbers --------------------------------------------------------------------------------------------------------


def _drawn(shape: Value, each: int, draw: Callable[[Value], Value]) -> Value:
    """Results of a shape, with ``each`` results per block; ``draw`` computes them from block indices."""
    sizes = int64(shape)
    total = ops.reduce_prod(sizes, keepdims=0)
    count = ops.div(ops.add(total, number(each - 1, total)), number(each, total))
    flat = ops.slice_(ops.reshape(draw(_range(count)), [-1]), [0], ops.reshape(total, [1]), [0])
    return ops.reshape(flat, sizes, allowzero=1)


def _pairs(words: Value) -> tuple[Value, Value]:
    """The first and the second of each pair of words."""
    pairs = ops.reshape(words, [-1, 2])
    return ops.slice_(pairs, [0], [1], [1]), ops.slice_(pairs, [1], [2], [1])


#: Number of fraction bits of floats, which are random.
_FRACTIONS = {DType.float16: 10, DType.bfloat16: 7, DType.float32: 23, DType.float64: 52}


def _wide(dtype: DType) -> DType:
    """The type in which numbers are computed."""
    return DType.float64 if dtype is DType.float64 else DType.float32


def _uniform(words: Value, dtype: DType) -> Value:
    """Words as numbers in [0, 1); float64 uses two words for each."""
    bits = _FRACTIONS[dtype]
    if dtype is DType.float64:
        low, high = _pairs(words)
        whole = ops.add(ops.mul(ops.mod(low, number(1 << 20, low)), number(WORD, low)), high)
    else:
        whole = ops.mod(words, number(1 << bits, words))
    return as_dtype(ops.mul(ops.cast(whole, to=_wide(dtype)), number(2.0**-bits, _wide(dtype))), dtype)


def _normal(words: Value, dtype: DType) -> Value:
    """Normal numbers in pairs, from uniform ones (G. E. P. Box and M. E. Muller, 1958)."""
    wide = _wide(dtype)
    first, second = _pairs(_uniform(words, wide))
    angle = as_dtype(ops.mul(as_dtype(second, DType.float64), number(2 * math.pi, DType.float64)), wide)
    least = ops.maximum(first, number(1e-7, wide))
    size = ops.sqrt(ops.mul(ops.log(least), number(-2, wide)))
    return ops.concat(ops.mul(ops.sin(angle), size), ops.mul(ops.cos(angle), size), axis=1)


def _truncated(blocks: Blocks, places: Value, each: int, dtype: DType) -> Value:
    """Normal numbers below 2 in absolute value, by rejection: the first valid ones of a sufficient number."""
    starts = ops.mul(ops.unsqueeze(places, [1]), number(_KEPT * each // 4, places))
    places = ops.reshape(ops.add(starts, constant(np.arange(_LOOKED_AT))), [-1])
    found = ops.reshape(_normal(blocks.words(places), _wide(dtype)), [-1, _LOOKED_AT * each])
    order = constant(np.arange(_LOOKED_AT * each))
    late = ops.where(ops.less(ops.absolute(found), number(2, found)), order, number(_LOOKED_AT * each, order))
    _, chosen = ops.top_k(late, [each], axis=1, largest=0)
    return as_dtype(ops.gather_elements(found, chosen, axis=1), dtype)


def _among(words: Value, low: Value, high: Value) -> Value:
    """Integers from ``low`` to below ``high``, by modulo."""
    if low.dtype is not DType.int64:
        start, end = (ops.cast(v, to=DType.int64) for v in (low, high))
        return as_dtype(ops.add(ops.mod(words, ops.sub(end, start)), start), low.dtype)
    whole = ops.cast(_joined(*_pairs(words)), to=DType.uint64)
    rest = ops.mod(whole, ops.cast(ops.sub(high, low), to=DType.uint64))
    return ops.add(ops.cast(rest, to=DType.int64), low)


def _whole(words: Value, dtype: DType) -> Value:
    """Integers with all bits random."""
    if dtype.bits == 64:
        return as_dtype(_joined(*_pairs(words)), dtype)
    half = number(WORD >> 1, words)
    signed = ops.sub(ops.mod(ops.add(words, half), number(WORD, words)), half)
    return as_dtype(signed if dtype.is_signed else words, dtype)


def _numbers(node: Any, shape: Value, blocks: Blocks, *bounds: Value) -> Value:
    dtype, sizes = dtype_of(node["dtype"]), static(shape)
    if sizes is not None and not sizes.all():
        return constant(np.zeros(sizes, dtype.numpy))
    each = 2 if dtype.bits == 64 else 4
    kind = node.op.removeprefix("Stateless").removesuffix("V2")
    if kind == "TruncatedNormal":
        return _drawn(shape, each, lambda places: _truncated(blocks, places, each, dtype))
    if kind == "RandomUniformInt":
        return _drawn(shape, each, lambda places: _among(blocks.words(places), *bounds))
    kinds = {"RandomUniform": _uniform, "RandomNormal": _normal, "RandomUniformFullInt": _whole}
    return _drawn(shape, each, lambda places: as_dtype(kinds[kind](blocks.words(places), dtype), dtype))


_KINDS = ("RandomUniform", "RandomNormal", "TruncatedNormal", "RandomUniformInt", "RandomUniformFullInt")


@rule(*(f"Stateless{kind}" for kind in _KINDS))
def by_seed(node: Any, shape: Value, seed: Value, *bounds: Value) -> Value:
    return _numbers(node, shape, _of_seed(seed), *bounds)


@rule(*(f"Stateless{kind}V2" for kind in _KINDS))
def by_key(node: Any, shape: Value, key: Value, counter: Value, chosen: Value, *bounds: Value) -> Value:
    return _numbers(node, shape, _of_key(node, key, counter, chosen), *bounds)


@rule("RngReadAndSkip", interpreter=True)
def skipped(interpreter: Any, node: Any, variable: Any, chosen: Value, delta: Value) -> Value:
    """Counter and key of a generator, before advancing it by a number of results."""
    state: Value = interpreter.state.read(variable)
    low, high, key = (ops.slice_(state, [k], [k + 1], [0]) for k in range(3))
    after = ops.add(low, ops.mul(as_dtype(delta, DType.int64), number(_KEPT, low)))
    first = number(np.iinfo(np.int64).min, low)  # offset with which signed comparisons order unsigned numbers
    carried = ops.cast(ops.less(ops.add(after, first), ops.add(low, first)), to=DType.int64)
    interpreter.state.assign(variable, ops.concat(after, ops.add(high, carried), key, axis=0))
    return state
