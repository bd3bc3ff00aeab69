"""Messages for invalid calls that no requirement covers."""

from __future__ import annotations

import numpy as np
import pytest

import tenonnx_standard as ops
from tenonnx.extend import ArrayConstant, Graph, TypeMismatch
from tenonnx.extend.transforms import infer_call


def test_a_constant_of_a_shape_has_one_element():
    with pytest.raises(TypeMismatch, match="value does not hold one element"):
        ops.constant_of_shape([2], value=ArrayConstant(np.zeros(2, np.float32)))


def test_running_statistics_are_only_outputs_in_training():
    graph = Graph()
    x, channels = graph.input("x", "float32", (2, 3)), graph.input("channels", "float32", (3,))
    attributes = {"epsilon": 1e-5, "momentum": 0.9, "training_mode": 0}
    with pytest.raises(TypeMismatch, match="running statistics are outputs without training_mode"):
        infer_call(ops.batch_normalization, [x, channels, channels, channels, channels], attributes, 3)


def test_terms_of_an_equation_and_inputs_are_as_many():
    with pytest.raises(TypeMismatch, match="number of terms in the equation differs"):
        ops.einsum(np.float32([1]), equation="i,i->")


def test_a_length_to_cut_or_pad_to_is_not_negative():
    graph = Graph()
    with graph.building(), pytest.raises(TypeMismatch, match="a length is negative"):
        ops.center_crop_pad(graph.input("x", "float32", (2,)), [-3])


def test_the_padding_value_is_one_element():
    data = np.ones((2, 2), np.float32)
    with pytest.raises(TypeMismatch, match="constant_value is not one element"):
        ops.pad(data, [0, 1, 0, 1], np.float32([5, 6]))
    assert ops.pad(data, [0, 1, 0, 1], np.float32([5]))[0, 0] == 5
