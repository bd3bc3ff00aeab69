"""Models of onnxruntime's quantizer in all its modes, converted to every form and to plain floats."""

from __future__ import annotations

import itertools
import logging
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime import quantization
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType
from onnxruntime.quantization import matmul_nbits_quantizer as of_blocks

import tenonnx as tx
from tenonnx_quantized.forms.dequantize import to_floats
from tenonnx_quantized.forms.qdq import to_qdq
from tenonnx_quantized.forms.qoperator import to_qoperator

EXAMPLES = Path(__file__).parents[2] / "examples"
IMAGES = np.load(EXAMPLES / "digits_cnn" / "digits.npz")["images"][:40]
BERT = EXAMPLES / "quantized" / "bert.onnx"

SYMMETRIC = {"extra_options": {"ActivationSymmetric": True, "WeightSymmetric": True}}
QDQ, QOPERATOR = QuantFormat.QDQ, QuantFormat.QOperator
U8, I8, U16, I16 = QuantType.QUInt8, QuantType.QInt8, QuantType.QUInt16, QuantType.QInt16
U4, I4, FLOAT8 = QuantType.QUInt4, QuantType.QInt4, QuantType.QFLOAT8E4M3FN
#: Form, dtypes of activations and weights, further options, and the accepted difference of plain floats relative to the
#: output range. Quantized forms give equal outputs.
STATIC = {
    "uint8, symmetric": (QOPERATOR, U8, U8, SYMMETRIC, 0.03),
    "uint8, symmetric, QDQ": (QDQ, U8, U8, SYMMETRIC, 0.03),
    "int8, symmetric, by channel": (QDQ, I8, I8, SYMMETRIC | {"per_channel": True}, 0.03),
    "reduced range": (QOPERATOR, U8, I8, {"reduce_range": True}, 0.03),
    "reduced range, by channel, QDQ": (QDQ, I8, I8, {"reduce_range": True, "per_channel": True}, 0.03),
    "uint16 and int8": (QDQ, U16, I8, {}, 0.005),
    "int16": (QDQ, I16, I16, {}, 0.001),
    "uint16 and uint8, by channel": (QDQ, U16, U8, {"per_channel": True}, 0.005),
    "uint8 and int4": (QDQ, U8, I4, {}, 0.03),
    "int8 and int4, by channel": (QDQ, I8, I4, {"per_channel": True}, 0.03),
    "uint16 and uint4": (QDQ, U16, U4, {}, 0.03),
    "float8": (QDQ, FLOAT8, FLOAT8, {"calibrate_method": CalibrationMethod.Distribution}, 0.06),
}
PAIRS = list(itertools.product((to_qdq, to_qoperator), repeat=2))


class Data(CalibrationDataReader):
    def __init__(self, *batches):
        self.batches = iter(batches)

    def get_next(self):
        return next(self.batches, None)


@pytest.fixture(autouse=True)
def quiet(capfd):
    """Suppress the output and log of the quantizer."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def cnn(tmp_path_factory):
    """The digits CNN at an opset that supports all quantized types."""
    path = tmp_path_factory.mktemp("cnn") / "cnn.onnx"
    model = onnx.load(EXAMPLES / "digits_cnn" / "digits-cnn.onnx")
    onnx.save(onnx.version_converter.convert_version(model, 21), path)
    return path


def by_onnxruntime(path, feeds):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, feeds)[0]


def largest_difference(graph, wanted, folder, feeds):
    """Maximum difference in onnxruntime, relative to the range of the expected outputs."""
    path = folder / "written.onnx"
    tx.export(graph, path, overwrite=True)
    return float(np.abs(by_onnxruntime(path, feeds) - wanted).max() / np.ptp(wanted))


def check(path, feeds, folder, record, *, quantized, floats):
    graph, expected = tx.load(path), by_onnxruntime(path, feeds)
    made = {f"{a.__name__}, {b.__name__}": b(a(graph)) for a, b in PAIRS} | {"to_floats": to_floats(graph)}
    result = {name: largest_difference(g, expected, folder, feeds) for name, g in made.items()}
    for name, difference in result.items():
        record(name, f"{difference:.2g}")
    assert result.pop("to_floats") <= floats
    assert max(result.values()) <= quantized


@pytest.mark.parametrize("mode", STATIC)
def test_static(mode, cnn, tmp_path, record_property):
    form, activation, weight, more, floats = STATIC[mode]
    data = Data(*({"images": IMAGES[k : k + 10]} for k in range(0, 40, 10)))
    quantization.quantize_static(
        cnn, tmp_path / "made.onnx", data, quant_format=form, activation_type=activation, weight_type=weight, **more
    )
    check(tmp_path / "made.onnx", {"images": IMAGES}, tmp_path, record_property, quantized=0, floats=floats)


def test_float8_in_qlinear_ops_is_rejected(cnn, tmp_path):
    """The quantizer writes such files, but neither onnxruntime nor the specification of QLinearConv allows them."""
    more = {"calibrate_method": CalibrationMethod.Distribution, "quant_format": QOPERATOR}
    types = {"activation_type": FLOAT8, "weight_type": FLOAT8}
    quantization.quantize_static(cnn, tmp_path / "made.onnx", Data({"images": IMAGES[:10]}), **types, **more)
    with pytest.raises(Exception, match="float8e4m3fn"):
        by_onnxruntime(tmp_path / "made.onnx", {"images": IMAGES})
    with pytest.raises(tx.InvalidModel, match='QLinearConv@10: input "x" takes no float8e4m3fn'):
        tx.load(tmp_path / "made.onnx").infer()


WEIGHTS = {"RTN": of_blocks.RTNWeightOnlyQuantConfig, "k_quant": of_blocks.KQuantWeightOnlyQuantConfig}


@pytest.mark.parametrize("algorithm", WEIGHTS)
def test_weight_only_quantization(algorithm, tmp_path, record_property):
    """The default algorithm is tested in ``test_forms``; GPTQ, HQQ and AWQ need PyTorch."""
    made = of_blocks.MatMulNBitsQuantizer(str(BERT), block_size=16, algo_config=WEIGHTS[algorithm]())
    made.process()
    made.model.save_model_to_file(str(tmp_path / "made.onnx"))
    feeds = dict(np.load(BERT.with_suffix(".npz")))
    check(tmp_path / "made.onnx", feeds, tmp_path, record_property, quantized=1e-5, floats=1e-5)
