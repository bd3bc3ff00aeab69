"""Canonicalization: rewriting graphs to the form of an op's body."""

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.extend import op
from tenonnx_optimize.canonicalize import canonicalize

DOMAIN = "com.vendor"
IMAGES = ("batch", 2, 7, 8)


@op("Square", domain=DOMAIN)
def square(X):
    return ops.pow_(ops.absolute(X), 2.0)


@op("Twice", domain=DOMAIN)
def twice(X, *, times=2.0):
    return ops.mul(ops.identity(X), times)


@op("PooledRelu", domain=DOMAIN, signature=ops.max_pool.signature)
def pooled_relu(X, **attributes):
    return ops.relu(ops.max_pool(X, **attributes))


@op("Nothing", domain=DOMAIN)
def nothing(X):
    return X


@nothing.pattern
def nothing_pattern(y):
    yield [y], {}


@op("Convolved", domain=DOMAIN, signature=ops.conv.signature)
def convolved(X, W, B=None, **attributes):
    return ops.conv(X, W, B, **attributes)


@op("Copied", domain=DOMAIN)
def copied(X):
    return ops.identity(X)


@copied.pattern
def copied_pattern(y):
    """Candidates for a copy."""
    yield [y.producer.uses[0]], {}, lambda found: ops.transpose(found, perm=[1, 0])


@convolved.pattern
def convolved_pattern(y):
    if y.producer.op is ops.conv:
        yield y.producer.inputs, dict(y.producer.attributes)


@twice.pattern
@square.pattern
def square_pattern(y):
    """Proposes any function of one value, square or not: verification decides."""
    yield [x for x in y.producer.uses if x.data is None][:1], {}


@pooled_relu.pattern
def pooled_relu_pattern(y):
    pool = y.producer.uses[0].producer
    if pool is not None and pool.op is ops.max_pool:
        yield pool.inputs, dict(pool.attributes)


def is_a(*kinds):
    return lambda node: node.op_type in kinds


def graph_of(function, *shapes, opset=18):
    graph = tx.Graph(opsets={"ai.onnx": opset})
    graph.output("y", function(*(graph.input(f"x{k}", "float32", shape) for k, shape in enumerate(shapes))))
    return graph


def words(graph):
    return [node.op_type for node in graph.nodes]


def check(graph, wanted, *expected, at):
    before = words(graph)
    adapted = canonicalize(graph, [wanted], at=is_a(*at))
    assert words(adapted) == list(expected)
    assert words(graph) == before, "the source is left as it was"
    tx.verify(graph, adapted).raise_if_failed()
    return adapted


def test_a_matching_subgraph_is_replaced_by_the_body():
    graph = graph_of(lambda x: ops.mul(2.0, x), ("n", 3))
    (copied, doubled) = check(graph, twice, "Identity", "Mul", at=["Mul"]).nodes
    assert copied.inputs[0].name == "x0"
    assert doubled.outputs[0].name == "y"


def test_other_subgraphs_stay():
    check(graph_of(lambda x: x * 3.0, ("n",)), twice, "Mul", at=["Mul"])
    check(graph_of(lambda x: x * x, ("n",)), square, "Mul", at=["Mul"])


def test_a_number_that_a_call_may_replace_is_not_counted_on():
    graph = tx.Graph(opsets={"ai.onnx": 18})
    x, factor = graph.input("x0", "float32", ("n",)), graph.variable("factor", np.float32(2))
    graph.all_inputs.append(factor)
    graph.output("y", x * factor)
    adapted = canonicalize(graph, [twice], at=is_a("Mul"))
    result = adapted.run({"x0": np.float32([1, 2]), "factor": np.float32(5)}, backend="numpy")
    assert result["y"].tolist() == [5, 10]


def test_a_body_without_words_replaces_nothing():
    check(graph_of(lambda x: ops.relu(x) * 1.0, ("n",)), nothing, "Relu", "Mul", at=["Mul"])


def test_a_guess_may_go_on():
    graph = graph_of(lambda x: ops.transpose(x, perm=[1, 0]), ("n", 3))
    check(graph, copied, "Identity", "Transpose", at=["Transpose"])


def test_shared_operands_of_calls_are_computed_once_and_first():
    graph = graph_of(lambda x, w: ops.conv_transpose(x, w), IMAGES, (2, 4, 3, 3))
    x, w = graph.inputs
    graph.output("z", ops.conv_transpose(-x, w))
    check(graph, convolved, "Slice", "Transpose", "Conv", "Neg", "Conv", at=["ConvTranspose"])


def test_a_graph_without_such_nodes_is_given_back():
    graph = graph_of(lambda x: x * 2.0, ("n",))
    assert canonicalize(graph, [twice], at=is_a("Add")) is graph


