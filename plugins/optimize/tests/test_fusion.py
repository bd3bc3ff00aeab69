"""Fusion: bodies of ops are found in equivalent forms, and nothing else matches."""

import math

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.errors import InvalidCall
from tenonnx.extend import op


def graph_of(function, *shapes, opset=23):
    graph = tx.Graph(opsets={"ai.onnx": opset})
    inputs = [graph.input(f"x{k}", "float32", shape) for k, shape in enumerate(shapes)]
    graph.output("y", function(*inputs))
    return graph


def check(graph, *expected, ops=None, **attributes):
    """The fused graph has these ops and the same outputs; the first node has these attributes."""
    before = [node.op_type for node in graph.nodes]
    fused = tx.fuse(graph, ops)
    assert [node.op_type for node in fused.nodes] == list(expected)
    assert [node.op_type for node in graph.nodes] == before, "the source is left as it was"
    for name, value in attributes.items():
        assert fused.nodes[0].attributes[name] == pytest.approx(value)
    tx.verify(graph, fused).raise_if_failed()
    return fused


def standardized(x, scale, bias, epsilon=1e-12, axes=(-1,)):
    deviation = x - ops.reduce_mean(x, list(axes))
    variance = ops.reduce_mean(ops.pow_(deviation, 2.0), list(axes))
    return deviation / ops.sqrt(variance + epsilon) * scale + bias


SEQUENCES = ("batch", "length", 8)


def test_layer_normalization():
    check(graph_of(standardized, SEQUENCES, (8,), (8,)), "LayerNormalization", epsilon=1e-12)


def test_layer_normalization_over_two_axes():
    graph = graph_of(lambda *x: standardized(*x, axes=(1, 2)), ("batch", 3, 8), (3, 8), (3, 8))
    check(graph, "LayerNormalization", axis=1)


def test_a_call_with_fewer_outputs_replaces_no_other():
    graph = tx.Graph(opsets={"ai.onnx": 23})
    x = graph.input("x", "float32", (1, 1, 4, 4))
    _, places = ops.max_pool(x, kernel_shape=[2, 2], _outputs=2)
    graph.nodes[0]._replace_fields(outputs=(None, graph.output("places", places)))
    graph.output("y", ops.relu(ops.max_pool(x, kernel_shape=[2, 2])))
    check(graph, "MaxPool", "MaxPool", "Relu")


def test_root_mean_square():
    def by_square(x, scale):
        return scale * (x * ops.reciprocal(ops.sqrt(ops.reduce_mean(ops.pow_(x, 2.0), [-1]) + 1e-6)))

    check(graph_of(by_square, SEQUENCES, (8,)), "RMSNormalization", epsilon=1e-6)


GELUS = {
    "half of it first": lambda x: x * 0.5 * (1.0 + ops.erf(x / math.sqrt(2))),
    "half of it last": lambda x: 0.5 * (x * (ops.erf(x / 1.4142135) + 1.0)),
    "by the reciprocal": lambda x: x * (1.0 + ops.erf(x * 0.70710678)) * 0.5,
}


@pytest.mark.parametrize("form", GELUS.values(), ids=GELUS)
def test_gelu(form):
    check(graph_of(form, ("n", 8)), "Gelu")


def test_gelu_of_a_product():
    check(graph_of(lambda x, w: GELUS["half of it first"](x * w), ("n", 8), (8,)), "Mul", "Gelu")


def test_gelu_by_tanh():
    def form(x):
        return 0.5 * x * (1.0 + ops.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * ops.pow_(x, 3.0))))

    check(graph_of(form, ("n", 8)), "Gelu", approximate="tanh")


def test_softmax():
    def form(x):
        exponentials = ops.exp(x - ops.reduce_max(x, [-1]))
        return exponentials / ops.reduce_sum(exponentials, [-1])

    check(graph_of(form, ("n", 8)), "Softmax")


def test_one_op_within_another():
    check(graph_of(lambda a, b, c: ops.relu(ops.matmul(a, b) + c), ("n", 8), (8, 4), (4,)), "Gemm", "Relu")


def test_ops_of_another_domain_are_found_where_the_graph_has_it():
    graph = graph_of(lambda x, skip, s, b: standardized(x + skip, s, b), SEQUENCES, SEQUENCES, (8,), (8,))
    check(graph, "Add", "LayerNormalization")
    graph.opsets = {**graph.opsets, "com.microsoft": 1}
    check(graph, "SkipLayerNormalization")


