"""``convert_version``: results and errors."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnxruntime import InferenceSession

from tenonnx_compat.version_converter import ConvertError, convert_version


def softmax(version):
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Softmax", ["x"], ["y"], axis=1)],
        "softmax",
        [info("x", TensorProto.FLOAT, [2, 3, 4])],
        [info("y", TensorProto.FLOAT, [2, 3, 4])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=7)


@pytest.mark.parametrize("version", [9, 11, 12, 18])
def test_results_stay_equal_if_the_definition_of_an_op_changed(version):
    """Softmax normalizes one axis since version 13, before also all axes after it.

    Source: https://github.com/onnx/onnx/blob/main/docs/Changelog.md#Softmax-13
    """
    model = softmax(13)
    converted = convert_version(model, version)
    assert converted.opset_import[0].version == version
    onnx.checker.check_model(converted)
    x = np.random.default_rng(0).random((2, 3, 4), np.float32)
    results = [InferenceSession(m.SerializeToString()).run(None, {"x": x})[0] for m in (model, converted)]
    np.testing.assert_allclose(*results, rtol=1e-5)


def test_a_model_that_cannot_be_converted_is_refused():
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("RegexFullMatch", ["x"], ["y"], pattern="a.*")],
        "texts",
        [info("x", TensorProto.STRING, [2])],
        [info("y", TensorProto.BOOL, [2])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    with pytest.raises(ConvertError, match="RegexFullMatch"):
        convert_version(model, 13)
    with pytest.raises(RuntimeError):  # scripts catch onnx's error as RuntimeError
        convert_version(model, 13)


@pytest.mark.parametrize(("model", "version"), [("model.onnx", 13), (softmax(13), 0)])
def test_wrong_arguments(model, version):
    with pytest.raises(ValueError, match=r"only accepts ModelProto|not positive"):
        convert_version(model, version)
