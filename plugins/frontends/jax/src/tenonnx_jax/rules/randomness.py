"""Random keys and bits, traced from JAX's own generators."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import random as generators

import tenonnx_standard as ops
from tenonnx.extend import DType, NotRepresentable, Value, constant
from tenonnx_jax.rules import composed, of_parts, rule
from tenonnx_jax.rules.shapes import counted, reshaped
from tenonnx_jax.types import Parts


def _generator(aval: Any) -> Any:
    """The random generator of a kind of keys."""
    dtype_name = str(aval.dtype)
    if dtype_name != "key<fry>":
        raise NotRepresentable("keys are not of Threefry, the generator that JAX uses by default", given=dtype_name)
    return generators.threefry_prng_impl


@composed("threefry2x32")
def threefry(key_0: Any, key_1: Any, x_0: Any, x_1: Any, **_: Any) -> Any:
    """Threefry: twenty rounds of additions, rotations and exclusive ors (Salmon et al. 2011)."""
    keys = [key_0, key_1, key_0 ^ key_1 ^ np.uint32(0x1BD11BDA)]
    x = [x_0 + keys[0], x_1 + keys[1]]
    rotations = ((13, 15, 26, 6), (17, 29, 16, 24))
    for turn in range(5):
        for by in rotations[turn % 2]:
            x[0] = x[0] + x[1]
            x[1] = x[0] ^ ((x[1] << np.uint32(by)) | (x[1] >> np.uint32(32 - by)))
        x = [x[0] + keys[(turn + 1) % 3], x[1] + keys[(turn + 2) % 3] + np.uint32(turn + 1)]
    return tuple(x)


@rule("iota_2x32_shape")
def iota_2x32_shape_rule(equation: Any, *_: Any, shape: Any, **__: Any) -> Any:
    """Positions in order, as high and low words."""
    total: Any = 1
    for dim in shape:
        total = total * dim
    places = reshaped(equation, counted(equation, (total,), 0), shape)
    word = constant(np.asarray(1 << 32, np.int64))
    return [ops.cast(part, to=DType.uint32) for part in (ops.div(places, word), ops.mod(places, word))]


def _words(key: Any) -> Any:
    """The words of keys along a last axis, as in the generators."""
    words = [ops.unsqueeze(part, [part.ndim]) for part in key]
    return ops.concat(*words, axis=words[0].ndim - 1)


def _split(words: Value) -> Parts:
    last = words.ndim - 1
    return Parts(ops.gather(words, constant(np.asarray(k, np.int64)), axis=last) for k in range(2))


def _traced(equation: Any, function: Any, key: Any, *values: Any) -> Any:
    """Result of a function of one key's words, vectorized over several keys."""
    aval = equation.ins[0]
    for _ in aval.shape:
        function = jax.vmap(function)
    kinds = [jax.ShapeDtypeStruct((*aval.shape, 2), jnp.uint32)]
    kinds += [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in equation.ins[1:]]
    (result,) = equation.run(jax.make_jaxpr(function)(*kinds), [_words(key), *values])
    return result


@rule("random_wrap")
def random_wrap_rule(equation: Any, words: Value, **_: Any) -> Any:
    _generator(equation.out)
    return _split(words)


@of_parts("random_unwrap")
def random_unwrap_of_parts(equation: Any, key: Any, **_: Any) -> Any:
    return _words(key)


of_parts("random_wrap")(lambda equation, words, **_: _split(words))
of_parts("random_clone")(lambda equation, key, **_: key)


@of_parts("random_seed")
def random_seed_of_parts(equation: Any, seed: Value, **_: Any) -> Any:
    generator, aval = _generator(equation.out), equation.ins[0]
    function = generator.seed
    for _axis in aval.shape:
        function = jax.vmap(function)
    (words,) = equation.run(jax.make_jaxpr(function)(jax.ShapeDtypeStruct(aval.shape, aval.dtype)), [seed])
    from tenonnx_jax.interpreter import as_value

    return _split(as_value(words))


@of_parts("random_split")
def random_split_of_parts(equation: Any, key: Any, *, shape: Any, **_: Any) -> Any:
    generator = _generator(equation.ins[0])
    return _as_key(_traced(equation, lambda words: generator.split(words, tuple(shape)), key))


@of_parts("random_fold_in")
def random_fold_in_of_parts(equation: Any, key: Any, data: Value, **_: Any) -> Any:
    generator = _generator(equation.ins[0])
    return _as_key(_traced(equation, lambda words, number: generator.fold_in(words, number), key, data))


@of_parts("random_bits")
def random_bits_of_parts(equation: Any, key: Any, *, bit_width: int, shape: Any, **_: Any) -> Any:
    generator = _generator(equation.ins[0])
    from tenonnx_jax.interpreter import as_value

    return as_value(_traced(equation, lambda words: generator.random_bits(words, bit_width, tuple(shape)), key))


def _as_key(words: Any) -> Any:
    from tenonnx_jax.interpreter import as_value

    return _split(as_value(words))
