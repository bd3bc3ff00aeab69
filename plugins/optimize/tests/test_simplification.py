"""Simplification: rewrites that preserve results."""

import functools

import numpy as np
import onnx
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.extend import constant, op, subgraph
from tenonnx.op.build import building
from tenonnx_optimize.simplification import constant_where_fixed
from tenonnx_quantized.quantize import dequantize_linear


def simplified(function, *shapes, dtype="float32", opset=21):
    graph = tx.Graph(opsets={"ai.onnx": opset})
    inputs = [graph.input(f"x{k}", dtype, shape) for k, shape in enumerate(shapes)]
    graph.output("y", ops.relu(function(*inputs)) if dtype == "float32" else function(*inputs))
    result = tx.simplify(graph)
    tx.verify(graph, result).raise_if_failed()
    return [node.op_type for node in result.nodes if node.op_type != "Relu"]


ONE = np.float32(1)

NOTHING = {
    "identity": ops.identity,
    "times one": lambda x: x * 1.0,
    "one times": lambda x: ONE * x,
    "by one": lambda x: x / 1.0,
    "less nothing": lambda x: x - 0.0,
    "plus nothing": lambda x: x + 0.0,
    "nothing plus": lambda x: np.zeros((1, 1), np.float32) + x,
    "to the first": lambda x: ops.pow_(x, 1.0),
    "cast to its type": lambda x: ops.cast(x, to=1),
    "cast up and back": lambda x: ops.cast(ops.cast(x, to=11), to=1),
    "its own shape": lambda x: ops.reshape(x, ops.shape(x)),
    "dims copied": lambda x: ops.reshape(x, [0, 0]),
    "one open dim": lambda x: ops.reshape(x, [-1, 4]),
    "expanded to less": lambda x: ops.expand(x, [1, 4]),
    "transposed twice": lambda x: ops.transpose(ops.transpose(x)),
    "in order": lambda x: ops.transpose(x, perm=[0, 1]),
    "put and taken away": lambda x: ops.squeeze(ops.unsqueeze(x, [0]), [0]),
    "alone": lambda x: ops.concat(x, axis=0),
    "with nothing": lambda x: ops.concat(x, np.zeros((0, 4), np.float32), axis=0),
    "from first to last": lambda x: ops.slice_(x, [0], [2**40], [0]),
    "from before the first": lambda x: ops.slice_(x, [-4], [4], [1]),
    "to the length by name": lambda x: ops.slice_(x, [0], ops.shape(x)[0:1], [0]),
    "no pads": lambda x: ops.pad(x, [0, 0, 0, 0]),
    "one piece": lambda x: ops.split(x, [4], axis=1, _outputs=1),
    "the only piece": lambda x: ops.split(x, axis=0, num_outputs=1, _outputs=1),
    "once": lambda x: ops.tile(x, [1, 1]),
    "greatest of one": ops.maximum,
    "sum of one": ops.sum_,
    "flat already": ops.flatten,
    "put and taken away at negative axes": lambda x: ops.squeeze(ops.unsqueeze(x, [0]), [-3]),
    "one dim copied": lambda x: ops.reshape(x, [0, -1]),
    "the same twice": lambda x: ops.where(x > 0.0, x, x),
    "always this": lambda x: ops.where(np.array(True), x, x * 2.0),
    "no training": lambda x: ops.dropout(x, 0.5, _outputs=2)[0],
}


@pytest.mark.parametrize("function", NOTHING.values(), ids=NOTHING)
def test_nodes_without_effect_are_removed(function):
    assert simplified(function, ("n", 4)) == []


@pytest.mark.parametrize("name", ["no pads", "one piece", "the only piece"])
@pytest.mark.parametrize("opset", [13, 17])
def test_nodes_without_effect_are_removed_at_older_opsets(name, opset):
    graph = tx.Graph(opsets={"ai.onnx": 21})
    graph.output("y", ops.relu(NOTHING[name](graph.input("x0", "float32", ("n", 4)))))
    result = tx.simplify(tx.retarget(graph, opset_version=opset))
    assert [node.op_type for node in result.nodes] == ["Relu"]