@pytest.mark.parametrize(
    ("shape", "skip", "fused"),
    [
        (SEQUENCES, SEQUENCES, True),
        (SEQUENCES, SEQUENCES[1:], True),
        (SEQUENCES, (1, *SEQUENCES[1:]), True),
        (SEQUENCES, (SEQUENCES[0], 1, 8), False),
        (SEQUENCES, (1, 1, 8), False),
        (SEQUENCES, (8,), False),
        (("length", 8), (1, 8), False),
        (("images", *SEQUENCES), ("images", *SEQUENCES), False),
    ],
)
def test_a_symbolic_length_is_not_a_number(shape, skip, fused):
    graph = graph_of(lambda x, y, s, b: standardized(x + y, s, b), shape, skip, (8,), (8,))
    graph.opsets = {**graph.opsets, "com.microsoft": 1}
    check(graph, *(["SkipLayerNormalization"] if fused else ["Add", "LayerNormalization"]))


def test_unfused_nodes_keep_all_outputs():
    graph = graph_of(lambda x: ops.relu(ops.top_k(x, np.array([2]))[0]), ("n", 8))
    check(graph, "TopK", "Relu")
    assert [len(node.outputs) for node in tx.fuse(graph).nodes] == [2, 1]


def test_only_what_is_asked_for():
    graph = graph_of(GELUS["half of it first"], ("n", 8))
    check(graph, *[node.op_type for node in graph.nodes], ops=["LayerNormalization"])
    check(graph, "Gelu", ops=["ai.onnx::Gelu"])
    with pytest.raises(InvalidCall, match=r"ai\.onnx::Gely is not an op with a body(.|\n)*did you mean Gelu"):
        tx.fuse(graph, ["Gely"])


def test_an_older_opset_has_fewer_ops():
    graph = graph_of(GELUS["half of it first"], ("n", 8), opset=13)
    assert "Gelu" not in {node.op_type for node in tx.fuse(graph).nodes}


def test_values_with_other_consumers_are_kept():
    graph = tx.Graph(opsets={"ai.onnx": 23})
    x = graph.input("x", "float32", ("n", 8))
    inner = ops.erf(x / math.sqrt(2))
    graph.output("inner", inner)
    graph.output("y", x * 0.5 * (1.0 + inner))
    fused = check(graph, "Div", "Erf", "Gelu")
    assert [value.name for value in fused.outputs] == ["inner", "y"]


WRONG = {
    "another mean": lambda x, s, b: (
        (x - ops.reduce_mean(x, [1]))
        / ops.sqrt(ops.reduce_mean(ops.pow_(x - ops.reduce_mean(x, [-1]), 2.0), [-1]) + 1e-5)
        * s
        + b
    ),
    "the root of the sum": lambda x, s, b: (lambda d: d / (ops.sqrt(ops.reduce_mean(d * d, [-1])) + 1e-5) * s + b)(
        x - ops.reduce_mean(x, [-1])
    ),
    "another power": lambda x, s, b: (lambda d: d / ops.sqrt(ops.reduce_mean(ops.pow_(d, 4.0), [-1]) + 1e-5) * s + b)(
        x - ops.reduce_mean(x, [-1])
    ),
}


@pytest.mark.parametrize("form", WRONG.values(), ids=WRONG)
def test_near_misses_are_not_fused(form):
    fused = tx.fuse(graph_of(form, SEQUENCES, (8,), (8,)))
    assert "LayerNormalization" not in {node.op_type for node in fused.nodes}


def test_an_op_of_a_third_party_is_found_by_its_body():
    @op("Bump", domain="com.example")
    def bump(X, *, width=2.0):
        return ops.exp(X * X * width * -1.0) * X

    graph = graph_of(lambda x: x * ops.exp(-(ops.pow_(x, 2.0) / 4.0)), ("n",))
    graph.opsets = {**graph.opsets, "com.example": 1}
    fused = tx.fuse(graph, [bump])
    assert [node.op_type for node in fused.nodes] == ["Bump"]
    assert fused.nodes[0].attributes["width"] == pytest.approx(0.25)
    x = np.float32([0.5, -1])
    np.testing.assert_allclose(fused.run({"x0": x}, "numpy")["y"], graph.run({"x0": x}, "numpy")["y"], rtol=1e-6)


