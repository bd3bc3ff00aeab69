"""onnxruntime.quantization: documented calls, and refusals of unsupported options."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnxruntime import InferenceSession

from tenonnx.errors import InvalidCall
from tenonnx_compat import NotSupported
from tenonnx_compat.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    DynamicQuantConfig,
    QuantFormat,
    QuantType,
    StaticQuantConfig,
    TensorsData,
    create_calibrator,
    get_qdq_config,
    load_tensors_data,
    matmul_nbits_quantizer,
    preprocess,
    qdq_loss_debug,
    quant_pre_process,
    quantize,
    quantize_dynamic,
    quantize_static,
    save_tensors_data,
)
from tenonnx_compat.quantization.matmul_nbits_quantizer import (
    GPTQWeightOnlyQuantConfig,
    HQQWeightOnlyQuantConfig,
    KQuantWeightOnlyQuantConfig,
    MatMulNBitsQuantizer,
    RTNWeightOnlyQuantConfig,
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


def test_options_that_equal_the_default_behavior(tmp_path):
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
    op_types = types(out)
    quantize_static(DIGITS, out, Reader(), op_types_to_quantize=["Conv"], nodes_to_quantize=names[1:])
    assert types(out) == op_types
    assert op_types.count("DequantizeLinear") > 0


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
        ({"calibrate_method": CalibrationMethod.Distribution}, "calibrate_method"),
        ({"extra_options": {"ForceQuantizeNoInputCheck": True}}, "ForceQuantizeNoInputCheck"),
        ({"extra_options": {"Unknown": 1}}, "Unknown"),
        ({"extra_options": {"QDQOpTypePerChannelSupportToAxis": {"MatMul": 0}}}, "PerChannelSupportToAxis"),
        ({"extra_options": {"TensorQuantOverrides": {"images": [{"reduce_range": True}]}}}, "TensorQuantOverrides"),
        ({"calibration_providers": ["CUDAExecutionProvider"]}, "calibration_providers"),
    ],
)
def test_unsupported_options_are_refused(tmp_path, options, words):
    with pytest.raises(NotSupported, match=f"does not support.*{words}"):
        quantize_static(DIGITS, tmp_path / "out.onnx", Reader(), **options)
    assert not (tmp_path / "out.onnx").exists()


def test_internals_are_refused_by_name():
    from tenonnx_compat import quantization

    with pytest.raises(NotSupported, match="QDQQuantizer"):
        quantization.QDQQuantizer()
    with pytest.raises(ValueError, match="reader is None"):
        quantize_static(DIGITS, "out.onnx")


def scale_of_images(path):
    model = onnx.load(path)
    arrays = {each.name: onnx.numpy_helper.to_array(each) for each in model.graph.initializer}
    return next(float(arrays[n.input[1]]) for n in model.graph.node if n.input[0] == "images")


LOW, HIGH = float(IMAGES[:64].min()), float(IMAGES[:64].max())


@pytest.mark.parametrize(
    ("options", "scale"),
    [
        ({}, (HIGH - LOW) / 255),
        ({"ActivationSymmetric": True}, HIGH / 127),
        ({"CalibTensorRangeSymmetric": True}, 2 * HIGH / 255),
        ({"MinimumRealRange": 51.0}, 0.2),
        ({"ActivationRestrictedAsymmetric": True}, (HIGH - LOW) / 255),
        ({"TensorQuantOverrides": {"images": [{"rmin": -1.0, "rmax": 50.0}]}}, 0.2),
        ({"TensorQuantOverrides": {"images": [{"scale": np.float32(0.5), "zero_point": np.uint8(3)}]}}, 0.5),
        ({"TensorQuantOverrides": {"images": [{"symmetric": True, "quant_type": QuantType.QUInt8}]}}, 2 * HIGH / 255),
        ({"SmoothQuant": True, "SmoothQuantAlpha": 0.3, "SmoothQuantFolding": True}, None),
        ({"CalibMovingAverage": True, "CalibMovingAverageConstant": 0.1}, None),
        ({"CalibMaxIntermediateOutputs": 4, "QuantizeBias": False, "QDQKeepRemovableActivations": True}, None),
    ],
)
def test_options_of_ranges(tmp_path, options, scale):
    out = tmp_path / "out.onnx"
    quantize_static(DIGITS, out, Reader(), activation_type=QuantType.QUInt8, extra_options=options)
    assert scale is None or np.isclose(scale_of_images(out), scale, rtol=1e-4)
    if "scale" not in str(options):
        assert (labels(out) == labels(DIGITS)).mean() > 0.75


def test_weights_with_seven_bits(tmp_path):
    out = tmp_path / "out.onnx"
    for function, reader in ((quantize_dynamic, ()), (quantize_static, (Reader(),))):
        function(DIGITS, out, *reader, reduce_range=True, weight_type=QuantType.QInt8)
        arrays = [onnx.numpy_helper.to_array(t) for t in onnx.load(out).graph.initializer if t.data_type == 3]
        assert max(int(np.abs(each.astype(int)).max()) for each in arrays if each.size > 1) == 64


def test_pairs_of_weights_as_gpu_runtimes_require(tmp_path):
    out = tmp_path / "out.onnx"
    options = {"ActivationSymmetric": True, "AddQDQPairToWeight": True, "DedicatedQDQPair": True, "QuantizeBias": False}
    quantize_static(DIGITS, out, Reader(), per_channel=True, extra_options=options)
    onnx.checker.check_model(out)
    model = onnx.load(out)
    kinds = {each.name: each.data_type for each in model.graph.initializer}
    quantized = [n.input[0] for n in model.graph.node if n.op_type == "QuantizeLinear"]
    assert {kinds.get(name) for name in quantized} == {1, None}
    assert (labels(out) == labels(DIGITS)).mean() > 0.97
    quantize_static(DIGITS, out, Reader(), extra_options={"UseQDQContribOps": True})
    assert {n.domain for n in onnx.load(out).graph.node if "uantizeLinear" in n.op_type} == {"com.microsoft"}
    assert (labels(out) == labels(DIGITS)).mean() > 0.97


def test_a_calibration_cache(tmp_path):
    cache, first, second = (tmp_path / name for name in ("cache.json", "first.onnx", "second.onnx"))
    quantize_static(DIGITS, first, Reader(), calibration_cache_path=cache)
    assert np.isclose(load_tensors_data(cache)["images"].range_value[1], HIGH)
    quantize_static(DIGITS, second, calibration_cache_path=cache)
    assert scale_of_images(first) == scale_of_images(second)


def test_a_calibrator(tmp_path):
    calibrator = create_calibrator(DIGITS, ["Conv"], augmented_model_path=str(tmp_path / "augmented.onnx"))
    calibrator.collect_data(Reader())
    ranges = calibrator.compute_data()
    assert np.allclose(ranges["images"].range_value, (LOW, HIGH))
    save_tensors_data(ranges, tmp_path / "ranges.json")
    again = load_tensors_data(tmp_path / "ranges.json")
    assert isinstance(again, TensorsData)
    assert list(again.keys()) == list(ranges.keys())
    empty = Reader()
    empty.batches = iter(())
    with pytest.raises(ValueError, match="No data"):
        calibrator.collect_data(empty)
    with pytest.raises(NotSupported, match="num_bins"):
        create_calibrator(DIGITS, extra_options={"num_bins": 64})
    with pytest.raises(RuntimeError, match="existing tensor"):
        again["other"] = ranges["images"]


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "null",
        '{"CLS": "TensorsData"}',
        '{"CLS": "TensorsData", "data": 1, "calibration_method": null}',
        '{"CLS": "TensorsData", "data": {"x": {"CLS": "TensorData", "lowest": 1}}, "calibration_method": null}',
        '{"CLS": "numpy.array", "data": [1, [2]], "dtype": "float32"}',
        '{"CLS": "CalibrationMethod", "value": "other"}',
        '{"CLS": "TensorData", "__class__": 1}',
    ],
)
def test_a_damaged_calibration_cache(text, tmp_path):
    (tmp_path / "ranges.json").write_text(text)
    with pytest.raises(InvalidCall, match="holds no calibration data"):
        load_tensors_data(tmp_path / "ranges.json")


def test_errors_of_activations_and_weights(tmp_path):
    path = tmp_path / "out.onnx"
    quantize_static(DIGITS, path, Reader(), quant_format=QuantFormat.QDQ)
    activations = []
    for name, source in (("quantized", path), ("float", DIGITS)):
        qdq_loss_debug.modify_model_output_intermediate_tensors(source, tmp_path / name)
        activations.append(qdq_loss_debug.collect_activations(tmp_path / name, Reader()))
    matching = qdq_loss_debug.create_activation_matching(*activations)
    assert len(matching["images"]["pre_qdq"]) == 4
    errors = qdq_loss_debug.compute_activation_error(matching)["images"]
    assert errors["qdq_err"] == errors["xmodel_err"] > 30  # decibels
    weights = qdq_loss_debug.compute_weight_error(qdq_loss_debug.create_weight_matching(DIGITS, path))
    assert len(weights) >= 3
    assert min(weights.values()) > 25
    with pytest.raises(RuntimeError, match="Unequal number"):
        qdq_loss_debug.compute_activation_error({"x": {"pre_qdq": [], "post_qdq": [np.ones(1)]}})


def test_a_configuration_for_quantize(tmp_path):
    config = get_qdq_config(
        DIGITS,
        Reader(),
        calibrate_args={"percentile": 99.9},
        calibrate_method=CalibrationMethod.Percentile,
        nodes_to_exclude=lambda model, node: node.op_type == "Gemm",
    )
    quantize(DIGITS, tmp_path / "out.onnx", config)
    assert "QuantizeLinear" in types(tmp_path / "out.onnx")
    with pytest.raises(NotSupported, match="other"):
        get_qdq_config(DIGITS, Reader(), calibrate_args={"other": 1})


def test_invalid_combinations_of_types_are_refused(tmp_path):
    for options, words in (
        ({"weight_type": QuantType.QUInt8}, "do not go together"),
        ({"quant_format": QuantFormat.QOperator, "activation_type": QuantType.QUInt16}, r"only QuantFormat\.QDQ"),
    ):
        with pytest.raises(ValueError, match=words):
            quantize_static(DIGITS, tmp_path / "out.onnx", Reader(), **options)


def test_a_model_without_ops_to_quantize_is_written_unchanged(tmp_path):
    quantize_dynamic(DIGITS, tmp_path / "out.onnx", op_types_to_quantize=["LSTM"])
    assert types(tmp_path / "out.onnx") == types(DIGITS)


@pytest.fixture(scope="module")
def products(tmp_path_factory):
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[n,64] x) => (float[n,8] y)\n'
        "{ h = MatMul(x, w)\n r = Relu(h)\n y = MatMul(r, u) }"
    )
    generator = np.random.default_rng(0)
    for name, shape in (("w", (64, 32)), ("u", (32, 8))):
        array = generator.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    for node, name in zip(model.graph.node, ("first", "relu", "second"), strict=True):
        node.name = name
    path = tmp_path_factory.mktemp("products") / "m.onnx"
    onnx.save(model, path)
    return path


class ProductReader:
    def __init__(self):
        self.batches = iter([{"x": np.random.default_rng(k).random((4, 64), np.float32)} for k in range(2)])

    def get_next(self):
        return next(self.batches, None)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bits": 8, "block_size": 32, "is_symmetric": True},
        {"accuracy_level": 4, "nodes_to_exclude": ["second"]},
        {"quant_format": QuantFormat.QDQ, "block_size": 16},
        {"algo_config": HQQWeightOnlyQuantConfig(block_size=16)},
        {"algo_config": RTNWeightOnlyQuantConfig(customized_weight_config={"first": {"bits": 8}}), "block_size": 16},
        {"algo_config": GPTQWeightOnlyQuantConfig(ProductReader(), block_size=16)},
    ],
)
def test_weights_in_blocks(products, tmp_path, options):
    quantizer = MatMulNBitsQuantizer(onnx.load(products), **options)
    assert quantizer.process() is None
    quantizer.model.save_model_to_file(str(tmp_path / "out.onnx"), False)
    expected = "DequantizeLinear" if options.get("quant_format") else "MatMulNBits"
    assert types(tmp_path / "out.onnx").count(expected) == (1 if "nodes_to_exclude" in options else 2)
    feeds = ProductReader().get_next()
    first, second = (
        InferenceSession(p, providers=["CPUExecutionProvider"]).run(None, feeds)[0]
        for p in (products, tmp_path / "out.onnx")
    )
    assert np.abs(first - second).max() < 0.25 * np.abs(first).max()


def test_the_command_of_blocks(products, tmp_path, capsys):
    words = ["--input_model", str(products), "--output_model", str(tmp_path / "out.onnx"), "--block_size", "32"]
    matmul_nbits_quantizer.main(words)
    assert types(tmp_path / "out.onnx").count("MatMulNBits") == 2
    for more, message in (
        ([], "already exists"),
        (["--output_model", "other", "--quant_method", "gptq"], "quant_method"),
    ):
        with pytest.raises(SystemExit) as caught:
            matmul_nbits_quantizer.main([*words, *more])
        assert caught.value.code == 1
        assert message in capsys.readouterr().err
    for options in ({"op_types_to_quantize": ("Gather",)}, {"channel_wised_quantize": True}):
        with pytest.raises(NotSupported, match=next(iter(options))):
            MatMulNBitsQuantizer(onnx.load(products), **options)
    with pytest.raises(NotSupported, match="k_quant"):
        KQuantWeightOnlyQuantConfig()
