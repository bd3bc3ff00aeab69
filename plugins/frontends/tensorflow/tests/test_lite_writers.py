"""LiteRT files of writers other than TensorFlow's converter."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from lite_files import Op, T, built

import tenonnx as tx
from tenonnx_frontends import UnverifiedWarning
from tenonnx_litert.reading.frontend import verifier
from tenonnx_litert.reading.verification import Interpreter

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(2, 8)).astype(np.float32)
QUANTIZED = RANDOM.integers(-8, 8, (4, 8))


def compared(path: Path, *arrays: Any) -> Any:
    """Outputs of a graph on numpy, after comparison with the interpreter."""
    graph = tx.load(path)
    result = list(graph.run({v.name: a for v, a in zip(graph.inputs, arrays, strict=True)}, backend="numpy").values())
    for one, other in zip(result, Interpreter(path)(arrays), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    return graph, result


@pytest.mark.parametrize("has_old_codes", [True, False])
def test_numbers_of_operators_are_read_from_either_field(has_old_codes: bool) -> None:
    weights = T(QUANTIZED.astype(np.int8), scale=[0.1, 0.2, 0.3, 0.4])
    tensors = [T(shape=(2, 8)), weights, T(shape=(4, 8)), T(shape=(2, 4)), T(shape=(2, 4))]
    operators = [
        Op("DEQUANTIZE", [1], [2]),
        Op("FULLY_CONNECTED", [0, 2, -1], [3], ("FullyConnectedOptions", {})),
        Op("SOFTMAX", [3], [4], ("SoftmaxOptions", {"beta": 1.0})),
    ]
    _, (result,) = compared(built(tensors, operators, [0], [4], has_old_codes=has_old_codes), X)
    real = X @ (QUANTIZED * np.asarray([[0.1], [0.2], [0.3], [0.4]])).T
    np.testing.assert_allclose(result, np.exp(real) / np.exp(real).sum(1, keepdims=True), rtol=1e-5)


def composites(*, deep: bool) -> Path:
    """A file with a composite op that halves its input, ``deep`` by a nested composite."""

    def composite(number: int, *places: int) -> Op:
        options = {"name": "acme.half", "decompositionSubgraphIndex": number, "version": 1}
        return Op("STABLEHLO_COMPOSITE", places[:-1], places[-1:], options_2=("StableHLOCompositeOptions", options))

    pair = [T(shape=(2, 8)), T(shape=(2, 8))]
    half = ([*pair, T(np.float32(0.5))], [Op("MUL", [0, 2], [1], ("MulOptions", {}))], [0], [1])
    others = [(pair, [composite(2, 0, 1)], [0], [1]), half] if deep else [half]
    return built(pair, [composite(1, 0, 1)], [0], [1], *others)


def test_composites_are_replaced_by_their_graph() -> None:
    _, (result,) = compared(composites(deep=False), X)
    np.testing.assert_array_equal(result, X / 2)


def test_a_file_that_crashes_the_interpreter_leaves_the_caller_alive() -> None:
    """The interpreter of TensorFlow 2.21 crashes on nested composites."""
    path = composites(deep=True)
    with pytest.warns(UnverifiedWarning, match="crashed its process"):
        graph = tx.load(path)
    np.testing.assert_array_equal(next(iter(graph.run({graph.inputs[0].name: X}).values())), X / 2)
    result = verifier(path)(graph)
    assert not result.outputs
    assert any("crashed its process" in note for note in result.notes)
    compared(composites(deep=False), X)  # in a new process


def test_a_constant_is_an_output_under_its_name() -> None:
    held = np.asarray([1, 2, 3, 4], np.float32)
    tensors = [T(shape=(2, 8)), T(held), T(shape=(2, 8))]
    path = built(tensors, [Op("ADD", [0, 0], [2], ("AddOptions", {}))], [0], [2, 1])
    graph, (_, result) = compared(path, X)
    assert [value.name for value in graph.outputs] == ["tensor_2", "tensor_1"]
    np.testing.assert_array_equal(result, held)


def test_scales_of_blocks() -> None:
    """4-bit weights with one scale for every four elements of a row."""
    scales = RANDOM.uniform(0.1, 1, (4, 2)).astype(np.float16)
    tensors = [
        T(shape=(2, 8)),
        T(QUANTIZED.astype(ml_dtypes.int4), blocks=(2, 4)),
        T(scales),
        T(shape=(2, 4)),
    ]
    path = built(tensors, [Op("FULLY_CONNECTED", [0, 1, -1], [3], ("FullyConnectedOptions", {}))], [0], [3])
    graph = tx.load(path, verify=False)
    real = QUANTIZED * np.repeat(scales.astype(np.float32), 4, axis=1)
    for backend in ("numpy", "onnxruntime"):
        (result,) = graph.run({graph.inputs[0].name: X}, backend=backend).values()
        np.testing.assert_allclose(result, X @ real.T, rtol=0.05, atol=0.3)  # activations are quantized


@pytest.mark.parametrize("block", [0, 3])
def test_blocks_that_do_not_fit_are_refused(block: int) -> None:
    tensors = [T(shape=(2, 8)), T(QUANTIZED.astype(ml_dtypes.int4), blocks=(2, block)), T(np.ones((4, 2), np.float16))]
    path = built([*tensors, T(shape=(2, 4))], [Op("FULLY_CONNECTED", [0, 1, -1], [3])], [0], [3])
    with pytest.raises(tx.InvalidModel, match="no scales for the blocks"):
        tx.load(path)


@pytest.mark.parametrize(("shape", "axis"), [((), 1), ((), 0), ((1, 3), 2), ((1, 3), -3)])
def test_axes_that_a_tensor_lacks_are_refused(shape: tuple[int, ...], axis: int) -> None:
    squeeze = Op("SQUEEZE", [0], [1], ("SqueezeOptions", {"squeezeDims": [axis]}))
    with pytest.raises(tx.InvalidModel, match=f"has no axis {axis}"):
        tx.load(built([T(shape=shape), T(shape=shape)], [squeeze], [0], [1]))


def test_products_that_the_interpreter_flushes_to_zero_are_not_compared() -> None:
    quantized = RANDOM.integers(-127, 128, (8, 4)).astype(np.int8)
    weights = RANDOM.uniform(0.001, 0.002, 4).astype(np.float32)
    tensors = [
        T(shape=(2, 8), dtype=np.int16, scale=0.001),
        T(quantized, scale=weights, axis=1),
        T(shape=(2, 4), dtype=np.int16, scale=0.001),
    ]
    path = built(tensors, [Op("BATCH_MATMUL", [0, 1], [2], ("BatchMatMulOptions", {}))], [0], [2])
    x = RANDOM.integers(-2000, 2000, (2, 8)).astype(np.int16)
    graph = tx.load(path)
    assert "scale of 0" in next(iter(verifier(path)(graph).unverified.values()))
    (result,) = graph.run({graph.inputs[0].name: x}).values()
    assert np.abs(result - (x * 0.001) @ (quantized * weights) / 0.001).max() <= 1
