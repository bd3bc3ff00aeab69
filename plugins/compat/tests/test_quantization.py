"""onnxruntime.quantization: the calls of its documentation, and refusals."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnxruntime import InferenceSession

from tenonnx_compat import NotSupported
from tenonnx_compat.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    DynamicQuantConfig,
    QuantFormat,
    QuantType,
    StaticQuantConfig,
    preprocess,
    quant_pre_process,
    quantize,
    quantize_dynamic,
    quantize_static,
)

EXAMPLES = Path(__file__).parents[3] / "examples"
DIGITS = EXAMPLES / "digits_cnn" / "digits-cnn.onnx"
IMAGES = np.load(EXAMPLES / "digits_cnn" / "digits.npz")["images"]


class Reader(CalibrationDataReader):
    def __init__(self):
        self.batches = iter([{"images": IMAGES[k : k + 16]} for k in range(0, 64, 16)])

    def get_next(self):
        return next(self.batches, None)


def types(path):
    return [node.op_type for node in onnx.load(path).graph.node]


def labels(path):
    session = InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {"images": IMAGES[100:300]})[0].argmax(-1)


def test_dynamic(tmp_path):
    out = tmp_path / "out.onnx"
    assert quantize_dynamic(DIGITS, out, weight_type=QuantType.QUInt8) is None
    assert {"DynamicQuantizeLinear", "ConvInteger"} <= set(types(out))
    assert (labels(out) == labels(DIGITS)).mean() > 0.97


def test_options_that_ask_for_what_is_done_anyway(tmp_path):
    first, second = tmp_path / "first.onnx", tmp_path / "second.onnx"
    quantize_dynamic(DIGITS, first)
    same = {"EnableSubgraph": True, "DefaultTensorType": 1, "MatMulConstBOnly": True, "QuantizeBias": True}
    quantize_dynamic(DIGITS, second, extra_options=same)
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("form", QuantFormat)
def test_static(tmp_path, form):
    out = tmp_path / "out.onnx"
    quantize_static(onnx.load(DIGITS), str(out), Reader(), quant_format=form, activation_type=QuantType.QUInt8)
    assert ("QLinearConv" in types(out)) is (form is QuantFormat.QOperator)
    assert (labels(out) == labels(DIGITS)).mean() > 0.97


def test_nodes_and_op_types(tmp_path):
    out = tmp_path / "out.onnx"
    quantize_static(DIGITS, out, Reader(), op_types_to_quantize=["Conv", "Attention"], per_channel=True)
    scales = [t for t in onnx.load(out).graph.initializer if t.name.endswith("scale") and list(t.dims)]
    assert scales
    names = [node.name for node in onnx.load(DIGITS).graph.node if node.op_type == "Conv"]
    quantize_static(DIGITS, out, Reader(), op_types_to_quantize=["Conv"], nodes_to_exclude=names[:1])
    held = types(out)
    quantize_static(DIGITS, out, Reader(), op_types_to_quantize=["Conv"], nodes_to_quantize=names[1:])
    assert types(out) == held
    assert held.count("DequantizeLinear") > 0


def test_configurations(tmp_path):
    for config in (DynamicQuantConfig(), StaticQuantConfig(Reader(), calibrate_method=CalibrationMethod.Entropy)):
        quantize(DIGITS, tmp_path / "out.onnx", config)
        assert {"DequantizeLinear", "ConvInteger"} & set(types(tmp_path / "out.onnx"))
    with pytest.raises(TypeError, match="invalid type of quant_config"):
        quantize(DIGITS, tmp_path / "out.onnx", None)


def test_pre_process(tmp_path, capsys):
    out = tmp_path / "out.onnx"
    quant_pre_process(str(DIGITS), str(out))
    assert "BatchNormalization" not in types(out)
    assert onnx.load(out).graph.value_info
    preprocess.main(["--input", str(DIGITS), "--output", str(out), "--skip_optimization", "1"])
    assert "BatchNormalization" in types(out)
    with pytest.raises(SystemExit) as caught:
        preprocess.main(["--input", "missing.onnx", "--output", str(out)])
    assert caught.value.code == 1
    assert "missing.onnx" in capsys.readouterr().err
    with pytest.raises(TypeError, match="missing an argument"):
        quant_pre_process(DIGITS)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"reduce_range": True}, "reduce_range"),
        ({"calibrate_method": CalibrationMethod.Distribution}, "calibrate_method"),
        ({"extra_options": {"SmoothQuant": True}}, "SmoothQuant"),
        ({"extra_options": {"TensorQuantOverrides": {}}}, "TensorQuantOverrides"),
        ({"calibration_providers": ["CUDAExecutionProvider"]}, "calibration_providers"),
    ],
)
def test_what_it_has_and_we_lack_is_refused(tmp_path, options, words):
    with pytest.raises(NotSupported, match=f"does not support.*{words}"):
        quantize_static(DIGITS, tmp_path / "out.onnx", Reader(), **options)
    assert not (tmp_path / "out.onnx").exists()


def test_internals_are_refused_by_name():
    from tenonnx_compat import quantization

    with pytest.raises(NotSupported, match="QDQQuantizer"):
        quantization.QDQQuantizer()
    with pytest.raises(ValueError, match="reader is None"):
        quantize_static(DIGITS, "out.onnx")