SOMETHING = {
    "two pieces": lambda x: ops.split(x, [3, 1], axis=1, _outputs=2)[0],
    "padded by less": lambda x: ops.pad(x, [0, -1, 0, 0]),
    "times one of a higher rank": lambda x: x * np.ones((1, 1, 1), np.float32),
    "cast down and back": lambda x: ops.cast(ops.cast(x, to=10), to=1),
    "expanded to more": lambda x: ops.expand(x, [3, 1, 4]),
    "without the first": lambda x: ops.slice_(x, [1], [2**40], [0]),
    "backwards": lambda x: ops.slice_(x, [-1], [-(2**40)], [0], [-1]),
    "transposed once": ops.transpose,
}


@pytest.mark.parametrize("function", SOMETHING.values(), ids=SOMETHING)
def test_nodes_with_an_effect_stay(function):
    assert len(simplified(function, ("n", 4))) >= 1


def test_two_are_one():
    assert simplified(lambda x: ops.transpose(ops.transpose(x, perm=[1, 0, 2]), perm=[0, 2, 1]), (2, 3, 4)) == [
        "Transpose"
    ]
    assert simplified(lambda x: ops.reshape(ops.reshape(x, [2, 12]), [6, 4]), (2, 3, 4)) == ["Reshape"]


@pytest.mark.parametrize("opset", [11, 13, 21])
def test_a_reduction_leaves_out_its_axes(opset):
    for reduced, count in (
        (lambda x: ops.squeeze(ops.reduce_mean(x, [2, -1]), [3, 2]), 1),
        (lambda x: ops.squeeze(ops.reduce_max(x, [1, 2, 3]), [1, 2, 3]), 1),
        (lambda x: ops.squeeze(ops.reduce_sum(x, [1, 2]), [2]), 2),
        (
            lambda x: ops.concat(
                total := ops.reduce_sum(x, [2]), ops.unsqueeze(ops.squeeze(total, [2]) * 2.0, [2]), axis=2
            ),
            5,
        ),
    ):
        graph = tx.Graph(opsets={"ai.onnx": 21})
        with graph.building():
            graph.output("y", reduced(graph.input("x", "float32", (2, 3, 4, 4))))
        graph = tx.retarget(graph, opset_version=opset)
        simple = tx.simplify(graph)
        assert len(simple.nodes) == count
        assert tx.verify(graph, simple).equal


def test_quantized_values_stay_quantized_values():
    graph = tx.Graph(opsets={"ai.onnx": 21})
    with graph.building():
        quantized = ops.transpose(constant(np.ones((2, 3), np.int8)), perm=[1, 0])
        weight = dequantize_linear(quantized, constant(np.ones(3, np.float32)), axis=0)
        graph.output("y", ops.matmul(graph.input("x", "float32", (4, 3)), weight))
    simple = tx.simplify(graph)
    assert [node.op_type for node in simple.nodes] == ["DequantizeLinear", "MatMul"]
    assert tx.verify(graph, simple).equal


def test_a_concatenation_absorbs_one_without_other_consumers():
    graph = tx.Graph(opsets={"ai.onnx": 13})
    with graph.building():
        x, y = graph.input("x", "float32", (2, 3)), graph.input("y", "float32", (2, "n"))
        inner = ops.concat(x, y, axis=1)
        graph.output("flat", ops.concat(ops.relu(x), inner, y, axis=-1))
        graph.output("apart", ops.concat(ops.concat(x, x, axis=0), ops.concat(x, x, axis=0), axis=1))
    simple = tx.simplify(graph)
    assert [len(node.inputs) for node in simple.nodes if node.op_type == "Concat"] == [4, 2, 2]
    assert tx.verify(graph, simple).equal
    graph.outputs.append(inner)
    assert [len(node.inputs) for node in tx.simplify(graph).nodes if node.op_type == "Concat"] == [2, 3, 2, 2]


