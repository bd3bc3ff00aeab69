"""Fusion of equivalent forms from exporters and optimizers, but not of similar ones."""

import math

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops

ROWS = ("n", "length", 8)
SQUARE = ("n", 8)
MICROSOFT = {"ai.onnx": 17, "com.microsoft": 1}


def graph_of(form, shapes, opsets, dtype="float32"):
    graph = tx.Graph(opsets=opsets)
    graph.output("y", form(*(graph.input(f"x{k}", dtype, shape) for k, shape in enumerate(shapes))))
    return graph


def of_one(opset, expected, **forms):
    return {name.replace("_", " "): (form, (SQUARE,), opset, expected) for name, form in forms.items()}


# ----- activations ----------------------------------------------------------------------------------------------------

STEEP, CUBIC, ROOT = math.sqrt(2 / math.pi), 0.044715, math.sqrt(2)


def sigmoid_written_out(x):
    return 1.0 / (1.0 + ops.exp(-x))


def relu6(x):
    return ops.clip(x, 0.0, 6.0)


GELU = of_one(
    20,
    "Gelu",
    erf_half_first=lambda x: 0.5 * x * (1.0 + ops.erf(x / ROOT)),
    erf_half_last=lambda x: x * (ops.erf(x * 0.70710678) + 1.0) * 0.5,
    erf_half_of_the_product=lambda x: 0.5 * (x * (ops.erf(x / 1.4142135) + 1.0)),
    erf_halved_by_division=lambda x: x * (ops.erf(x / ROOT) + 1.0) / 2.0,
    erf_half_within=lambda x: x * (0.5 + 0.5 * ops.erf(x / ROOT)),
    erf_half_around=lambda x: x * (0.5 * (1.0 + ops.erf(x / ROOT))),
    erf_distributed=lambda x: 0.5 * x + 0.5 * x * ops.erf(x * 0.70710678),
)

TANH_GELU = of_one(
    20,
    "Gelu",
    tanh_by_pow=lambda x: 0.5 * x * (1.0 + ops.tanh(STEEP * (x + CUBIC * ops.pow_(x, 3.0)))),
    tanh_by_products=lambda x: x * 0.5 * (ops.tanh((x + x * x * x * CUBIC) * STEEP) + 1.0),
    tanh_by_square=lambda x: 0.5 * x * (1.0 + ops.tanh(x * STEEP * (1.0 + CUBIC * x * x))),
    tanh_with_folded_constants=lambda x: 0.5 * x * (1.0 + ops.tanh(x * (STEEP + STEEP * CUBIC * x * x))),
    tanh_with_distributed_constants=lambda x: 0.5 * x * (1.0 + ops.tanh(STEEP * x + STEEP * CUBIC * ops.pow_(x, 3.0))),
    tanh_half_within=lambda x: x * (0.5 + 0.5 * ops.tanh(STEEP * (x + CUBIC * x * x * x))),
    tanh_by_sigmoid=lambda x: x * ops.sigmoid(2 * STEEP * (x + CUBIC * ops.pow_(x, 3.0))),
    tanh_by_sigmoid_folded=lambda x: x * ops.sigmoid(x * (2 * STEEP + 2 * STEEP * CUBIC * x * x)),
)

SWISH = of_one(
    24,
    "Swish",
    product=lambda x: x * ops.sigmoid(x),
    product_turned=lambda x: ops.sigmoid(x) * x,
    written_out=lambda x: x * sigmoid_written_out(x),
    quotient=lambda x: x / (1.0 + ops.exp(-x)),
    with_a_factor=lambda x: x * ops.sigmoid(x * 1.702),
    by_tanh=lambda x: 0.5 * x * (1.0 + ops.tanh(0.5 * x)),
)

