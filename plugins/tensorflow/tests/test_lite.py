"""What is quantized stays so in a file, and lies channels first."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from cases.lite import CASES

import tenonnx as tx


@pytest.mark.parametrize(("name", "count"), [("network_int8", 4), ("network_int16", 4), ("perceptron_dynamic", 2)])
def test_weights_are_codes(name: str, count: int) -> None:
    """With a dynamic range, TensorFlow leaves weights of few elements as they are."""
    graph = tx.load(CASES[name].make(), verify=False)
    makers = [n.inputs[1].producer for n in graph.nodes if n.op_type in ("Conv", "MatMul", "Gemm")]
    codes = [made.inputs[0] for made in makers if made is not None and made.op_type == "DequantizeLinear"]
    assert len(codes) == count
    assert all(value.is_constant and str(value.dtype) == "int8" for value in codes)


@pytest.mark.parametrize("name", ["network_int8", "network_int16"])
def test_codes_lie_channels_first(name: str) -> None:
    graph = tx.load(CASES[name].make(), verify=False)
    assert [n.op_type for n in graph.nodes].count("Transpose") == 1  # that of the images


def test_weights_by_channel_are_not_quantized_again() -> None:
    """onnxruntime makes codes by one scale of float weights between codes."""
    graph = tx.load(CASES["dense_int16"].make())
    x = np.random.default_rng(0).normal(size=(2, 6, 6, 4)).astype(np.float32)
    found = [graph.run({graph.inputs[0].name: x}, backend=name) for name in ("numpy", "onnxruntime")]
    step = max(float(n.inputs[1].data.array().max()) for n in graph.nodes if n.op_type == "QuantizeLinear")
    for one, other in zip(*(each.values() for each in found), strict=True):
        np.testing.assert_allclose(one, other, atol=1.01 * step)