def test_an_export_fuses_for_its_target(tmp_path):
    graph = graph_of(lambda x, s, b: GELUS["half of it first"](standardized(x, s, b)), SEQUENCES, (8,), (8,), opset=13)
    report = tx.export(graph, tmp_path / "fused.onnx", opset_version=20, fuse=True)
    written = tx.load(tmp_path / "fused.onnx")
    assert [node.op_type for node in written.nodes] == ["LayerNormalization", "Gelu"]
    assert {str(change) for change in report.changes if change.action == "fused"} == {
        f"{node.name} (ai.onnx::{node.op_type}@{node.version}): fused; stands for a subgraph of simpler ops"
        for node in written.nodes
    }
    tx.verify(graph, written).raise_if_failed()


def test_an_export_fuses_for_another_domain_that_is_asked_for(tmp_path):
    graph = graph_of(lambda x, skip, s, b: standardized(x + skip, s, b), SEQUENCES, SEQUENCES, (8,), (8,), opset=13)
    tx.export(graph, tmp_path / "fused.onnx", opset_version=17, fuse=True, domains=["ai.onnx", "com.microsoft"])
    written = tx.load(tmp_path / "fused.onnx")
    assert [node.op_type for node in written.nodes] == ["SkipLayerNormalization"]
    tx.verify(graph, written).raise_if_failed()


@pytest.mark.parametrize(("dtype", "found"), [("float32", True), ("bfloat16", False)])
def test_an_export_fuses_to_no_op_that_lacks_the_element_type(dtype, found, tmp_path):
    """HardSwish supports bfloat16 only from version 22 on, Clip from 13 on."""
    graph = tx.Graph(opsets={"ai.onnx": 14})
    x = graph.input("x", dtype, ("n",))
    graph.output("y", x * ops.clip(x * (1 / 6) + 0.5, 0.0, 1.0))
    tx.export(graph, tmp_path / "fused.onnx", opset_version=14, fuse=True)
    written = {node.op_type for node in tx.load(tmp_path / "fused.onnx").nodes}
    assert ("HardSwish" in written) == found


HEADS = ("batch", 2, "length", 4)


def attended(q, k, v, mask=None, scale=0.5):
    scores = ops.matmul(q, ops.transpose(k, perm=[0, 1, 3, 2])) * scale
    return ops.matmul(ops.softmax(scores if mask is None else scores + mask), v)


def test_attention():
    fused = check(graph_of(attended, HEADS, HEADS, HEADS), "Attention", scale=0.5)
    assert [value.name for value in fused.nodes[0].inputs] == ["x0", "x1", "x2"]


def test_attention_by_einsum():
    def form(q, k, v):
        weights = ops.softmax(ops.einsum(q, k, equation="bhqd,bhkd->bhqk") * 0.5)
        return ops.einsum(weights, v, equation="bhqk,bhkd->bhqd")

    check(graph_of(form, HEADS, HEADS, HEADS), "Attention", scale=0.5)


def test_attention_with_a_mask_that_is_finite():
    def form(q, k, v, keep):
        return attended(q, k, v, ops.where(keep > 0.0, np.float32(0), np.float32(-1e9)))

    rows = graph_of(form, HEADS, HEADS, HEADS, ("batch", 1, "length", "length"))
    check(rows, "Greater", "Where", "Attention")
    one_row = tx.fuse(graph_of(form, HEADS, HEADS, HEADS, ("batch", 1, 1, "length")))
    assert [node.op_type for node in one_row.nodes][-2:] == ["Expand", "Attention"]


def test_attention_with_a_mask_that_may_hide_every_key_stays():
    """Attention returns zeros then, but the graph NaN."""
    fused = tx.fuse(graph_of(attended, HEADS, HEADS, HEADS, ("batch", 1, "length", "length")))
    assert "Attention" not in {node.op_type for node in fused.nodes}