HARD = {
    **of_one(
        14,
        "HardSwish",
        hardswish_by_relu6_divided=lambda x: x * relu6(x + 3.0) / 6.0,
        hardswish_by_relu6_times=lambda x: x * relu6(x + 3.0) * (1 / 6),
        hardswish_by_relu6_divided_first=lambda x: x * (relu6(x + 3.0) / 6.0),
        hardswish_by_min_and_max=lambda x: x * ops.minimum(ops.maximum(x + 3.0, 0.0), 6.0) / 6.0,
        hardswish_by_max_and_min=lambda x: x * ops.minimum(6.0, ops.maximum(0.0, 3.0 + x)) / 6.0,
        hardswish_by_relu_and_min=lambda x: x * ops.minimum(ops.relu(x + 3.0), 6.0) / 6.0,
        hardswish_by_clip_to_one=lambda x: x * ops.clip(x / 6.0 + 0.5, 0.0, 1.0),
        hardswish_by_hard_sigmoid=lambda x: ops.hard_sigmoid(x, alpha=1 / 6) * x,
    ),
    **of_one(
        14,
        "HardSigmoid",
        hardsigmoid_by_clip=lambda x: ops.clip(x * 0.2 + 0.5, 0.0, 1.0),
        hardsigmoid_by_relu6=lambda x: relu6(x + 3.0) / 6.0,
        hardsigmoid_by_relu6_times=lambda x: relu6(x + 3.0) * (1 / 6),
        hardsigmoid_by_min_and_max=lambda x: ops.maximum(ops.minimum(x * 0.25 + 0.4, 1.0), 0.0),
        hardsigmoid_by_relu=lambda x: ops.minimum(ops.relu(0.2 * x + 0.5), 1.0),
        hardsigmoid_of_a_sum=lambda x: ops.clip((x + 2.5) * 0.2, 0.0, 1.0),
    ),
}

OTHERS = {
    **of_one(
        18,
        "Mish",
        mish=lambda x: x * ops.tanh(ops.softplus(x)),
        mish_turned=lambda x: ops.tanh(ops.softplus(x)) * x,
    ),
    **of_one(
        13,
        "Sigmoid",
        sigmoid_written_out=sigmoid_written_out,
        sigmoid_by_reciprocal=lambda x: ops.reciprocal(ops.exp(x * -1.0) + 1.0),
    ),
    **of_one(13, "Softsign", softsign=lambda x: x / (1.0 + ops.absolute(x))),
    **of_one(
        13,
        "Clip",
        clip_by_min_and_max=lambda x: ops.maximum(ops.minimum(x, 2.0), -1.0),
        clip_by_relu=lambda x: ops.minimum(ops.relu(x), 6.0),
    ),
    **of_one(
        13,
        "Softplus",
        softplus_by_parts=lambda x: ops.maximum(x, 0.0) + ops.log(1.0 + ops.exp(-ops.absolute(x))),
    ),
    **of_one(
        13,
        "LogSoftmax",
        logsoftmax_by_parts=lambda x: (lambda d: d - ops.log(ops.reduce_sum(ops.exp(d), [-1])))(
            x - ops.reduce_max(x, [1])
        ),
    ),
    **of_one(
        MICROSOFT,
        "QuickGelu",
        quick_gelu=lambda x: x * ops.sigmoid(1.702 * x),
        silu=lambda x: x * ops.sigmoid(x),
    ),
    **of_one(
        MICROSOFT,
        "FastGelu",
        fast_gelu_by_sigmoid=lambda x: x * ops.sigmoid(x * (2 * STEEP + 2 * STEEP * CUBIC * x * x)),
        fast_gelu_half_within=lambda x: x * (0.5 + 0.5 * ops.tanh(STEEP * (x + CUBIC * ops.pow_(x, 3.0)))),
    ),
}

# ----- norms ----------------------------------------------------------------------------------------------------------


def centered(x):
    return x - ops.reduce_mean(x, [-1])


def mean_square(x):
    return ops.reduce_mean(x * x, [2])


def spread_of(x, epsilon=1e-6):
    return ops.sqrt(mean_square(x) + epsilon)


def layer_norm_of_keras(x, scale, bias):
    """The form of tf.nn.batch_normalization."""
    mean = ops.reduce_mean(x, [-1])
    inverse = ops.reciprocal(spread_of(x - mean)) * scale
    return x * inverse + (bias - mean * inverse)


