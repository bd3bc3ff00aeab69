"""Gradients through branches and loops: finite differences in float64, and onnxruntime with plain ONNX."""

import io
from collections import Counter

import numpy as np
import onnx
import onnxruntime
import pytest

import tenonnx as tx
from tenonnx.extend import DType, NotDifferentiable, SequenceType, TensorType, constant, subgraph
from tenonnx.extend.transforms import dependents
from tenonnx.graph.symbolic import parse
from tenonnx.op.build import Builder
from tenonnx.op.call import interpreting
from tenonnx_standard.control_flow import if_, loop, scan, scan_in_batches
from tenonnx_standard.joining import concat
from tenonnx_standard.linear_algebra import matmul
from tenonnx_standard.logic import greater, less
from tenonnx_standard.random import random_normal_like
from tenonnx_standard.recurrent import gru, lstm, rnn
from tenonnx_standard.recurrent_attention import linear_attention
from tenonnx_standard.reduction import reduce_sum
from tenonnx_standard.sequence import sequence_construct, sequence_insert
from tenonnx_standard.shapes import identity
from tenonnx_standard.trigonometry import tanh

NUMBER, TRUTH = TensorType(DType.int64, ()), TensorType(DType.bool, ())
RANDOM = np.random.default_rng(0)


def floats(*shape):
    return TensorType(DType.float64, tuple(parse(dim) if isinstance(dim, str) else dim for dim in shape))


def draw(*shape):
    return RANDOM.uniform(-1, 1, shape)


def total(*values):
    """A scalar that depends on each element differently."""
    return sum(reduce_sum(v * v * v + v, keepdims=0) for v in values)


def traced(inputs, function):
    """The graph of ``function``, which returns a scalar "loss"."""
    graph = tx.Graph(opsets={"ai.onnx": 18})
    values = [graph.input(name, kind) for name, kind in inputs.items()]
    with interpreting(Builder(graph)):
        loss = function(*values)
    graph.output("loss", loss)
    return graph


def slopes(graph, feeds, wrt, of="loss"):
    """The gradients on numpy, compared with finite differences along a random direction for each."""
    derived = tx.grad(graph, of=of, wrt=wrt)
    names = [value.name for value in derived.outputs[-len(wrt) :]]
    result = derived.run(feeds, backend="numpy")
    for name, gradient in zip(wrt, names, strict=True):
        direction = RANDOM.uniform(-1, 1, np.shape(feeds[name]))
        assert result[gradient].shape == direction.shape
        high, low = (
            graph.run({**feeds, name: feeds[name] + step * direction}, backend="numpy")[of] for step in (1e-5, -1e-5)
        )
        np.testing.assert_allclose(np.sum(result[gradient] * direction), (high - low) / 2e-5, rtol=1e-5, atol=1e-8)
    return derived, result


def agrees(graph, feeds, wrt):
    """``slopes``, compared with onnxruntime on the gradient as plain ONNX of opset 18."""
    derived, result = slopes(graph, feeds, wrt)
    stream = io.BytesIO()
    tx.export(derived, stream, opset_version=18, domains=["ai.onnx"])
    onnx.checker.check_model(onnx.ModelProto.FromString(stream.getvalue()), full_check=True)
    session = onnxruntime.InferenceSession(stream.getvalue(), providers=["CPUExecutionProvider"])
    fed = {value.name: np.asarray(feeds[value.name]) for value in session.get_inputs()}
    for output, theirs in zip(session.get_outputs(), session.run(None, fed), strict=True):
        np.testing.assert_allclose(theirs, result[output.name], rtol=1e-9, atol=1e-12)