def test_casts_through_a_wider_type_are_merged():
    def by(*types, start):
        graph = tx.Graph(opsets={"ai.onnx": 21})
        value = graph.input("x", start, ("n",))
        for kind in types:
            value = ops.cast(value, to=kind)
        graph.output("y", value)
        simple = tx.simplify(graph)
        tx.verify(graph, simple).raise_if_failed()
        return [node.op_type for node in simple.nodes]

    assert by("int64", "float32", start="int32") == ["Cast"]
    assert by("float32", "int64", start="bool") == ["Cast"]
    assert by("float32", "uint8", start="uint8") == ["Identity"]
    assert by("int32", "int64", start="int64") == ["Cast", "Cast"]
    assert by("float32", "int32", start="int32") == ["Cast", "Cast"]
    assert by("float32", "int8", start="uint8") == ["Cast", "Cast"]
    assert by("float64", "string", start="float32") == ["Cast", "Cast"]
    assert by("uint8", "int32", start="int4") == ["Cast", "Cast"]
    assert by("int8", "int32", start="int4") == ["Cast"]


def test_nodes_that_may_broadcast_stay():
    graph = tx.Graph(opsets={"ai.onnx": 21})
    x, other = graph.input("x", "float32", ("n", 3)), graph.input("other", "float32", ("m", 3))
    graph.output("y", ops.relu(ops.where(np.array(True), x, other)))
    graph.output("z", ops.relu(ops.mul(x, np.ones((4, 1), np.float32))))
    feeds = {"x": np.ones((1, 3), np.float32), "other": np.zeros((4, 3), np.float32)}
    result = tx.simplify(graph).run(feeds)
    assert result["y"].shape == result["z"].shape == (4, 3)


def parsed(text):
    return tx.load(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}'))


@pytest.mark.parametrize(
    "text",
    [
        "a = Relu(x) y = Identity(a)",
        "a = Relu(x) b = Identity(a) y = Dropout(b)",
        "a = Relu(x) b = Identity(a) y = Mul(b, one)",
    ],
)
def test_no_copy_is_added_for_an_output(text):
    simple = tx.simplify(parsed(f"g (float[n] x) => (float[n] y) <float one = {{1}}> {{ {text} }}"))
    assert [(node.op_type, node.outputs[0].name) for node in simple.nodes] == [("Relu", "y")]
    onnx.checker.check_model(simple.to_proto(), full_check=True)


def test_each_output_keeps_its_name_where_several_are_one_value():
    graph = parsed("""g (float[n] x) => (float[n] y, float[n] z, float[n] a) {
        a = Relu(x) y = Identity(a) b = Neg(a) z = Identity(a) c = Exp(y) }""")
    simple = tx.simplify(graph)
    assert [v.name for v in simple.outputs] == ["y", "z", "a"]
    tx.verify(graph, simple).raise_if_failed()


def test_a_default_is_not_a_constant():
    graph = parsed("g (float[n] x, float w) => (float[n] y) <float w = {1}> { y = Mul(x, w) }")
    feeds = {"x": np.ones(2, np.float32), "w": np.float32(3)}
    for simple in (tx.simplify(graph), tx.fold(graph), tx.fuse(graph)):
        np.testing.assert_array_equal(simple.run(feeds)["y"], [3, 3])
        np.testing.assert_array_equal(simple.run({"x": feeds["x"]})["y"], [1, 1])


def test_nodes_that_no_output_of_a_branch_needs_are_removed():
    graph = parsed("""g (float[n, m] x, bool k) => (float[n, m] y) <float one = {1}> { u = Neg(x) y = If(k) <
        then_branch = t() => (float[n, m] r) { dead = Exp(u) a = Mul(x, one) r = Neg(a) },
        else_branch = e() => (float[n, m] q) { a = Transpose(x) b = Transpose(a) q = Abs(b) }> }""")
    simple = tx.simplify(graph)
    assert sorted(node.op_type for node in simple.walk()) == ["Abs", "If", "Neg"]
    for chosen in (True, False):
        feeds = {"x": np.ones((2, 3), np.float32), "k": np.array(chosen)}
        np.testing.assert_array_equal(simple.run(feeds)["y"], graph.run(feeds)["y"])