FORMS_OF_NORMS = {
    "layer by div": (lambda x, s, b: centered(x) / spread_of(centered(x)) * s + b, 3, 17, "LayerNormalization"),
    "layer by reciprocal": (
        lambda x, s, b: s * (centered(x) * ops.reciprocal(spread_of(centered(x)))) + b,
        3,
        17,
        "LayerNormalization",
    ),
    "layer by pow": (
        lambda x, s, b: centered(x) * ops.pow_(mean_square(centered(x)) + 1e-6, -0.5) * s + b,
        3,
        17,
        "LayerNormalization",
    ),
    "layer, scale first": (
        lambda x, s, b: centered(x) * (ops.reciprocal(spread_of(centered(x))) * s) + b,
        3,
        17,
        "LayerNormalization",
    ),
    "layer without bias": (lambda x, s: centered(x) / spread_of(centered(x)) * s, 2, 17, "LayerNormalization"),
    "layer without scale": (lambda x: centered(x) / spread_of(centered(x)), 1, 17, "LayerNormalization"),
    "layer without scale, with bias": (
        lambda x, b: centered(x) / spread_of(centered(x)) + b,
        2,
        17,
        "LayerNormalization",
    ),
    "layer of keras": (layer_norm_of_keras, 3, 17, "LayerNormalization"),
    "rms by div": (lambda x, s: x / spread_of(x) * s, 2, 23, "RMSNormalization"),
    "rms by reciprocal": (lambda x, s: s * (x * ops.reciprocal(spread_of(x))), 2, 23, "RMSNormalization"),
    "rms by one over": (lambda x, s: x * (1.0 / spread_of(x)) * s, 2, 23, "RMSNormalization"),
    "rms by root of reciprocal": (
        lambda x, s: x * ops.sqrt(ops.reciprocal(mean_square(x) + 1e-6)) * s,
        2,
        23,
        "RMSNormalization",
    ),
    "rms by pow": (lambda x, s: x * ops.pow_(mean_square(x) + 1e-6, -0.5) * s, 2, 23, "RMSNormalization"),
    "rms by pow of half": (lambda x, s: x / ops.pow_(mean_square(x) + 1e-6, 0.5) * s, 2, 23, "RMSNormalization"),
    "rms, scale first": (lambda x, s: s * x / spread_of(x), 2, 23, "RMSNormalization"),
    "rms without scale": (lambda x: x / spread_of(x), 1, 23, "RMSNormalization"),
    "rms of gemma": (lambda x, s: x / spread_of(x) * (1.0 + s), 2, 23, ["Add", "RMSNormalization"]),
}
NORMS = {
    name: (form, (ROWS, (8,), (8,))[:count], opset, expected)
    for name, (form, count, opset, expected) in FORMS_OF_NORMS.items()
}

# ----- products -------------------------------------------------------------------------------------------------------

HEADS, KEYS = ("n", 4, 3, 8), ("n", 2, 3, 8)


def attended(q, k, v, of_q=1.0, of_k=1.0, of_scores=1.0):
    turned = ops.transpose(k * of_k if of_k != 1 else k, perm=[0, 1, 3, 2])
    return ops.matmul(ops.softmax(ops.matmul(q * of_q if of_q != 1 else q, turned) * of_scores), v)


def by_expand(x):
    return ops.reshape(ops.expand(ops.unsqueeze(x, [2]), [1, 1, 2, 1, 1]), [0, 4, -1, 8])


def by_tile(x):
    return ops.reshape(ops.tile(ops.unsqueeze(x, [2]), [1, 1, 2, 1, 1]), [0, 4, -1, 8])


def by_concat(x):
    return ops.reshape(ops.concat(ops.unsqueeze(x, [2]), ops.unsqueeze(x, [2]), axis=2), [0, 4, -1, 8])


def by_gather(x):
    return ops.gather(x, [0, 0, 1, 1], axis=1)


def convolved(x, transposed=False, **attributes):
    kernel = np.random.default_rng(0).normal(size=(3, 3, 3, 3)).astype(np.float32)
    return (ops.conv_transpose if transposed else ops.conv)(x, kernel, np.float32([1, 2, 3]), **attributes)


def normalized(x):
    random = np.random.default_rng(1)
    return ops.batch_normalization(x, *(random.uniform(0.5, 2, 3).astype(np.float32) for _ in range(4)))


