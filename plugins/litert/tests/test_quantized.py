"""QDQ graphs written as files with integer kernels."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import tflite
from ai_edge_litert.interpreter import Interpreter, OpResolverType

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.extend import constant
from tenonnx_litert.format import write as write_file
from tenonnx_quantized import quantize as quantized

EXAMPLES = Path(__file__).parents[3] / "examples"
RNG = np.random.default_rng(0)
IMAGE = RNG.standard_normal((2, 6, 9, 8)).astype(np.float32)
ROWS = RNG.standard_normal((3, 5, 4)).astype(np.float32)
STEP = 0.0303


#: The only 16-bit zero points that LiteRT supports.
WIDE = {"int16": 0, "uint16": 32768}


class QDQ:
    """Quantize and dequantize values to one type, as the node pairs that quantizers write."""

    def __init__(self, kind="int8"):
        self.kind = kind

    def __call__(self, x, step=STEP, zero=3):
        zero += 128 if self.kind == "uint8" else 0
        if self.kind in WIDE:
            step, zero = step / 64, WIDE[self.kind]
        parameters = constant(np.float32(step)), constant(np.asarray(zero, self.kind))
        return quantized.dequantize_linear(quantized.quantize_linear(x, *parameters), *parameters)


def weights(*shape, axis=None):
    """int8 constants with per-channel scales along ``axis``."""
    random = np.random.default_rng(1)
    scales = np.float32(0.01) if axis is None else random.uniform(0.005, 0.02, shape[axis]).astype(np.float32)
    zeros = np.zeros(scales.shape, np.int8)
    contents = constant(random.integers(-127, 128, shape).astype(np.int8))
    return quantized.dequantize_linear(contents, constant(scales), constant(zeros), axis=axis or 0)


def bias(*shape, scale=STEP * 0.01):
    contents = np.random.default_rng(2).integers(-3000, 3000, shape).astype(np.int32)
    return quantized.dequantize_linear(constant(contents), constant(np.float32(scale)))


def pool(function, x, **attributes):
    return function(x, kernel_shape=[3, 3], strides=[2, 2], **attributes)


KERNELS = {
    "conv": (IMAGE, lambda q, x: q(ops.conv(x, weights(4, 6, 3, 3, axis=0), pads=[1] * 4), 0.2), "CONV_2D"),
    "conv-bias": (IMAGE, lambda q, x: q(ops.conv(x, weights(4, 6, 3, 3), bias(4)), 0.2), "CONV_2D"),
    "conv-float-bias": (
        IMAGE,
        lambda q, x: q(ops.conv(x, weights(4, 6, 3, 3), constant(np.float32([1, 2, -3, 0.5]))), 0.2),
        "CONV_2D",
    ),
    "conv-relu": (IMAGE, lambda q, x: q(ops.relu(ops.conv(x, weights(4, 6, 3, 3), bias(4))), 0.1, -100), "CONV_2D"),
    "conv-relu6": (
        IMAGE,
        lambda q, x: q(ops.clip(ops.conv(x, weights(4, 6, 3, 3), bias(4)), 0.0, 6.0), 0.04, -128),
        "CONV_2D",
    ),
    "conv-groups": (IMAGE, lambda q, x: q(ops.conv(x, weights(4, 3, 3, 3, axis=0), group=2), 0.2), "CONV_2D"),
    "conv-1d": (
        IMAGE[:, :, 0],
        lambda q, x: q(ops.conv(x, weights(4, 6, 3, axis=0), bias(4), pads=[1, 1]), 0.2),
        "RESHAPE CONV_2D RESHAPE",
    ),
    "depthwise": (
        IMAGE,
        lambda q, x: q(ops.conv(x, weights(12, 1, 3, 3, axis=0), bias(12), group=6, pads=[1] * 4), 0.1),
        "DEPTHWISE_CONV_2D",
    ),
    "conv-transpose": (
        IMAGE,
        lambda q, x: q(ops.conv_transpose(x, weights(6, 4, 2, 2), bias(4), strides=[2, 2]), 0.2),
        "TRANSPOSE TRANSPOSE_CONV TRANSPOSE",
    ),
    "gemm": (
        ROWS[0],
        lambda q, x: q(ops.gemm(x, weights(6, 4, axis=0), bias(6), transB=1), 0.1),
        "FULLY_CONNECTED",
    ),
    "matmul": (ROWS, lambda q, x: q(ops.matmul(x, weights(4, 6, axis=1)), 0.1), "FULLY_CONNECTED"),
    "matmul-bias": (
        ROWS,
        lambda q, x: q(ops.relu(ops.add(ops.matmul(x, weights(4, 6)), bias(6))), 0.1),
        "FULLY_CONNECTED",
    ),
    "attention": (ROWS, lambda q, x: q(ops.matmul(x, ops.transpose(x, perm=[0, 2, 1])), 0.1), "BATCH_MATMUL"),
    "add": (ROWS, lambda q, x: q(ops.add(x, q(ops.relu(x), 0.02, -128)), 0.05, 10), "RELU ADD"),
    "sub": (ROWS, lambda q, x: q(ops.sub(x, weights(4)), 0.04), "SUB"),
    "mul": (ROWS, lambda q, x: q(ops.mul(x, weights(4)), 0.04), "MUL"),
    "add-floats": (
        ROWS,
        lambda q, x: q(ops.add(x, constant(np.float32([0.3, -1, 0, 0.7]))), 0.04),
        "RESHAPE DEPTHWISE_CONV_2D RESHAPE",
    ),
    "mul-floats": (
        ROWS,
        lambda q, x: q(ops.mul(x, constant(RNG.standard_normal((5, 4)).astype(np.float32))), 0.04),
        "RESHAPE DEPTHWISE_CONV_2D RESHAPE",
    ),
    "from-one": (ROWS, lambda q, x: q(ops.sub(constant(np.float32(1)), x), 0.04), "RESHAPE DEPTHWISE_CONV_2D RESHAPE"),
    "batch-norm": (
        IMAGE,
        lambda q, x: q(
            ops.relu(
                ops.batch_normalization(x, *(constant(RNG.uniform(0.5, 2, 6).astype(np.float32)) for _ in range(4)))
            )
        ),
        "DEPTHWISE_CONV_2D",
    ),
    "max-pool": (IMAGE, lambda q, x: q(pool(ops.max_pool, x)), "MAX_POOL_2D"),
    "max-pool-pads": (IMAGE, lambda q, x: q(pool(ops.max_pool, x, pads=[1] * 4)), "PADV2 MAX_POOL_2D"),
    "average-pool": (IMAGE, lambda q, x: q(pool(ops.average_pool, x)), "AVERAGE_POOL_2D"),
    "average-pool-rescaled": (IMAGE, lambda q, x: q(pool(ops.average_pool, x), 0.025), "DEPTHWISE_CONV_2D"),
    "mean": (IMAGE, lambda q, x: q(ops.global_average_pool(x), 0.01), "MEAN"),
    "concat": (
        ROWS,
        lambda q, x: q(ops.concat(x, q(ops.relu(x), 0.025), axis=1), 0.04, 10),
        "RELU QUANTIZE QUANTIZE CONCATENATION",
    ),
    "moves": (
        ROWS,
        lambda q, x: q(ops.pad(ops.transpose(ops.reshape(x, [3, 4, 5]), perm=[2, 0, 1])[1:], [0, 1, 0, 0, 0, 2])),
        "RESHAPE TRANSPOSE STRIDED_SLICE PAD",
    ),
    "split": (
        ROWS,
        lambda q, x: tuple(q(each) for each in ops.split(x, [2, 3], axis=1)),
        "SPLIT_V",
    ),
    "softmax": (ROWS, lambda q, x: q(ops.softmax(x), 1 / 256, -128), "SOFTMAX"),
    "softmax-rescaled": (ROWS, lambda q, x: q(ops.softmax(x), 0.0034, -128), "SOFTMAX QUANTIZE"),
    "sigmoid": (ROWS, lambda q, x: q(ops.sigmoid(x), 1 / 256, -128), "LOGISTIC"),
    "tanh": (ROWS, lambda q, x: q(ops.tanh(x), 1 / 128, 0), "TANH"),
    "leaky-relu": (ROWS, lambda q, x: q(ops.leaky_relu(x, alpha=0.2), 0.025), "LEAKY_RELU"),
    "hard-swish": (ROWS, lambda q, x: q(ops.hard_swish(x), 0.02), "HARD_SWISH"),
    "elu": (ROWS, lambda q, x: q(ops.elu(x), 0.02), "ELU"),
    "gelu": (ROWS, lambda q, x: q(ops.gelu(x), 0.02), "GELU"),
    "prelu": (IMAGE, lambda q, x: q(ops.prelu(x, weights(6, 1, 1))), "PRELU"),
    "abs": (ROWS, lambda q, x: q(ops.absolute(x), 0.02, -128), "ABS"),
    "exp": (ROWS, lambda q, x: q(ops.exp(x), 0.1, -128), "EXP"),
    "resize-linear": (
        IMAGE,
        lambda q, x: q(ops.resize(x, None, [1.0, 1.0, 2.0, 2.0], mode="linear")),
        "RESIZE_BILINEAR",
    ),
    "resize-nearest": (
        IMAGE,
        lambda q, x: q(
            ops.resize(x, None, [1.0, 1.0, 2.0, 2.0], coordinate_transformation_mode="asymmetric", nearest_mode="floor")
        ),
        "RESIZE_NEAREST_NEIGHBOR",
    ),
    "rescaling-by-nearly-half": (
        ROWS,
        lambda q, x: q(x, STEP / 0.4986, 12),
        "RESHAPE DEPTHWISE_CONV_2D RESHAPE",
    ),
    "rescaling": (ROWS, lambda q, x: q(x, 0.02, -5), "QUANTIZE"),
}

#: Files that round twice, since the kernel fixes the scale of its result: more values than ties differ.
TWICE = {"softmax-rescaled", "concat", "leaky-relu"}

#: Operators without a reference kernel.
DEFAULT_ONLY = {"elu"}


def quantized_graph(array, function, kind="int8"):
    graph = tx.Graph("g", opsets={"ai.onnx": 21})
    x = graph.input("x", "float32", array.shape)
    with graph.building():
        q = QDQ(kind)
        results = function(q, q(x))
    for place, value in enumerate(results if isinstance(results, tuple) else (results,)):
        graph.output(f"y{place}", value)
    return graph


def write(graph, folder):
    path = folder / "m.tflite"
    write_file(graph, path)
    return path


class File:
    """Operators and tensor types of a file."""

    def __init__(self, path):
        names = {code: name for name, code in vars(tflite.BuiltinOperator).items() if isinstance(code, int)}
        model = tflite.Model.GetRootAsModel(path.read_bytes(), 0)
        self.graph = model.Subgraphs(0)
        self.operators = []
        for place in range(self.graph.OperatorsLength()):
            each = self.graph.Operators(place)
            inputs = [k for k in map(int, each.InputsAsNumpy()) if k >= 0]
            name = names[model.OperatorCodes(each.OpcodeIndex()).BuiltinCode()]
            self.operators.append((name, inputs, [int(k) for k in each.OutputsAsNumpy()]))

    def is_float(self, place):
        return self.graph.Tensors(place).Type() == tflite.TensorType.FLOAT32

    def kinds(self):
        return {self.graph.Tensors(place).Type() for place in range(self.graph.TensorsLength())}

    def names(self, *, without=()):
        return [name for name, _, _ in self.operators if name not in without]

    def floats(self):
        """Operators with float tensors, except QUANTIZE and DEQUANTIZE."""
        return [
            name
            for name, inputs, outputs in self.operators
            if name not in ("QUANTIZE", "DEQUANTIZE") and any(map(self.is_float, [*inputs, *outputs]))
        ]


def run(path, feeds, *, reference=False):
    kind = OpResolverType.BUILTIN_REF if reference else OpResolverType.BUILTIN
    interpreter = Interpreter(str(path), experimental_op_resolver_type=kind, num_threads=1)
    for detail, array in zip(interpreter.get_input_details(), feeds.values(), strict=True):
        interpreter.resize_tensor_input(detail["index"], array.shape)
    interpreter.allocate_tensors()
    return dict(interpreter.get_signature_runner("serving_default")(**feeds))


def assert_within_a_step(found, expected, step, share):
    difference = np.abs(found.astype(np.float64) - expected.astype(np.float64))
    assert difference.max() <= step * 1.001
    assert (difference > step / 2).mean() <= share


def steps_of(graph):
    """The scale of each output."""
    return {v.name: float(v.producer.inputs[1].data.array()) for v in graph.outputs}


@pytest.mark.parametrize("kind", ["int8", "uint8"])
@pytest.mark.parametrize("name", KERNELS)
def test_an_op_between_quantized_values_runs_in_an_integer_kernel(name, kind, tmp_path):
    array, function, operators = KERNELS[name]
    graph = quantized_graph(array, function, kind)
    path = write(graph, tmp_path)
    file = File(path)
    inner = [each for each in file.names() if each != "TRANSPOSE" or "TRANSPOSE" in operators]
    assert " ".join(inner) == " ".join(["QUANTIZE", operators, *["DEQUANTIZE"] * len(graph.outputs)])
    assert file.floats() == []
    expected = graph.run({"x": array}, backend="numpy")
    for reference in (False,) if name in DEFAULT_ONLY else (False, True):
        result = run(path, {"x": array}, reference=reference)
        for output, step in steps_of(graph).items():
            assert_within_a_step(result[output], expected[output], step, 0.5 if name in TWICE else 0.1)


#: Graphs with operators that have no int16 kernel.
WITHOUT_INT16 = {"prelu", "hard-swish", "elu", "gelu"}

#: Operators that LiteRT computes by interpolation in a lookup table.
ROUGH_IN_INT16 = {"softmax", "softmax-rescaled", "sigmoid", "tanh", "exp"}


@pytest.mark.parametrize("name", KERNELS)
def test_an_op_between_int16_values_runs_in_an_integer_kernel(name, tmp_path):
    array, function, _ = KERNELS[name]
    graph = quantized_graph(array, function, "int16")
    path = write(graph, tmp_path)
    assert (File(path).floats() != []) == (name in WITHOUT_INT16)
    expected = graph.run({"x": array}, backend="numpy")
    for reference in (False,) if name in DEFAULT_ONLY else (False, True):
        result = run(path, {"x": array}, reference=reference)
        for output, step in steps_of(graph).items():
            assert_within_a_step(result[output], expected[output], step, 0.5 if name in ROUGH_IN_INT16 else 0.2)


def of_4_bits(*shape, axis=None, kind="int4"):
    """4-bit constants with per-channel scales along ``axis``."""
    random = np.random.default_rng(3)
    scales = np.float32(0.1) if axis is None else random.uniform(0.05, 0.2, shape[axis]).astype(np.float32)
    low, zero = (-7, 0) if kind == "int4" else (1, 8)
    contents = constant(random.integers(low, low + 15, shape).astype(getattr(ml_dtypes, kind)))
    zeros = constant(np.full(scales.shape, zero).astype(getattr(ml_dtypes, kind)))
    return quantized.dequantize_linear(contents, constant(scales), zeros, axis=axis or 0)


OF_4_BITS = {
    "conv": (IMAGE, lambda q, x: q(ops.conv(x, of_4_bits(4, 6, 3, 3, axis=0)), 0.5), "CONV_2D"),
    "depthwise": (
        IMAGE,
        lambda q, x: q(ops.conv(x, of_4_bits(12, 1, 3, 3, axis=0), group=6), 0.2),
        "DEPTHWISE_CONV_2D",
    ),
    "matmul": (ROWS, lambda q, x: q(ops.relu(ops.matmul(x, of_4_bits(4, 7, axis=1)) + bias(7))), "FULLY_CONNECTED"),
    "conv-transpose": (
        IMAGE,
        lambda q, x: q(ops.conv_transpose(x, of_4_bits(6, 4, 2, 2), strides=[2, 2]), 0.2),
        "TRANSPOSE_CONV",
    ),
    "one scale": (ROWS, lambda q, x: q(ops.matmul(x, of_4_bits(4, 6))), "FULLY_CONNECTED"),
    "unsigned": (ROWS, lambda q, x: q(ops.matmul(x, of_4_bits(4, 6, axis=1, kind="uint4"))), "FULLY_CONNECTED"),
}


@pytest.mark.parametrize("name", OF_4_BITS)
def test_weights_of_4_bits_stay_in_4_bits(name, tmp_path):
    array, function, operator = OF_4_BITS[name]
    graph = quantized_graph(array, function)
    path = write(graph, tmp_path)
    file = File(path)
    assert file.floats() == []
    assert operator in file.names()
    assert (tflite.TensorType.INT4 in file.kinds()) == (operator != "TRANSPOSE_CONV")
    compared(graph, path, {"x": array}, step=steps_of(graph)["y0"])


def test_4_bit_weights_without_quantized_activations_stay_in_4_bits(tmp_path):
    graph = tx.Graph("g", opsets={"ai.onnx": 21})
    x = graph.input("x", "float32", ("n", 64))
    with graph.building():
        y = ops.matmul(x, of_4_bits(64, 33, axis=1))
    graph.output("y", y)
    path = write(graph, tmp_path)
    feeds = {"x": RNG.standard_normal((3, 64)).astype(np.float32)}
    np.testing.assert_allclose(run(path, feeds)["y"], graph.run(feeds, backend="numpy")["y"], rtol=1e-4, atol=1e-4)
    assert tflite.TensorType.INT4 in File(path).kinds()


@pytest.mark.parametrize("zero", [32768, 32000])
def test_uint16_is_int16_where_its_zero_point_is_in_the_middle(zero, tmp_path):
    parameters = np.float32(STEP / 64), np.uint16(zero)

    def rounded(x):
        return quantized.dequantize_linear(quantized.quantize_linear(x, *parameters), *parameters)

    graph = tx.Graph("g", opsets={"ai.onnx": 21})
    x = graph.input("x", "float32", ROWS.shape)
    with graph.building():
        graph.output("y", rounded(ops.matmul(rounded(x), weights(4, 6))))
    path = write(graph, tmp_path)
    compared(graph, path, {"x": ROWS}, (False,))
    assert (File(path).floats() == []) == (zero == 32768)


def compared(graph, path, feeds, kernels=(False, True), step=0.05):
    """Compare the file with numpy, on the default and the reference kernels; returns its operators."""
    expected = graph.run(feeds, backend="numpy")
    for reference in kernels:
        result = run(path, feeds, reference=reference)
        for name, array in expected.items():
            assert result[name].dtype == array.dtype
            assert_within_a_step(result[name], array, 1 if array.dtype.kind in "iu" else step, 0.1)
    return File(path)


@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_quantized_inputs_and_outputs_keep_their_types(kind, tmp_path):
    graph = tx.Graph("g", opsets={"ai.onnx": 21})
    x = graph.input("x", kind, ("n", 4))
    with graph.building():
        scale, zero = constant(np.float32(STEP)), constant(np.asarray(3, kind))
        y = ops.matmul(quantized.dequantize_linear(x, scale, zero), weights(4, 6))
        y = quantized.quantize_linear(y, constant(np.float32(0.05)), constant(np.asarray(50, kind)))
    graph.output("y", y)
    feeds = {"x": RNG.integers(0, 100, (3, 4)).astype(kind)}
    file = compared(graph, write(graph, tmp_path), feeds)
    border = ["QUANTIZE"] if kind == "uint8" else []
    assert file.names() == [*border, "FULLY_CONNECTED", *border]
    assert file.floats() == []


STAYS_FLOAT = {
    "weights with a zero point": lambda q, x: q(
        ops.matmul(
            x,
            quantized.dequantize_linear(
                constant(np.arange(24, dtype=np.int8).reshape(4, 6)), constant(np.float32(0.01)), constant(np.int8(5))
            ),
        ),
        0.05,
    ),
    "several scales of one result": lambda q, x: twice_rounded(q, ops.matmul(x, weights(4, 6))),
    "a result that is not rounded": lambda q, x: ops.matmul(x, weights(4, 6)),
    "an operator without a kernel": lambda q, x: q(ops.div(x, q(ops.exp(x), 0.1, -128)), 0.05),
    "scales per channel of activations": lambda q, x: per_channel(ops.matmul(x, weights(4, 6))),
    "blocks of weights": lambda q, x: q(ops.matmul(x, in_blocks()), 0.05),
    "int16 of int8": lambda q, x: QDQ("int16")(ops.matmul(x, weights(4, 6)), 0.001),
}


def twice_rounded(q, y):
    return q(y, 0.05), q(y, 0.04)


def per_channel(x):
    parameters = constant(np.full(6, 0.05, np.float32)), constant(np.zeros(6, np.int8))
    return quantized.dequantize_linear(quantized.quantize_linear(x, *parameters, axis=2), *parameters, axis=2)


def in_blocks():
    contents = constant(np.arange(24, dtype=np.int8).reshape(4, 6))
    return quantized.dequantize_linear(contents, constant(np.full((2, 6), 0.01, np.float32)), axis=0, block_size=2)


@pytest.mark.parametrize("name", STAYS_FLOAT)
def test_an_op_without_an_integer_kernel_computes_the_same_in_floats(name, tmp_path):
    graph = quantized_graph(ROWS, STAYS_FLOAT[name])
    path = write(graph, tmp_path)
    has_reference = "ROUND" not in File(path).names()
    compared(graph, path, {"x": ROWS}, (False, True) if has_reference else (False,))
    assert File(path).floats()


def test_int8_weights_without_quantized_activations_stay_in_int8(tmp_path):
    graph = tx.Graph("g", opsets={"ai.onnx": 21})
    x = graph.input("x", "float32", ("n", 64))
    with graph.building():
        y = ops.relu(ops.gemm(x, weights(64, 64, axis=1), constant(np.ones(64, np.float32))))
    graph.output("y", y)
    path = write(graph, tmp_path)
    feeds = {"x": RNG.standard_normal((3, 64)).astype(np.float32)}
    expected = graph.run(feeds, backend="numpy")["y"]
    np.testing.assert_allclose(run(path, feeds)["y"], expected, rtol=1e-4, atol=1e-4)
    assert File(path).names() == ["DEQUANTIZE", "FULLY_CONNECTED"]
    assert path.stat().st_size < 64 * 64 * 2


def test_equal_constants_with_different_scales_are_not_shared(tmp_path):
    def function(q, x):
        same = constant(np.eye(4, dtype=np.int8) * 100)
        first, second = (quantized.dequantize_linear(same, constant(np.float32(s))) for s in (0.01, 0.02))
        return q(ops.matmul(q(ops.matmul(x, first)), second), 0.05)

    graph = quantized_graph(ROWS, function)
    assert compared(graph, write(graph, tmp_path), {"x": ROWS}).floats() == []


#: Float operators that remain in the files of examples, except those of layer normalization.
FLOATS = {
    "quantized/resnet-qdq": set(),
    "quantized/resnet-qoperator": set(),
    "quantized/bert-static": {"BATCH_MATMUL", "SOFTMAX"},
    "digits/digits-int8": {"FULLY_CONNECTED", "SOFTMAX"},
}
WITH_KERNELS = {"CONV_2D", "FULLY_CONNECTED", "BATCH_MATMUL", "SOFTMAX", "MAX_POOL_2D", "PAD", "RESHAPE", "TRANSPOSE"}


@pytest.mark.parametrize("name", FLOATS)
def test_a_quantized_example_is_verified(name, tmp_path):
    source = EXAMPLES / f"{name}.onnx"
    before = source.read_bytes()
    report = tx.convert(source, tmp_path / "m.tflite")
    assert report.verification.equal
    assert source.read_bytes() == before
    assert set(File(tmp_path / "m.tflite").floats()) & WITH_KERNELS == FLOATS[name]


def test_a_quantized_network_has_a_quarter_of_the_size(tmp_path):
    graph = tx.Graph("g", opsets={"ai.onnx": 21})
    x = graph.input("x", "float32", ("batch", 8, 12, 12))
    random = np.random.default_rng(0)
    with graph.building():
        y, channels = x, 8
        for count in (64, 128, 128):
            kernels = random.standard_normal((count, channels, 3, 3)) * (2 / channels / 9) ** 0.5
            y = ops.relu(ops.conv(y, constant(kernels.astype(np.float32)), constant(np.ones(count, np.float32) / 8)))
            channels = count
        y = ops.global_average_pool(y)
    graph.output("y", y)
    feeds = [{"x": random.standard_normal((4, 8, 12, 12)).astype(np.float32)} for _ in range(2)]
    small, _ = tx.quantize(graph, feeds, mode="static")
    sizes = []
    for each, name in ((graph, "float"), (small, "int8")):
        path = tmp_path / f"{name}.tflite"
        assert tx.convert(each, path).verification.equal
        sizes.append(path.stat().st_size)
    assert sizes[1] <= sizes[0] * 0.275
    assert {"CONV_2D"} & set(File(path).floats()) == set()
