"""Type inference of Fourier transforms."""

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops


@pytest.mark.parametrize(("width", "bins"), [(10, "6"), (1, "?")])
def test_frames_of_an_unknown_length_are_as_long_as_the_window(width, bins):
    graph = tx.Graph(opsets={"ai.onnx": 21})
    signal, length = graph.input("signal", "float32", (1, 32, 1)), graph.input("length", "int64", ())
    result = ops.stft(signal, 4, np.ones(width, np.float32), length)
    assert str(result.type) == f"float32[1, ?, {bins}, 2]"