CHANNELS = np.float32([1, 2, 3]).reshape(3, 1, 1)
IMAGE, THREE = (("n", 3, 8, 8),), (HEADS, HEADS, HEADS)
PRODUCTS = {
    "attention, scaled scores": (lambda *x: attended(*x, of_scores=0.3), THREE, 23, "Attention"),
    "attention, scaled queries": (lambda *x: attended(*x, of_q=0.3), THREE, 23, "Attention"),
    "attention, both scaled": (lambda *x: attended(*x, of_q=0.5, of_k=0.5), THREE, 23, "Attention"),
    "attention, divided": (lambda q, k, v: attended(q / 8**0.5, k, v), THREE, 23, "Attention"),
    "groups by expand": (lambda q, k, v: attended(q, by_expand(k), by_expand(v)), (HEADS, KEYS, KEYS), 23, "Attention"),
    "groups by tile": (lambda q, k, v: attended(q, by_tile(k), by_tile(v)), (HEADS, KEYS, KEYS), 23, "Attention"),
    "groups by concat": (lambda q, k, v: attended(q, by_concat(k), by_concat(v)), (HEADS, KEYS, KEYS), 23, "Attention"),
    "groups by gather": (lambda q, k, v: attended(q, by_gather(k), by_gather(v)), (HEADS, KEYS, KEYS), 23, "Attention"),
    "gemm": (lambda a, b, c: ops.matmul(a, b) + c, (SQUARE, (8, 4), (4,)), 13, "Gemm"),
    "gemm with alpha": (lambda a, b, c: ops.matmul(a, b) * 0.3 + c, (SQUARE, (8, 4), (4,)), 13, "Gemm"),
    "gemm with alpha and beta": (lambda a, b, c: 0.3 * ops.matmul(a, b) + 0.7 * c, (SQUARE, (8, 4), (4,)), 13, "Gemm"),
    "gemm divided": (lambda a, b, c: ops.matmul(a, b) / 3.0 + c, (SQUARE, (8, 4), (4,)), 13, "Gemm"),
    "gemm of transposed": (
        lambda a, b, c: ops.matmul(a, ops.transpose(b, perm=[1, 0])) + c,
        (SQUARE, (4, 8), (4,)),
        13,
        "Gemm",
    ),
    "conv, batch norm": (lambda x: normalized(convolved(x)), IMAGE, 15, "Conv"),
    "conv, mul and add": (lambda x: convolved(x) * CHANNELS + CHANNELS, IMAGE, 15, "Conv"),
    "conv, sub and div": (lambda x: (convolved(x) - CHANNELS) / CHANNELS, IMAGE, 15, "Conv"),
    "conv transpose, batch norm": (
        lambda x: normalized(convolved(x, transposed=True, strides=[2, 2])),
        IMAGE,
        15,
        "ConvTranspose",
    ),
}

GROUPS = (GELU, TANH_GELU, SWISH, HARD, OTHERS, NORMS, PRODUCTS)
SPELLINGS = {name: case for group in GROUPS for name, case in group.items()}


def fused_from(form, shapes, opset, dtype="float32", ops=None):
    graph = graph_of(form, shapes, opset if isinstance(opset, dict) else {"ai.onnx": opset}, dtype)
    return graph, tx.fuse(graph, ops)


def drawn(graph, special=(), dtype="float32"):
    """Inputs of various magnitudes, with each special number in a separate row."""
    random = np.random.default_rng(0)
    feeds = {}
    for value in graph.inputs:
        shape = [d if isinstance(d, int) else {"n": len(SPECIAL)}.get(str(d), 2) for d in value.type.shape]
        feeds[value.name] = (random.normal(size=shape) * random.choice([0.01, 1, 5], size=shape)).astype(dtype)
    first = feeds["x0"].reshape(feeds["x0"].shape[0], -1)
    for row, number in enumerate(special):
        first[row, row % first.shape[1]] = number
    return feeds


SPECIAL = [0.0, -0.0, 1e3, -1e3, 20.0, -20.0, np.nan, np.inf, -np.inf]
TOLERANCES = {"float16": 1e-2, "float32": 2e-5, "float64": 1e-6}


def same(graph, fused, dtype="float32", special=SPECIAL):
    feeds = drawn(graph, special, dtype)
    expected, given = (g.run(feeds, "numpy") for g in (graph, fused))
    for name, value in expected.items():
        np.testing.assert_allclose(given[name], value, rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype], equal_nan=True)


