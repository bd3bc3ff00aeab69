"""Reductions over computed axes at versions before axes became an input."""

import io

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

import tenonnx as tx

OPS = ("Sum", "Mean", "Max", "Min", "Prod", "LogSumExp", "LogSum", "SumSquare", "L1", "L2")
X = np.random.default_rng(0).random((2, 3, 4), np.float32)


def model_of(op, keepdims):
    text = f"""<ir_version: 8, opset_import: ["": 18]> g (float[2,3,4] x, int64[k] axes) => (float[a,b,c] y)
    {{ y = Reduce{op}<keepdims={keepdims}>(x, axes) }}"""
    model = onnx.parser.parse_model(text)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


@pytest.mark.parametrize(("version", "keepdims"), [(17, 0), (13, 0), (13, 1), (11, 1)])
@pytest.mark.parametrize("op", OPS)
def test_an_older_version_reduces_one_axis_at_a_time(op, version, keepdims):
    model, stream = model_of(op, keepdims), io.BytesIO()
    tx.export(tx.load(model), stream, opset_version=version)
    there, here = (onnxruntime.InferenceSession(data) for data in (model.SerializeToString(), stream.getvalue()))
    for axes in ([1], [0, 2], [-1], [-1, 0], []):
        feeds = {"x": X, "axes": np.array(axes, np.int64)}
        expected, got = (session.run(None, feeds)[0] for session in (there, here))
        np.testing.assert_allclose(got, expected, rtol=1e-4, strict=True)


def test_dropping_axes_of_unknown_length_is_refused():
    with pytest.raises(tx.NotRepresentable):
        tx.export(tx.load(model_of("Max", 0)), io.BytesIO(), opset_version=11)
