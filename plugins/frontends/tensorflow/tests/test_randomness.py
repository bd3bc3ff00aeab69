"""Random outputs without a seed: reported as unverified, and checked statistically."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tenonnx as tx
from tenonnx_tensorflow.frontend import verifier

DRAWS = {
    "uniform": (lambda x: x + tf.random.uniform([500]), 0.5, 1 / 12**0.5),
    "normal": (lambda x: x + tf.random.normal([500], seed=3), 0.0, 1.0),
    "truncated": (lambda x: x + tf.random.truncated_normal([500]), 0.0, 0.88),
    "integers": (lambda x: x + tf.cast(tf.random.uniform([500], 0, 9, tf.int32), tf.float32), 4.0, 2.58),
    "shuffled": (lambda x: tf.random.shuffle(x + tf.range(500.0)), 249.5, 144.3),
}


@pytest.mark.parametrize("name", DRAWS)
def test_random_outputs_are_not_verified(name: str) -> None:
    draw, mean, deviation = DRAWS[name]
    function, x = tf.function(lambda x: [draw(x), x * 2.0]), np.zeros(500, np.float32)
    graph = tx.load(function, x)
    result = graph.run({"x": x})
    first = np.asarray(result[graph.outputs[0].name])
    assert abs(first.mean() - mean) < 0.2 * deviation
    assert abs(first.std() - deviation) < 0.1 * deviation
    if name == "truncated":
        assert np.abs(first).max() <= 2
    if name == "shuffled":
        assert np.array_equal(np.sort(first), np.arange(500.0))
        assert not np.array_equal(first, np.arange(500.0))
    verification = _verification(function, x)
    assert list(verification.unverified) == [graph.outputs[0].name]
    assert "drawn at random" in verification.summary()
    assert not verification.problems


def _verification(function: Any, x: Any) -> Any:
    compare = verifier(function, x)
    assert compare is not None
    return compare(tx.load(function, x, verify=False))


def test_unknown_options_are_refused() -> None:
    with pytest.raises(tx.InvalidCall, match="color"):
        tx.load(tf.function(lambda x: x), np.zeros(3, np.float32), color="red")