# ----- If -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("taken", [True, False])
def test_both_branches_of_if(taken):
    def loss(x, w, condition):
        first = subgraph(lambda: [x * w, x + 1.0], name="first")
        second = subgraph(lambda: [tanh(x), x * 2.0], name="second")
        return total(*if_(condition, then_branch=first, else_branch=second))

    graph = traced({"x": floats("n", 3), "w": floats(3), "condition": TRUTH}, loss)
    agrees(graph, {"x": draw(4, 3), "w": draw(3), "condition": np.asarray(taken)}, ["x", "w"])


def test_a_random_branch_is_refused():
    def loss(x, condition):
        first = subgraph(lambda: x * random_normal_like(x))
        return total(if_(condition, then_branch=first, else_branch=subgraph(lambda: identity(x))))

    graph = traced({"x": floats(3), "condition": TRUTH}, loss)
    with pytest.raises(NotDifferentiable, match="draws random numbers"):
        tx.grad(graph, of="loss", wrt="x")


# ----- Scan -----------------------------------------------------------------------------------------------------------

RECURRENT = {"x": floats("length", "n", 3), "w": floats(3, 4), "u": floats(4, 4), "state": floats("n", 4)}


def recurrent(x, w, u, state):
    """A handwritten recurrent layer with captured weights."""

    def body(state, x):
        new = tanh(x @ w + state @ u)
        return new, new * state

    formals = [("state", state.type), ("x", floats(*x.shape[1:]))]
    return total(*scan(state, x, body=subgraph(body, formals), num_scan_inputs=1))


def feeds_of(inputs, **sizes):
    return {name: draw(*(sizes.get(str(dim), dim) for dim in kind.shape)) for name, kind in inputs.items()}


@pytest.mark.parametrize("length", [1, 5])
def test_scan_of_any_length(length):
    agrees(traced(RECURRENT, recurrent), feeds_of(RECURRENT, length=length, n=2), list(RECURRENT))


def test_scan_of_no_length():
    """onnxruntime cannot run a Scan of length 0."""
    slopes(traced(RECURRENT, recurrent), feeds_of(RECURRENT, length=0, n=2), list(RECURRENT))


def test_scan_in_all_directions():
    inputs = {"x": floats("n", "length", 3), "z": floats("length", "n"), "state": floats("n", 3), "w": floats(3)}

    def loss(x, z, state, w):
        n = x.shape[0]

        def body(state, count, x, z):
            new = tanh(state * x + w) * (reduce_sum(z, keepdims=0) + 1.0)
            return new, count + 1, new * state, x * new

        formals = [("state", floats(n, 3)), ("count", NUMBER), ("x", floats(n, 3)), ("z", floats(n))]
        last, _, *stacked = scan(
            state,
            constant(np.int64(0)),
            x,
            z,
            body=subgraph(body, formals),
            num_scan_inputs=2,
            scan_input_axes=[1, -2],
            scan_input_directions=[1, 0],
            scan_output_axes=[-1, 1],
            scan_output_directions=[0, 1],
        )
        return total(last, *stacked)

    agrees(traced(inputs, loss), feeds_of(inputs, length=4, n=2), list(inputs))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("backward", [0, 1])
def test_products_with_captured_matrices(axis, backward):
    """The gradients of all iterations are one product after the loop, for any order of rows."""
    inputs = {"x": floats(*[("length", "n"), ("n", "length")][axis], 3), "state": floats("n", 3)}
    inputs |= {"w": floats(3, 3), "u": floats(3, 3), "b": floats(3)}

    def loss(x, state, w, u, b):
        def body(state, x):
            new = tanh(matmul(x, w) + matmul(state, u) + b)
            return new, new * x

        formals = [("state", state.type), ("x", state.type)]
        return total(
            *scan(
                state,
                x,
                body=subgraph(body, formals),
                num_scan_inputs=1,
                scan_input_axes=[axis],
                scan_input_directions=[backward],
                scan_output_axes=[axis],
                scan_output_directions=[1 - backward],
            )
        )

    agrees(traced(inputs, loss), feeds_of(inputs, length=4, n=2), list(inputs))


