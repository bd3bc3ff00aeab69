"""Einsum with random equations, directly and at older opsets, against numpy."""

from __future__ import annotations

import random

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops

SIZES = {"i": 2, "j": 3, "k": 4, "l": 5}


def drawn(seed):
    """A random equation, each letter of which has an axis of distinct length."""
    chosen = random.Random(seed)
    terms = ["".join(chosen.sample("ijkl", chosen.randint(1, 3))) for _ in range(chosen.randint(1, 4))]
    letters = sorted(set("".join(terms)))
    return f"{','.join(terms)}->{''.join(chosen.sample(letters, chosen.randint(0, len(letters))))}"


@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.parametrize("equation", sorted({drawn(seed) for seed in range(60)}))
def test_einsum_is_that_of_numpy(equation, opset):
    normal = np.random.default_rng(0)
    terms = equation.partition("->")[0].split(",")
    arrays = [normal.normal(size=[SIZES[letter] for letter in term]).astype("f4") for term in terms]
    graph = tx.Graph(opsets={"ai.onnx": 17})
    inputs = [graph.input(f"x{place}", "float32", array.shape) for place, array in enumerate(arrays)]
    graph.output("y", ops.einsum(*inputs, equation=equation))
    moved = tx.retarget(graph, opset)
    assert ("Einsum" in {node.op_type for node in moved.nodes}) == (opset >= 12)
    result = moved.run({value.name: array for value, array in zip(inputs, arrays, strict=True)}, backend="numpy")
    np.testing.assert_allclose(result["y"], np.einsum(equation, *arrays), rtol=1e-4, atol=1e-5)
