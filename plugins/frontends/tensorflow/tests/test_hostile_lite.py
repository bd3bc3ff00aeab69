"""Hostile TFLite files: each quickly raises one of our errors."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from lite_files import Graph, Op, T, built

import tenonnx as tx
from tenonnx_litert.reading.frontend import read

X = T(shape=(2, 3))


def _calling(number: int, *, twice: bool = False) -> Graph:
    """A graph that calls another one, from one or both branches of an If."""
    tensors = [T(np.array(True)), X, X, X]
    chosen = ("IfOptions", {"thenSubgraphIndex": number, "elseSubgraphIndex": number})
    operators = [Op("IF", [0, 1], [2], chosen)]
    return tensors, [*operators, *([Op("IF", [0, 2], [3], chosen)] if twice else [])], [1], [3 if twice else 2]


def _calls_itself() -> Path:
    return built(*_calling(0))


def _calls_double_forty_times() -> Path:
    relu: Graph = ([X, X], [Op("RELU", [0], [1])], [0], [1])
    return built(*_calling(1, twice=True), *(_calling(k + 1, twice=True) for k in range(1, 40)), relu)


def _calls_what_is_not_there() -> Path:
    return built(*_calling(7))


def _huge_variable() -> Path:
    held = T(shape=(1 << 20, 1 << 12), is_variable=True)
    return built([held, T(shape=(1 << 20, 1 << 12))], [Op("RELU", [0], [1])], [], [1])


def _too_few_inputs() -> Path:
    return built([X, X], [Op("ADD", [0], [1])], [0], [1])


def _tensor_that_is_not_there() -> Path:
    return built([X, X], [Op("RELU", [0], [1]), Op("RELU", [1], [-9])], [0], [1])


def _rank_of_a_convolution() -> Path:
    weights = T(np.ones(3, np.float32))
    return built([X, weights, X], [Op("CONV_2D", [0, 1, -1], [2], ("Conv2DOptions", {"strideW": 0}))], [0], [2])


def _detection(options: bytes) -> Path:
    tensors = [T(shape=(1, 4, 4)), T(shape=(1, 4, 3)), T(np.ones((4, 4), np.float32)), *[T(shape=(1, 4))] * 4]
    operator = Op("CUSTOM", [0, 1, 2], [3, 4, 5, 6], custom=("TFLite_Detection_PostProcess", options))
    return built(tensors, [operator], [0, 1], [3, 4, 5, 6])


def _options_that_hold_themselves() -> Path:
    # a vector of one element whose offset of 0 bytes refers to the vector itself
    return _detection(bytes([1, 0, 40, 2, 40, 1]))


def _options_that_are_cut() -> Path:
    return _detection(b"\xff\x24\x04")


def _options_that_are_a_number() -> Path:
    return _detection(bytes([7, 4, 1]))


HOSTILE: list[Callable[[], Path]] = [
    _calls_itself,
    _calls_double_forty_times,
    _calls_what_is_not_there,
    _huge_variable,
    _too_few_inputs,
    _tensor_that_is_not_there,
    _rank_of_a_convolution,
    _options_that_hold_themselves,
    _options_that_are_cut,
    _options_that_are_a_number,
]


@pytest.mark.parametrize("write", HOSTILE)
def test_a_hostile_file_is_refused(write: Any) -> None:
    with tx.limits.override(nodes=300), pytest.raises((tx.InvalidModel, tx.NotRepresentable, tx.LimitExceeded)):
        read(write(), verify=False)


def test_an_option_outside_of_the_file_is_named() -> None:
    path = built([X, X], [Op("SOFTMAX", [0], [1], ("SoftmaxOptions", {"beta": 1.0}))], [0], [1])
    raw = bytearray(path.read_bytes())
    place = raw.rindex(np.float32(1.0).tobytes())  # the option table begins before its only field
    raw[place - 4 : place] = np.int32(-(1 << 30)).tobytes()
    path.write_bytes(raw)
    with pytest.raises(tx.InvalidModel, match="option of SOFTMAX"):
        read(path, verify=False)


def test_no_input_is_drawn_beyond_the_limit(tmp_path: Path) -> None:
    path = built([T(shape=(1 << 20, 1 << 12)), T(shape=(1 << 20, 1 << 12))], [Op("RELU", [0], [1])], [0], [1])
    with pytest.warns(UserWarning, match='exceeds the limit "elements"'):
        graph = tx.load(path)
    assert [node.op_type for node in graph.nodes] == ["Relu"]