def test_the_way_back_of_a_layer_does_in_its_loop_what_needs_a_cotangent():
    inputs = {"x": floats(5, 2, 3), "w": floats(1, 16, 3), "r": floats(1, 16, 4)}
    derived = tx.grad(traced(inputs, lambda x, w, r: total(*lstm(x, w, r, hidden_size=4))), of="loss", wrt=["w", "r"])
    plain = tx.retarget(derived, 18, domains=["ai.onnx"])
    *_, back = [node.attributes["body"] for node in plain.nodes if node.op is scan]
    cotangents = back.all_inputs[: len(back.outputs)]
    reached = dependents(back.nodes, [v for v in back.all_inputs if v in cotangents])
    assert all(v in reached for node in back.nodes for v in node.outputs if v is not None)
    kinds = Counter(node.op_type for node in back.nodes)
    assert kinds["MatMul"] == 1
    assert kinds["Mul"] <= 3, "what cotangents are multiplied with is multiplied before the loop"
    assert "Split" not in kinds, "gates are stored whole"


@pytest.mark.parametrize("axis", [0, 1, -1], ids="axis {}".format)
def test_factors_that_are_gathered_along_any_axis(axis):
    inputs = {"state": floats(2, 3), "x": floats("length", 2, 3), "w": floats(3)}

    def loss(state, x, w):
        def body(state, x):
            halves = [tanh(state * x) * x * w, tanh(state + x) * x * state]
            joined = concat(*halves, axis=axis)
            return tanh(reduce_sum(joined, [axis], keepdims=1) + state) * x, joined * joined

        formals = [("state", state.type), ("x", floats(2, 3))]
        return total(*scan(state, x, body=subgraph(body, formals), num_scan_inputs=1))

    agrees(traced(inputs, loss), feeds_of(inputs, length=4), list(inputs))


def test_scan_in_batches_of_several_lengths():
    inputs = {"state": floats(2, 3), "x": floats(2, 4, 3)}

    def loss(state, x):
        body = subgraph(lambda s, x: (tanh(s + x), s * x), [("s", floats(3)), ("x", floats(3))])
        lengths = constant(np.int64([4, 2]))
        return total(*scan_in_batches(lengths, state, x, body=body, num_scan_inputs=1))

    agrees(traced(inputs, loss), feeds_of(inputs), list(inputs))


def test_second_order():
    derived = tx.grad(traced(RECURRENT, recurrent), of="loss", wrt=["u", "x"])
    derived.output("size", total(derived["u/grad"], derived["x/grad"]))
    slopes(derived, feeds_of(RECURRENT, length=3, n=2), ["w", "u", "x", "state"], of="size")


# ----- Loop -----------------------------------------------------------------------------------------------------------

ITERATED = {"x": floats("n", 3), "w": floats(3, 3)}


def iterated(x, w, count, limit=30.0):
    """A value squashed ``count`` times, while it is small."""

    def body(iteration, going_on, state):
        new = tanh(state @ w) * 1.5
        return less(reduce_sum(new * new, keepdims=0), limit), new, new * state

    graph = subgraph(body, [("iteration", NUMBER), ("going_on", TRUTH), ("state", x.type)])
    return total(*loop(count, constant(np.asarray(True)), x, body=graph, _outputs=2))


@pytest.mark.parametrize("count", [0, 1, 4])
def test_loop_of_a_computed_number_of_iterations(count):
    graph = traced({**ITERATED, "count": NUMBER}, iterated)
    agrees(graph, {**feeds_of(ITERATED, n=2), "count": np.asarray(count)}, list(ITERATED))


def test_loop_of_a_known_number_of_iterations():
    graph = traced(ITERATED, lambda x, w: iterated(x, w, constant(np.int64(3))))
    agrees(graph, feeds_of(ITERATED, n=2), list(ITERATED))