def test_attention_with_a_past():
    graph = tx.Graph(opsets={"ai.onnx": 23})
    q, k, v = (graph.input(name, "float32", HEADS) for name in "qkv")
    keys, values = (
        ops.concat(graph.input(f"past_{n}", "float32", ("batch", 2, "past", 4)), n, axis=-2) for n in (k, v)
    )
    graph.output("y", attended(q, keys, values))
    graph.output("keys", keys)
    graph.output("values", values)
    fused = check(graph, "Attention")
    assert [value.name for value in fused.nodes[0].outputs] == ["y", "keys", "values"]


def test_a_past_whose_present_nobody_reads_has_it_all_the_same():
    """Without that output onnxruntime rejects Attention, and ignores the past in MultiHeadAttention."""

    def form(q, k, v, past_key, past_value):
        return attended(q, ops.concat(past_key, k, axis=2), ops.concat(past_value, v, axis=2))

    pasts = [("batch", 2, "past", 4)] * 2
    fused = check(graph_of(form, HEADS, HEADS, HEADS, *pasts), "Attention")
    assert [value is not None for value in fused.nodes[0].outputs] == [True] * 3


@pytest.mark.parametrize(
    "batches",
    [("batch", 1, 1), (1, "batch", "batch"), ("batch", "batch", 1), ("batch", "other", "other"), (3, 1, 1), (1, 3, 3)],
)
def test_attention_that_repeats_a_batch_stays(batches):
    """MatMul broadcasts, but onnxruntime rejects Attention then."""
    graph = graph_of(attended, *((batch, 2, "length", 8) for batch in batches))
    fused = tx.fuse(graph, also=["com.microsoft::MultiHeadAttention", "com.microsoft::GroupQueryAttention"])
    assert not {node.op_type for node in fused.nodes} & {"Attention", "MultiHeadAttention", "GroupQueryAttention"}


def test_a_mask_that_repeats_the_batch_stays_apart():
    def form(q, k, v, keep):
        return attended(q, k, v, ops.where(keep > 0.0, np.float32(0), np.float32(-1e9)))

    one = (1, 2, "length", 4)
    fused = tx.fuse(graph_of(form, one, one, one, ("batch", 1, "length", "length")))
    assert "Attention" not in {node.op_type for node in fused.nodes}


def test_attention_with_heads_that_are_repeated():
    def repeated(x):
        wide = ops.expand(ops.unsqueeze(x, [2]), [1, 1, 2, 1, 1])
        return ops.reshape(wide, [0, 4, -1, 4])

    def form(q, k, v):
        return attended(q, repeated(k), repeated(v))

    sizes = ("batch", 4, 3, 4), ("batch", 2, 3, 4), ("batch", 2, 3, 4)
    check(graph_of(form, *sizes), "Attention")


def test_group_normalization_by_reshaping():
    scale, bias = (np.arange(4, dtype=np.float32).reshape(4, 1, 1) + n for n in (1, 0.5))

    def form(x):
        ones, zeros = np.ones(2, np.float32), np.zeros(2, np.float32)
        grouped = ops.instance_normalization(ops.reshape(x, [0, 2, -1]), ones, zeros, epsilon=1e-6)
        return ops.reshape(grouped, ops.shape(x)) * scale + bias

    graph = graph_of(form, ("batch", 4, 3, 3))
    check(graph, "GroupNormalization", ops=["GroupNormalization"], num_groups=2, epsilon=1e-6)
    check(graph, *[node.op_type for node in graph.nodes])  # onnxruntime has no kernel for the fused op


def convolved(x, bias=True, **attributes):
    kernel = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32)
    return ops.conv(x, kernel, np.float32([1, 2, 3, 4]) if bias else None, **attributes)


def normalized(x):
    random = np.random.default_rng(1)
    parameters = [random.uniform(0.5, 2, 4).astype(np.float32) for _ in range(4)]
    return ops.batch_normalization(x, *parameters, epsilon=1e-3)


IMAGES = ("batch", 3, 8, 8)


@pytest.mark.parametrize("bias", [True, False])
def test_a_convolution_absorbs_the_batch_normalization_after_it(bias):
    graph = graph_of(lambda x: normalized(convolved(x, bias, pads=[1, 1, 1, 1], strides=[2, 2])), IMAGES)
    check(graph, "Conv", ops=["Conv"], strides=[2, 2])


