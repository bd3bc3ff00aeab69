"""Stateless random numbers of TensorFlow, where the seed or the shape may be an input."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf
from judging import Case

L, R = keras.layers, tf.random
_SEED = np.asarray([7, 2**40 + 3], np.int64)
_SEEDS = (np.asarray([1, 2], np.int32), np.asarray([-5, 2**31 - 1], np.int32), _SEED, np.asarray([-1, -(2**63)]))

_FUNCTIONS = {
    **{
        f"uniform_{t.name}": lambda seed, t=t: R.stateless_uniform([3, 7], seed, dtype=t)
        for t in (tf.float16, tf.bfloat16, tf.float32, tf.float64)
    },
    **{
        f"normal_{t.name}": lambda seed, t=t: R.stateless_normal([5, 3], seed, dtype=t)
        for t in (tf.float32, tf.float64)
    },
    **{
        f"truncated_{t.name}": lambda seed, t=t: R.stateless_truncated_normal([11, 13], seed, 1.0, 2.0, t)
        for t in (tf.float32, tf.float64)
    },
    **{
        f"integers_{t.name}": lambda seed, t=t: R.stateless_uniform([9], seed, -5, 100, t) for t in (tf.int32, tf.int64)
    },
    **{
        f"all_{t.name}": lambda seed, t=t: R.stateless_uniform([9], seed, None, None, t)
        for t in (tf.int32, tf.int64, tf.uint32, tf.uint64)
    },
    "large_range": lambda seed: R.stateless_uniform([9], seed, -(2**62), 2**63 - 1, tf.int64),
    "bounds": lambda seed: R.stateless_uniform([2, 1], seed, -3.0, 5.0),
    "scalar": lambda seed: R.stateless_normal([], seed),
    "nothing": lambda seed: R.stateless_uniform([0, 3], seed),
    "old": lambda seed: tf.raw_ops.StatelessRandomNormal(shape=[5], seed=seed),
    "split": lambda seed: R.split(seed, 3),
    "fold_in": lambda seed: R.fold_in(seed, 9),
    "philox": lambda seed: R.stateless_uniform([4], seed, alg="philox"),
    "empty": lambda seed: R.stateless_normal([3, 0], seed),
}


def _as_wide_as(x: tf.Tensor) -> tf.Tensor:
    return x + R.stateless_normal(tf.shape(x), [3, 4])


def _dropout() -> keras.Model:
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input((4,)), L.Dense(8), L.Dropout(0.4, seed=1), L.GaussianNoise(0.1, seed=2)])


class _Generator(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator = R.Generator.from_state([-3, 4, 5], "philox")  # increments of this counter carry over

    @tf.function
    def __call__(self, x: tf.Tensor) -> list[tf.Tensor]:
        return [x + self.generator.normal([3]), self.generator.uniform([2, 5], 0, 9, tf.int32)]


def _generator() -> tf.Module:
    return _Generator()


_BY_SEED = {
    f"{name}_{k}": Case(lambda f=f: tf.function(f), (seed,), opsets=(13, 21))
    for name, f in _FUNCTIONS.items()
    for k, seed in enumerate(_SEEDS if name in ("uniform_float32", "all_int64") else _SEEDS[2:3])
}
CASES = _BY_SEED | {
    "shape": Case(lambda: tf.function(_as_wide_as), (tf.TensorSpec([None, 3], name="x"),)),
    "no_seed_of_an_input": Case(
        lambda: tf.function(lambda x: x + R.stateless_uniform([3], [3, 4])), (np.ones(3, np.float32),)
    ),
    "dropout": Case(_dropout, options={"training": True}),
    "generator": Case(_generator, (np.ones(3, np.float32),)),
    "multinomial": Case(
        lambda: tf.function(lambda x: R.stateless_categorical(x, 2, [1, 2])),
        (np.ones((2, 3), np.float32),),
        refused="StatelessMultinomial",
    ),
}