def test_equal_numbers_under_two_names_are_one():
    graph = parsed("""g (float[n, 2] x) => (float[n, 2] y) <float[2] a = {1, 2}, float[2] b = {1, 2}> {
        c = Mul(x, a) d = Mul(x, b) y = Add(c, d) }""")
    assert [node.op_type for node in tx.simplify(graph).nodes] == ["Mul", "Add"]


def test_a_product_of_matrices_with_a_bias_is_gemm():
    graph = parsed("""g (float[n, 3] x, float[3, 2] w) => (float[n, 2] y) <float[2] b = {1, 2}> {
        m = MatMul(x, w) y = Add(b, m) }""")
    simple = tx.simplify(graph)
    assert [node.op_type for node in simple.nodes] == ["Gemm"]
    tx.verify(graph, simple).raise_if_failed()


def test_shape_arithmetic_is_removed_with_its_consumers():
    def by_parts(x):
        n, m = ops.shape(x)[0], ops.shape(x)[1]
        return ops.reshape(x, ops.concat(ops.reshape(n, [1]), ops.reshape(m, [1]), axis=0))

    assert simplified(by_parts, ("n", "m")) == []


def test_integers_plus_zero():
    assert simplified(lambda x: x + 0, ("n",), dtype="int64") == ["Identity"]  # the output needs its own name


def branching(rows):
    """Twice an input with three rows, one more than any other."""
    graph = tx.Graph(opsets={"ai.onnx": 21})
    x = graph.input("x", "float32", (rows, "n"))
    with building(graph):
        is_three = ops.equal(ops.gather(ops.shape(x), np.int64(0)), np.int64(3))
        graph.output(
            "y", ops.if_(is_three, then_branch=subgraph(lambda: x * 2.0), else_branch=subgraph(lambda: x + 1.0))
        )
    simple = tx.simplify(graph)
    tx.verify(graph, simple).raise_if_failed()
    return [node.op_type for node in simple.nodes]


def test_a_branch_that_is_always_taken_replaces_the_if():
    assert branching(3) == ["Mul"]
    assert branching(4) == ["Add"]
    assert branching("m")[-1] == "If"


def test_zeros_before_a_softmax():
    zeros = np.zeros((1, 4), np.float32)
    assert simplified(lambda x: ops.softmax(x + zeros), ("n", 4)) == ["Softmax"]
    assert simplified(lambda x: ops.softmax(x + zeros), ("n", 1)) == ["Add", "Softmax"]


def test_values_that_fixed_shapes_would_make_constant():
    graph = tx.Graph(opsets={"ai.onnx": 21})
    x, y = graph.input("x", "float32", ("n", 4)), graph.input("y", "float32", ("n", 4))
    count = ops.cast(ops.gather(ops.shape(x), np.int64(0)), to=1)
    graph.output("z", (x + y) / count)
    assert constant_where_fixed(graph) == ["Cast", "Gather", "Shape"]
    assert constant_where_fixed(tx.fix_shapes(graph, {"x": (3, 4), "y": (3, 4)})) == []


# ----- packing --------------------------------------------------------------------------------------------------------