def test_a_convolution_absorbs_numbers_per_channel():
    numbers = np.arange(1, 5, dtype=np.float32).reshape(4, 1, 1)
    check(graph_of(lambda x: ops.add(numbers, convolved(x) * numbers), IMAGES), "Conv", ops=["Conv"])
    check(graph_of(lambda x: convolved(x) * numbers[:, 0], (*IMAGES[:2], 6, 6)), "Conv", "Mul", ops=["Conv"])


def test_a_convolution_that_others_read_keeps_its_numbers():
    graph = tx.Graph(opsets={"ai.onnx": 18})
    inner = convolved(graph.input("x", "float32", IMAGES))
    graph.output("inner", inner)
    graph.output("y", normalized(inner))
    check(graph, "Conv", "BatchNormalization", ops=["Conv"])


def test_statistics_that_are_inputs_stay():
    graph = graph_of(lambda x, *p: ops.batch_normalization(convolved(x), *p), IMAGES, (4,), (4,), (4,), (4,))
    check(graph, "Conv", "BatchNormalization", ops=["Conv"])


def test_ops_that_the_checker_lacks_are_only_fused_by_name():
    def by_square(x, scale):
        return scale * (x / ops.sqrt(ops.reduce_mean(ops.pow_(x, 2.0), [-1]) + 1e-6))

    graph = graph_of(by_square, SEQUENCES, (8,), opset=17)
    check(graph, "SimplifiedLayerNormalization", ops=["SimplifiedLayerNormalization"], epsilon=1e-6)
    assert "SimplifiedLayerNormalization" not in {node.op_type for node in tx.fuse(graph).nodes}


def test_a_part_that_others_read_is_an_output_of_the_op():
    graph = tx.Graph(opsets={"ai.onnx": 17, "com.microsoft": 1})
    x, skip = (graph.input(name, "float32", SEQUENCES) for name in ("x", "skip"))
    total = x + skip
    scale, bias = (np.arange(8, dtype=np.float32) + n for n in (1, 2))
    graph.output("y", ops.layer_normalization(total, scale, bias)[0])
    graph.output("total", total)
    fused = check(graph, "SkipLayerNormalization")
    assert [None if value is None else value.name for value in fused.nodes[0].outputs] == ["y", None, None, "total"]


def test_subgraphs_that_fit_no_call_stay():
    """Gemm only multiplies matrices."""
    check(graph_of(lambda a, b, c: ops.matmul(a, b) + c, SEQUENCES, (8, 8), (8,)), "MatMul", "Add")


def test_heads_are_joined_and_split():
    def form(q, k, v):
        parts = (ops.transpose(ops.reshape(x, [0, -1, 2, 4]), perm=[0, 2, 1, 3]) for x in (q, k, v))
        return ops.reshape(ops.transpose(attended(*parts), perm=[0, 2, 1, 3]), [0, -1, 8])

    graph = graph_of(form, SEQUENCES, SEQUENCES, SEQUENCES, opset=17)
    graph.opsets = {**graph.opsets, "com.microsoft": 1}
    check(graph, "MultiHeadAttention", num_heads=2, scale=0.5)


def by_heads(q, k, v, past_key, past_value, *more):
    """Attention of joined heads, with a past that is extended; also returns the extended past."""
    q, k, v = (ops.transpose(ops.reshape(x, [0, -1, 2, 4]), perm=[0, 2, 1, 3]) for x in (q, k, v))
    keys, values = (ops.concat(*parts, axis=2) for parts in ((past_key, k, *more), (past_value, v, *more)))
    return ops.transpose(attended(q, keys, values), perm=[0, 2, 1, 3]), keys, values


@pytest.mark.parametrize("presents", [True, False])
@pytest.mark.parametrize("rows", [True, False])
def test_heads_with_a_past(rows, presents):
    graph = tx.Graph(opsets={"ai.onnx": 17, "com.microsoft": 1})
    flat = [graph.input(name, "float32", SEQUENCES) for name in "qkv"]
    past = [graph.input(f"past_{name}", "float32", ("batch", 2, "past", 4)) for name in "kv"]
    y, keys, values = by_heads(*flat, *past)
    graph.output("y", ops.reshape(y, [-1, 8] if rows else [0, -1, 8]))
    if presents:
        graph.output("keys", keys)
        graph.output("values", values)
    fused = check(graph, "MultiHeadAttention", *["Reshape"] * rows, num_heads=2, scale=0.5)
    assert [value is not None for value in fused.nodes[0].outputs] == [True] * 3
    assert [value.name for value in fused.nodes[0].inputs[6:]] == ["past_k", "past_v"]