@pytest.mark.parametrize("name", SPELLINGS)
def test_an_equivalent_form_is_found(name):
    form, shapes, opset, expected = SPELLINGS[name]
    graph, fused = fused_from(form, shapes, opset, ops=["Conv", "ConvTranspose"] if name.startswith("conv") else None)
    assert [node.op_type for node in fused.nodes] == ([expected] if isinstance(expected, str) else expected)
    same(graph, fused)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
@pytest.mark.parametrize("name", [name for group in (GELU, TANH_GELU, SWISH, HARD) for name in group])
def test_an_activation_is_found_at_other_widths(name, dtype):
    form, shapes, opset, expected = SPELLINGS[name]
    graph, fused = fused_from(form, shapes, opset, dtype)
    assert [node.op_type for node in fused.nodes] == [expected]
    same(graph, fused, dtype)


# ----- similar forms --------------------------------------------------------------------------------------------------

NEARLY = {
    "a half that is none": ("Gelu", 20, lambda x: 0.51 * x * (1.0 + ops.erf(x / ROOT))),
    "a half within that is none": ("Gelu", 20, lambda x: x * (0.5 + 0.51 * ops.erf(x / ROOT))),
    "another root": ("Gelu", 20, lambda x: 0.5 * x * (1.0 + ops.erf(x / 1.42))),
    "another one": ("Gelu", 20, lambda x: 0.5 * x * (1.01 + ops.erf(x / ROOT))),
    "the error function of another": ("Gelu", 20, lambda x: 0.5 * x * (1.0 + ops.erf(ops.exp(x) / ROOT))),
    "another cube": ("Gelu", 20, lambda x: x * ops.sigmoid(x * (2 * STEEP + 2 * STEEP * 0.045 * x * x))),
    "a square": ("Gelu", 20, lambda x: x * ops.sigmoid(x * (2 * STEEP + 2 * STEEP * CUBIC * x))),
    "another steepness": ("Gelu", 20, lambda x: x * ops.sigmoid(x * (1.58 + 2 * STEEP * CUBIC * x * x))),
    "a sigmoid of another": ("Swish", 24, lambda x: x * ops.sigmoid(ops.exp(x))),
    "two and an exponential": ("Swish", 24, lambda x: x / (2.0 + ops.exp(-x))),
    "half of a hyperbolic tangent": ("Swish", 24, lambda x: x * (0.5 + 0.51 * ops.tanh(x * 0.5))),
    "another slope": ("HardSwish", 14, lambda x: x * relu6(x + 3.0) / 6.1),
    "another shift": ("HardSwish", 14, lambda x: x * relu6(x + 2.9) / 6.0),
    "another bound": ("HardSwish", 14, lambda x: x * ops.clip(x + 3.0, 0.0, 5.0) / 6.0),
    "the bound of another": ("HardSwish", 14, lambda x: x * relu6(ops.exp(x) + 3.0) / 6.0),
    "a bound below zero": ("HardSigmoid", 14, lambda x: ops.clip(x + 3.0, -1.0, 6.0) / 6.0),
    "a bound that is not one": ("HardSigmoid", 14, lambda x: relu6(x + 3.0) / 5.0),
    "a bound turned over": ("HardSigmoid", 14, lambda x: relu6(x + 3.0) / -6.0),
    "bounds that cross": ("Clip", 13, lambda x: ops.maximum(ops.minimum(x, -1.0), 2.0)),
    "a logarithm that overflows": ("Softplus", 13, lambda x: ops.log(1.0 + ops.exp(x))),
    "a softmax that underflows": ("LogSoftmax", 13, lambda x: ops.log(ops.softmax(x, axis=-1))),
    "a norm by another axis": (
        "LayerNormalization",
        17,
        lambda x: (lambda d: d / ops.sqrt(ops.reduce_mean(d * d, [0]) + 1e-6))(centered(x)),
    ),
    "a root before epsilon": (
        "LayerNormalization",
        17,
        lambda x: (lambda d: d / (ops.sqrt(ops.reduce_mean(d * d, [-1])) + 1e-6))(centered(x)),
    ),
    "a difference of squares": (
        "LayerNormalization",
        17,
        lambda x: centered(x) / ops.sqrt(ops.reduce_mean(x * x, [-1]) - ops.pow_(ops.reduce_mean(x, [-1]), 2.0) + 1e-6),
    ),
    "a mean by another factor": (
        "LayerNormalization",
        17,
        lambda x: (lambda m, r: x * r - m * (r * r))(
            ops.reduce_mean(x, [-1]), ops.reciprocal(ops.sqrt(ops.reduce_mean(centered(x) * centered(x), [-1]) + 1e-6))
        ),
    ),
    "a mean square of another": (
        "RMSNormalization",
        23,
        lambda x: ops.exp(x) / ops.sqrt(ops.reduce_mean(x * x, [-1]) + 1e-6),
    ),
    "a sum of squares": ("RMSNormalization", 23, lambda x: x / ops.sqrt(ops.reduce_sum(x * x, [-1]) + 1e-6)),
}