def _weight(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def _heads(count, wanted=(2, 5, 4, 2), bias=True):
    """``count`` products with one shared operand, each with a bias and reshaped."""

    def body(x):
        products = [ops.matmul(x, _weight(6, 8) * (k + 1)) for k in range(count)]
        added = [y + _weight(8) for y in products] if bias else products
        parts = [ops.reshape(y, wanted) for y in added]
        return functools.reduce(ops.add, parts)

    return body


@pytest.mark.parametrize("wanted", [(2, 5, 4, 2), (0, 0, 4, 2), (-1, 8), (0, 5, -1, 2)])
def test_products_with_biases_between_reshapes_become_gemm_where_some_share_a_reshape(wanted):
    assert simplified(_heads(2, wanted), (2, 5, 6)).count("Gemm") == 2
    alone = ["MatMul", "Add", "Reshape"] if len(wanted) > 2 else ["Reshape", "Gemm"]
    assert simplified(_heads(1, wanted), (2, 5, 6)) == alone


def test_three_products_of_one_operand_become_one():
    assert simplified(_heads(3, bias=False), ("n", 5, 6)) == ["MatMul", "Split", *["Reshape"] * 3, "Add", "Add"]
    assert simplified(_heads(2, bias=False), ("n", 5, 6)).count("MatMul") == 2


def test_weights_that_are_large_or_may_be_fed_are_not_joined(monkeypatch):
    graph = tx.Graph(opsets={"ai.onnx": 21})
    x = graph.input("x", "float32", (2, 6))
    fed = graph.input("w", "float32", (6, 8))
    graph.output("y", ops.matmul(x, fed) + ops.matmul(x, _weight(6, 8)) + ops.matmul(x, 2 * _weight(6, 8)))
    assert [node.op_type for node in tx.simplify(graph).nodes].count("MatMul") == 3
    monkeypatch.setattr("tenonnx_standard.simplification.MOST_BYTES", 100)
    assert simplified(_heads(3, bias=False), ("n", 5, 6)).count("MatMul") == 3


def test_calls_of_other_attributes_are_not_joined_however_long_these_are():
    @op("Scaled", domain="com.example")
    def scaled(x, w, *, by):
        return x * w * constant(np.array(by, np.float32))

    scaled.rule("rewrite.together", lambda calls: [calls[0][0]] * len(calls))
    graph = tx.Graph(opsets={"ai.onnx": 21, "com.example": 1})
    x = graph.input("x", "float32", (100,))
    graph.output("y", scaled(x, _weight(100), by=[1.0] * 100) + scaled(x, _weight(100), by=[2.0] * 100))
    assert [node.op_type for node in tx.simplify(graph).nodes] == ["Scaled", "Scaled", "Add"]


def test_parts_are_reshaped_once():
    def body(x):
        whole = ops.reshape(ops.gemm(x, _weight(6, 12), _weight(12)), (2, 5, 12))
        first, second = ops.split(whole, [8, 4], axis=-1)
        return ops.reshape(first, (10, 8)) @ _weight(8, 3) + ops.reshape(second, (10, 4)) @ _weight(4, 3)

    assert simplified(body, (10, 6)).count("Reshape") == 0


def test_all_positions_in_order_are_a_reshape():
    assert simplified(lambda x: ops.gather(x, np.arange(4).reshape(2, 2), axis=1), (3, 4)) == ["Reshape"]
    assert simplified(lambda x: ops.gather(x, np.arange(4), axis=-1), (3, 4)) == []
    assert simplified(lambda x: ops.gather(x, np.arange(3), axis=1), (3, 4)) == ["Gather"]


def test_a_larger_result_stays_computed_and_rounds_are_observed():
    graph = tx.Graph(opsets={"ai.onnx": 21})
    table = ops.constant_of_shape(graph.variable("shape", np.array([64, 64], np.int64)))
    graph.output("y", graph.input("x", "float32", (3, 64)) @ table * 1.0)
    counts = []
    kinds = [
        [node.op_type for node in result.nodes]
        for result in (
            tx.simplify(graph),
            tx.simplify(graph, largest=4 * 64 * 64),
            tx.simplify(graph, largest=4 * 64 * 64 - 1, observe=lambda each: counts.append(len(each.nodes))),
        )
    ]
    assert kinds == [["MatMul"], ["MatMul"], ["ConstantOfShape", "MatMul"]]
    assert len(graph.nodes) == 3
    assert counts == [2, 2]