def test_loop_that_ends_by_its_condition():
    graph = traced({**ITERATED, "count": NUMBER}, lambda *values: iterated(*values, limit=1.0))
    feeds = {"x": np.full((2, 3), 0.1), "w": np.full((3, 3), 0.5), "count": np.asarray(50)}
    agrees(graph, feeds, list(ITERATED))


def test_loop_that_stores_nothing():
    def loss(x, count):
        formals = [("iteration", NUMBER), ("going_on", TRUTH), ("state", x.type)]
        body = subgraph(lambda iteration, going_on, state: (identity(going_on), state * 0.5), formals)
        return total(loop(count, None, x, body=body, _outputs=1))

    graph = traced({"x": floats("n"), "count": NUMBER}, loss)
    for count in (0, 3):
        agrees(graph, {"x": draw(2), "count": np.asarray(count)}, ["x"])


@pytest.mark.parametrize("kind", ["tensor", "sequence"])
def test_carried_values_that_grow_are_refused(kind):
    def loss(x, count):
        grows = kind == "tensor"
        first = x if grows else sequence_construct(x)
        formals = [("iteration", NUMBER), ("going_on", TRUTH), ("state", first.type), ("sum", x.type)]

        def body(iteration, going_on, state, sum):
            longer = concat(state, x * 2.0, axis=0) if grows else sequence_insert(state, sum)
            return identity(going_on), longer, sum * 2.0 + (reduce_sum(longer) if grows else 0.0)

        _, last = loop(count, None, first, x, body=subgraph(body, formals), _outputs=2)
        return total(last)

    graph = traced({"x": floats("n"), "count": NUMBER}, loss)
    if kind == "tensor":
        with pytest.raises(NotDifferentiable, match="not a tensor of fixed shape"):
            tx.grad(graph, of="loss", wrt="x")
    else:
        assert isinstance(graph.nodes[0].outputs[0].type, SequenceType)
        with pytest.raises(NotDifferentiable, match="is not a tensor of fixed shape"):
            tx.grad(graph, of="loss", wrt="x")


@pytest.mark.parametrize("opset", [11, 18])
def test_loops_of_a_file(opset):
    """A body that captures by name, with inputs without shapes, and a loop whose last state is unused."""
    source = """
        <ir_version: 8, opset_import: ["" : OPSET]>
        file (double[n, 3] x, double[3, 3] w, int64 count) => (double loss) {
            doubled = Add (w, w)
            going_on = Constant <value = bool {1}> ()
            , stacked = Loop (count, going_on, x) <body = body (int64 step, bool before, double[?, ?] state)
                => (bool after, double[?, ?] new, double[?, ?] each) {
                    after = Identity (before)
                    product = MatMul (state, doubled)
                    new = Tanh (product)
                    each = Mul (new, state)
                }>
            loss = ReduceMean <keepdims = 0> (stacked)
        }"""
    model = onnx.parser.parse_model(source.replace("OPSET", str(opset)))
    graph = tx.load(io.BytesIO(model.SerializeToString()))
    agrees(graph, {**feeds_of(ITERATED, n=2), "count": np.asarray(3)}, list(ITERATED))


# ----- nested control flow --------------------------------------------------------------------------------------------


def test_if_in_scan():
    inputs = {"x": floats("length", 3), "w": floats(3), "state": floats(3)}

    def loss(x, w, state):
        def body(state, x):
            first, second = subgraph(lambda: state * x + w), subgraph(lambda: tanh(state) * w)
            new = if_(greater(reduce_sum(x, keepdims=0), 0.0), then_branch=first, else_branch=second)
            return new, new * x

        formals = [("state", floats(3)), ("x", floats(3))]
        return total(*scan(state, x, body=subgraph(body, formals), num_scan_inputs=1))

    agrees(traced(inputs, loss), feeds_of(inputs, length=5), list(inputs))