@pytest.mark.parametrize("name", NEARLY)
def test_near_misses_are_not_matched(name):
    kind, opset, form = NEARLY[name]
    graph, fused = fused_from(form, (SQUARE,), opset)
    assert kind not in {node.op_type for node in fused.nodes}
    same(graph, fused)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_types_of_few_digits_tell_halves_apart(dtype):
    form = NEARLY["a half within that is none"][2]
    assert "Gelu" not in {node.op_type for node in fused_from(form, (SQUARE,), 20, dtype)[1].nodes}


READ = {
    "erf": (ops.erf, lambda x, erf: x * (0.5 + 0.5 * erf(x / ROOT)), 20, "Gelu"),
    "tanh": (ops.tanh, lambda x, tanh: 0.5 * x * (1.0 + tanh(x * (STEEP + STEEP * CUBIC * x * x))), 20, "Gelu"),
    "clip": (relu6, lambda x, clip: x * clip(x + 3.0) / 6.0, 14, "HardSwish"),
    "root": (
        ops.sqrt,
        lambda x, sqrt: centered(x) / sqrt(mean_square_of_rows(centered(x)) + 1e-6),
        17,
        "LayerNormalization",
    ),
}


def mean_square_of_rows(x):
    return ops.reduce_mean(x * x, [-1])


@pytest.mark.parametrize("used", ["returned", "read"])
@pytest.mark.parametrize("name", READ)
def test_inner_values_with_consumers_are_kept(name, used):
    function, form, opset, expected = READ[name]
    graph = tx.Graph(opsets={"ai.onnx": opset})
    held = []

    def kept(x):
        held.append(function(x))
        return held[-1]

    graph.output("y", form(graph.input("x0", "float32", SQUARE), kept))
    graph.output("inner", held[0] if used == "returned" else ops.exp(-held[0]))
    fused = tx.fuse(graph)
    assert expected in {node.op_type for node in fused.nodes}
    same(graph, fused)


def test_a_norm_that_scales_by_nothing_knows_its_lengths():
    """Ones are written into the model, except for unknown or very large lengths."""
    for size in ("width", 1 << 17):
        graph, fused = fused_from(NORMS["layer without scale"][0], (("n", "length", size),), 17)
        assert [node.op_type for node in fused.nodes] == [node.op_type for node in graph.nodes]


def test_a_given_value_is_not_split():
    """Products and sums with constants may be the input of a pattern."""
    for before in (lambda x: x * 0.25 + 1.5, lambda x: x * 3.0, lambda x: x + x * x):
        for name in ("erf half within", "tanh with folded constants", "hardswish by relu6 divided"):
            form, shapes, opset, expected = SPELLINGS[name]
            graph, fused = fused_from(lambda x, before=before, form=form: form(before(x)), shapes, opset)
            assert fused.nodes[-1].op_type == expected
            same(graph, fused)


def test_a_product_leaves_the_number_to_the_activation_before_it():
    def form(x, w, b):
        return ops.matmul(x * (1.0 + ops.erf(x / ROOT)) * 0.5, w) + b

    graph, fused = fused_from(form, (SQUARE, (8, 4), (4,)), 20)
    assert [node.op_type for node in fused.nodes] == ["Gelu", "Gemm"]
    same(graph, fused)
    _, vendor = fused_from(form, (ROWS, (8, 4), (4,)), {"ai.onnx": 20, "com.microsoft": 1})
    assert vendor.nodes[0].op_type == "Gelu"