def test_heads_with_more_than_a_past():
    pasts = [("batch", 2, "past", 4)] * 3
    graph = graph_of(lambda *x: ops.reshape(by_heads(*x)[0], [0, -1, 8]), *[SEQUENCES] * 3, *pasts, opset=17)
    graph.opsets = {**graph.opsets, "com.microsoft": 1}
    assert all(len(node.inputs) < 7 for node in tx.fuse(graph).nodes)


def masked(mask):
    """Attention with a mask computed from a graph input by a function."""

    def form(q, k, v, *given):
        scores = ops.matmul(q, ops.transpose(k, perm=[0, 1, 3, 2])) * 0.5
        return ops.matmul(ops.softmax(scores + mask(*given)), v)

    return form


def lengths_masked(factor):
    return masked(lambda keep: (1.0 - ops.cast(ops.unsqueeze(keep, [1, 2]), to=1)) * factor)


def attentions(form, given=None, length="length"):
    graph = tx.Graph(opsets={"ai.onnx": 23})
    inputs = [graph.input(name, "float32", ("batch", 2, length, 4)) for name in "qkv"]
    if given is not None:
        inputs.append(graph.input("keep", given, ("batch", length)))
    graph.output("y", form(*inputs))
    fused = tx.fuse(graph)
    tx.verify(graph, fused).raise_if_failed()
    return sum(node.op_type == "Attention" for node in fused.nodes)


def test_a_mask_of_integers_hides_no_row():
    """An integer times 10,000 is never minus infinity; a large number times the largest float may be."""
    assert attentions(lengths_masked(-1e4), "int64") == 1
    assert attentions(lengths_masked(-1e4), "int4") == 1
    assert attentions(lengths_masked(-3.4e38), "bool") == 1
    assert attentions(lengths_masked(-3.4e38), "int64") == 0
    assert attentions(lengths_masked(-1e4), "float32") == 0


@pytest.mark.parametrize("hidden", [-1e4, -np.inf])
@pytest.mark.parametrize("axes", [(), (0,), (0, 1)])
def test_a_mask_that_a_file_holds(hidden, axes):
    causal = np.expand_dims(np.triu(np.full((5, 5), hidden, np.float32), 1), axes)
    assert attentions(masked(lambda: causal), length=5) == 1


def test_a_constant_mask_that_hides_a_row_stays():
    assert attentions(masked(lambda: np.full((5, 5), -np.inf, np.float32)), length=5) == 0


def test_a_mask_keeps_the_axes_that_it_was_given():
    def form(q, k, v, bias):
        parts = (ops.transpose(ops.reshape(x, [0, -1, 2, 4]), perm=[0, 2, 1, 3]) for x in (q, k, v))
        return ops.reshape(ops.transpose(attended(*parts, ops.unsqueeze(bias, [0])), perm=[0, 2, 1, 3]), [0, -1, 8])

    graph = graph_of(form, SEQUENCES, SEQUENCES, SEQUENCES, (2, "length", "length"), opset=17)
    graph.opsets = {**graph.opsets, "com.microsoft": 1}
    check(graph, "Unsqueeze", "MultiHeadAttention", ops=["com.microsoft::MultiHeadAttention"])


@pytest.mark.parametrize(("form", "found"), [("half of it first", "Gelu"), ("by tanh", "FastGelu")])
def test_ops_that_only_the_other_domain_has(form, found):
    def by_tanh(x):
        return 0.5 * x * (1.0 + ops.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))

    graph = graph_of(GELUS.get(form, by_tanh), ("n", 8), opset=17)
    graph.opsets = {**graph.opsets, "com.microsoft": 1}
    assert check(graph, found).nodes[0].domain == "com.microsoft"


def test_a_body_of_very_many_terms_is_not_looked_for():
    @op("Wide", domain="com.example")
    def wide(X):
        total = ops.exp(X)
        for count in range(1, 20):
            total = total + ops.cos(X * float(count))
        return total

    graph = graph_of(lambda x: wide.function(x), ("n",))
    graph.opsets = {**graph.opsets, "com.example": 1}
    assert len(tx.fuse(graph, [wide]).nodes) == len(graph.nodes)