def test_scan_in_loop():
    inputs = {"x": floats("length", 3), "w": floats(3), "state": floats(3)}

    def loss(x, w, state, count):
        def step(state, x):
            new = tanh(state * x + w)
            return new, new * state

        def body(iteration, going_on, state):
            formals = [("state", floats(3)), ("x", floats(3))]
            last, stacked = scan(state, x, body=subgraph(step, formals), num_scan_inputs=1)
            return identity(going_on), last + reduce_sum(stacked, [0], keepdims=0), last * state

        formals = [("iteration", NUMBER), ("going_on", TRUTH), ("state", floats(3))]
        return total(*loop(count, None, state, body=subgraph(body, formals), _outputs=2))

    graph = traced({**inputs, "count": NUMBER}, loss)
    agrees(graph, {**feeds_of(inputs, length=4), "count": np.asarray(3)}, list(inputs))


# ----- recurrent layers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("layer", "gates"), [(rnn, 1), (gru, 3), (lstm, 4)])
@pytest.mark.parametrize("with_lengths", [False, True])
@pytest.mark.parametrize("length", ["length", 6])
def test_layers_of_any_length(layer, gates, with_lengths, length):
    inputs = {
        "x": floats(length, 2, 3),
        "w": floats(2, gates * 4, 3),
        "r": floats(2, gates * 4, 4),
        "b": floats(2, gates * 8),
        "h": floats(2, 2, 4),
    }
    if layer is lstm:
        inputs |= {"c": floats(2, 2, 4), "p": floats(2, 12)}

    def loss(x, w, r, b, h, *more):
        lengths = constant(np.int32([6, 3])) if with_lengths else None
        result = layer(x, w, r, b, lengths, h, *more, hidden_size=4, direction="bidirectional", _outputs=gates // 4 + 2)
        return total(*result)

    graph = traced(inputs, loss)
    agrees(graph, feeds_of(inputs, length=6), list(inputs))
    assert len(tx.grad(graph, of="loss", wrt=["x", "w"]).nodes) < 260, "the length makes the graph no longer"


def test_second_order_of_layers():
    inputs = {"x": floats("length", 2, 3), "w": floats(1, 16, 3), "r": floats(1, 16, 4)}
    graph = traced(inputs, lambda *values: total(*lstm(*values, hidden_size=4, _outputs=3)))
    derived = tx.grad(graph, of="loss", wrt=["r", "x"])
    derived.output("size", total(derived["r/grad"], derived["x/grad"]))
    slopes(derived, feeds_of(inputs, length=6), list(inputs), of="size")


def test_second_order_of_linear_attention():
    inputs = {name: floats(1, "length", size) for name, size in zip("qkvdb", (4, 4, 4, 2, 2), strict=True)}

    def loss(q, k, v, d, b):
        return total(*linear_attention(q, k, v, None, d, b, q_num_heads=2, kv_num_heads=2))

    derived = tx.grad(traced(inputs, loss), of="loss", wrt=["q", "k", "d"])
    derived.output("size", total(*(derived[f"{name}/grad"] for name in "qkd")))
    slopes(derived, feeds_of(inputs, length=4), list(inputs), of="size")


def test_a_small_variable_is_not_folded_away():
    """The split of a bias is folded at build time, unless its gradient is requested."""
    graph = tx.Graph(opsets={"ai.onnx": 18})
    x = graph.input("x", "float64", (2, 1, 3))
    weights = [graph.variable(name, draw(1, *shape)) for name, shape in zip("wrb", [(4, 3), (4, 1), (8,)], strict=True)]
    y, *_ = lstm(x, *weights, hidden_size=1)
    graph.output("loss", total(y))
    result = tx.grad(graph, of="loss", wrt=["w", "r", "b"]).run({"x": draw(2, 1, 3)}, backend="numpy")
    assert all(np.any(result[f"{name}/grad"]) for name in "wrb")
    assert np.array_equal(result["b/grad"][:, :4], result["b/grad"][:, 4:])