def test_the_body_is_written_at_the_versions_of_the_graph():
    for opset in (11, 18):
        graph = check(graph_of(lambda x: ops.mul(x, 2.0), ("n",), opset=opset), twice, "Identity", "Mul", at=["Mul"])
        assert {node.version for node in graph.nodes} == {opset}


def test_a_graph_may_name_no_version():
    graph = tx.Graph()
    graph.output("y", ops.max_pool(ops.relu(graph.input("x", "float32", (None, 3, None, 8))), kernel_shape=[2, 2]))
    adapted = canonicalize(graph, [pooled_relu], at=is_a("MaxPool"))
    assert words(adapted) == ["MaxPool", "Relu"]


WINDOWS = {
    "plain": {"kernel_shape": [2, 2], "strides": [2, 2]},
    "padded": {"kernel_shape": [3, 3], "pads": [1, 2, 0, 2]},
    "rounded up": {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1},
    "of the same size": {"kernel_shape": [2, 3], "auto_pad": "SAME_LOWER"},
    "dilated": {"kernel_shape": [2, 2], "dilations": [2, 3]},
}


@pytest.mark.parametrize("opset", [7, 12, 22])
@pytest.mark.parametrize("form", WINDOWS)
def test_the_greatest_of_what_is_rectified(form, opset):
    window = WINDOWS[form]
    if opset < 10:  # it has neither op
        window = {name: value for name, value in window.items() if name not in ("ceil_mode", "dilations")}
    graph = graph_of(lambda x: ops.max_pool(ops.relu(x), **window, _outputs=1), IMAGES, opset=22)
    check(tx.retarget(graph, opset_version=opset), pooled_relu, "MaxPool", "Relu", at=["MaxPool"])


@pytest.mark.parametrize(
    "window",
    [
        {"kernel_shape": [2, 2], "pads": [2, 2, 2, 2]},
        {"kernel_shape": [2, 2], "pads": [1, 1, 1, 1], "dilations": [4, 4]},
        {"kernel_shape": [2, 2], "auto_pad": "SAME_UPPER", "dilations": [4, 4]},
    ],
)
def test_windows_that_may_lie_entirely_in_the_padding(window):
    graph = graph_of(lambda x: ops.max_pool(ops.relu(x), **window, _outputs=1), IMAGES)
    assert words(canonicalize(graph, [pooled_relu], at=is_a("MaxPool"))) == ["Relu", "MaxPool"]


def test_places_of_the_greatest_are_those_of_what_is_rectified():
    graph = tx.Graph(opsets={"ai.onnx": 18})
    x = graph.input("x", "float32", IMAGES)
    for name, value in zip("yz", ops.max_pool(ops.relu(x), kernel_shape=[2, 2], _outputs=2), strict=True):
        graph.output(name, value)
    assert words(canonicalize(graph, [pooled_relu], at=is_a("MaxPool"))) == ["Relu", "MaxPool"]


def test_values_with_other_consumers_are_kept():
    graph = graph_of(lambda x: ops.max_pool(ops.relu(x), kernel_shape=[2, 2]), IMAGES)
    graph.output("rectified", graph.nodes[0].outputs[0])
    check(graph, pooled_relu, "Relu", "MaxPool", "Relu", at=["MaxPool"])


TRANSPOSED = {"plain": {}, "padded": {"pads": [1, 0, 0, 2]}, "dilated": {"dilations": [2, 1]}}


@pytest.mark.parametrize("form", TRANSPOSED)
@pytest.mark.parametrize("bias", [True, False])
def test_a_transposed_convolution_absorbs_numbers_per_channel(form, bias):
    """It equals a convolution with flipped kernels."""
    random = np.random.default_rng(0)
    kernel = random.normal(size=(2, 4, 3, 3)).astype(np.float32)
    given = [kernel, random.normal(size=4).astype(np.float32)] if bias else [kernel]
    factors = np.float32([1, 2, 3, 4]).reshape(4, 1, 1)
    graph = graph_of(lambda x: ops.conv_transpose(x, *given, **TRANSPOSED[form]) * factors, IMAGES)
    fused = tx.fuse(graph, ["Conv"])
    assert words(fused) == ["Conv"]
    tx.verify(graph, fused).raise_if_failed()


@pytest.mark.parametrize("form", [{"strides": [2, 2]}, {"pads": [3, 3, 3, 3]}, {"auto_pad": "SAME_UPPER"}])
def test_other_transposed_convolutions_stay(form):
    kernel = np.ones((2, 4, 3, 3), np.float32)
    graph = graph_of(lambda x: ops.conv_transpose(x, kernel, **form) * np.full((4, 1, 1), 2, np.float32), IMAGES)
    assert words(tx.fuse(graph, ["Conv"])) == ["ConvTranspose", "Mul"]
