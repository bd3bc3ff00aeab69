"""A sample of ONNX's node tests, compiled; ``benchmarks/compiled.py`` runs any number of them."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import compiled
import onnx_suites

#: Select one of so many models, including those that need numpy.
EVERY = 50

#: Models that must compile as one function.
WHOLE = ["test_add", "test_softmax_axis_1", "test_layer_normalization_4d_axis2", "test_basic_conv_with_padding"]


#: Excludes 16-bit models, whose stored outputs are rounded differently, and models that need an image decoder.
NAMES = [name for name in onnx_suites.node_cases() if "16" not in name and "image_decoder" not in name]


@pytest.mark.parametrize("name", NAMES[7::EVERY])
def test_single_ops(name):
    assert compiled.run(onnx_suites.node_cases()[name], "aot_eager") in ("compiled", "node by node")


@pytest.mark.parametrize("name", WHOLE)
def test_single_compiled_ops(name):
    assert compiled.run(onnx_suites.node_cases()[name], "aot_eager") == "compiled"


def test_data_dependent_graphs_run_node_by_node():
    assert compiled.run(onnx_suites.node_cases()["test_nonmaxsuppression_two_classes"], "aot_eager") == "node by node"
