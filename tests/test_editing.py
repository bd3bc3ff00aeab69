"""Editing real models: runs, files, pickles, and random edits."""

import copy
import pickle
import random

import numpy as np
import onnx
import pytest
from models import example

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx import InvalidCall, TypeMismatch

X = np.linspace(-1, 1, 9, dtype=np.float32).reshape(3, 3)


@pytest.fixture
def graph():
    """Two branches that join: y = relu(x w) + tanh(x w)"""
    made = tx.Graph("small", opsets={"ai.onnx": 13})
    x = made.input("x", "float32", (3, 3))
    product = ops.matmul(x, made.variable("w", np.eye(3, dtype=np.float32)))
    made.output("y", ops.add(ops.relu(product), ops.tanh(product)))
    return made


@pytest.fixture
def digits():
    return tx.load(example("digits/digits"))


def pixels():
    return {"pixels": np.load(example("digits/digits").parent / "samples.npz")["pixels"]}


def equal(one, other, feeds):
    for name, array in one.run(feeds).items():
        np.testing.assert_allclose(other.run(feeds)[name], array, rtol=1e-5, atol=1e-6)


def test_operators_on_loaded_values_infer_types(digits):
    value = digits.nodes[0].outputs[0]
    halved = value * 0.5
    assert str(halved.dtype) == "float32"
    digits.replace(value, halved)
    assert digits.run(pixels())


def test_a_cast_accepts_names_of_types(graph):
    half = ops.cast(graph["x"], to="float16")
    assert half.dtype is tx.DType.float16
    assert ops.cast(graph["x"], to=np.int64).dtype is tx.DType.int64
    with pytest.raises(InvalidCall, match="is not an integer"):
        ops.cast(graph["x"], to="float17")


def test_a_wrong_type_is_refused_and_a_right_pair_is_not(graph):
    before = graph.summary()
    with pytest.raises(InvalidCall, match="does not accept what it would read"):
        graph.insert_after("x", lambda x: ops.cast(x, to="float16"))
    assert graph.summary() == before
    with graph.editing():
        graph.insert_after("x", lambda x: ops.cast(x, to="float16"))
        graph.insert_after("w", lambda w: ops.cast(w, to="float16"))
    assert graph.outputs[0].dtype is tx.DType.float16
    assert graph.run({"x": X})["y"].dtype == np.float16


@pytest.mark.parametrize("again", [pickle.loads, copy.deepcopy], ids=["pickle", "deepcopy"])
@pytest.mark.parametrize("name", ["digits/digits", "decoder/decoder", "iris/iris"])
def test_graphs_are_pickled(name, again):
    graph = tx.load(example(name))
    back = again(pickle.dumps(graph) if again is pickle.loads else graph)
    assert back.to_proto() == graph.to_proto()
    assert back is not graph


def test_a_graph_with_ops_of_today_is_pickled_and_saved_at_its_opset(tmp_path):
    graph = tx.Graph("old", opsets={"ai.onnx": 11})
    graph.output("y", ops.reduce_sum(graph.input("x", "float32", (3, 3)), np.array([1], np.int64)))
    back = pickle.loads(pickle.dumps(graph))
    graph.save(tmp_path / "m.safetensors")
    for other in (back, tx.load(tmp_path / "m.safetensors")):
        assert other.opsets == {"ai.onnx": 11}
        equal(graph, other, {"x": X})


def test_a_message_is_what_export_writes(graph, tmp_path):
    tx.export(graph, tmp_path / "m.onnx", opset_version=17)
    assert graph.to_proto(opset_version=17) == onnx.load(tmp_path / "m.onnx")
    onnx.checker.check_model(graph.to_proto())


def test_a_graph_is_called_on_values_of_another(graph):
    outer = tx.Graph("outer", opsets={"ai.onnx": 17})
    image = outer.input("image", "float32", (3, 3))
    outer.output("z", graph(image / 2.0) * 3.0)
    np.testing.assert_allclose(outer.run({"image": X})["z"], 3 * graph.run({"x": X / 2})["y"], rtol=1e-6)
    np.testing.assert_allclose(graph(X), graph.run({"x": X})["y"])
    np.testing.assert_allclose(graph(x=X), graph.run({"x": X})["y"])
    assert outer.outputs[0].type == tx.TensorType(1, (3, 3))
    tx.verify(outer).raise_if_failed()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda g, v: g(v, v), InvalidCall, "are missing, unknown or given twice"),
        (lambda g, v: g(), InvalidCall, "are missing, unknown or given twice"),
        (lambda g, v: g(v, x=v), InvalidCall, "are missing, unknown or given twice"),
        (lambda g, v: g(ops.cast(v, to="int64")), TypeMismatch, 'input "x" is not'),
        (lambda g, v: g(g["x"]), InvalidCall, "insert a graph into itself"),
        (lambda g, v: g.run([X]), tx.InvalidFeed, "map names of inputs"),
        (lambda g, v: g.compile()([X]), tx.InvalidFeed, "map names of inputs"),
    ],
)
def test_invalid_calls(graph, call, error, message):
    value = tx.Graph("outer", opsets={"ai.onnx": 17}).input("image", "float32", (3, 3))
    with pytest.raises(error, match=message):
        call(graph, value)


def test_nested_graphs_are_drawn():
    condition = tx.Graph("g", opsets={"ai.onnx": 17})
    x = condition.input("x", "float32", (3, 3))
    flag = condition.input("flag", "bool", ())
    with condition.building():
        from tenonnx.extend import subgraph

        branch = [subgraph(lambda each=each: each(x), name=each.name) for each in (ops.exp, ops.relu)]
        condition.output("y", ops.if_(flag, then_branch=branch[0], else_branch=branch[1]))
    assert condition.to_dot().count("subgraph cluster") == 2
    assert condition.to_svg().count("<rect") == 1 + 8, (  # the background
        "two inputs and an output, the If, and a node and its output in each branch"
    )


# ----- random edits ---------------------------------------------------------------------------------------------------


def _insert(graph, draw):
    function = draw.choice([ops.relu, lambda v: v * 2.0, lambda v: ops.cast(v, to="int64"), lambda v: ops.exp(v) + v])
    graph.insert_after(draw.choice(_values(graph)), function)


def _values(graph):
    return [v for v in graph.values() if not (v.is_constant and v not in graph.variables)]


def _replace(graph, draw):
    graph.replace(draw.choice(_values(graph)), draw.choice(_values(graph)))


def _remove(graph, draw):
    graph.remove(draw.choice(graph.nodes))


def _rename(graph, draw):
    graph.rename(draw.choice(_values(graph)), draw.choice(["a", "b", "x", "y", "w", "image"]))


def _rewire(graph, draw):
    with graph.editing():
        node = draw.choice(graph.nodes)
        node.inputs = tuple(draw.choice(_values(graph)) for _ in node.inputs)


def _compose(graph, draw):
    other = tx.Graph("other", opsets={"ai.onnx": 17})
    other.output("z", ops.tanh(other.input("v", "float32", None)))
    graph.insert_after(draw.choice(_values(graph)), other)


EDITS = [_insert, _insert, _replace, _remove, _rename, _rewire, _compose]


def _state(graph):
    return graph.summary(nodes=10_000), [(v.name, v.type) for v in graph.values()]


@pytest.mark.parametrize("seed", range(40))
def test_random_edits_give_a_valid_graph_or_change_nothing(graph, seed):
    draw = random.Random(seed)
    done = 0
    for _ in range(12):
        graph.infer()
        before = _state(graph)
        try:
            draw.choice(EDITS)(graph, draw)
            done += 1
        except tx.TenonnxError:
            assert _state(graph) == before
            continue
        if draw.random() < 0.3:
            graph = tx.extract(graph, [v.name for v in graph.inputs], [v.name for v in graph.outputs])
    assert done
    feeds = {v.name: X for v in graph.inputs}
    result = graph.run(feeds, backend="numpy")
    written = tx.load(graph.to_proto().SerializeToString())
    onnx.checker.check_model(graph.to_proto(), full_check=True)
    for other in (written, graph.copy(), pickle.loads(pickle.dumps(graph)), tx.simplify(graph)):
        for backend in ("numpy", "onnxruntime"):
            for name, array in other.run(feeds, backend=backend).items():
                np.testing.assert_allclose(array, result[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("inputs", [["x", "w"], ["w", "x", "b"], ["h", "b"]])
def test_an_extracted_part_with_a_weight_as_input_declares_its_outputs(inputs):
    graph = tx.Graph(opsets={"ai.onnx": 17})
    product = ops.matmul(graph.input("x", "float32", ("n", 3)), graph.variable("w", np.ones((3, 2), np.float32)))
    graph.rename(product, "h")
    graph.output("y", ops.relu(product + graph.variable("b", np.zeros(2, np.float32))))
    model = graph.extract(inputs, ["y"]).to_proto()
    onnx.checker.check_model(model, full_check=True)
    dims = model.graph.output[0].type.tensor_type.shape.dim
    assert [dim.dim_param or dim.dim_value for dim in dims] == ["n", 2]


@pytest.mark.parametrize("default", [False, True], ids=["a weight", "an input with a default"])
def test_an_extracted_input_only_keeps_the_contents_of_its_default(default):
    """A weight that becomes an input has no contents, and facts derived from them are dropped."""
    graph = tx.Graph(opsets={"ai.onnx": 17})
    x = graph.input("x", "float32", (2, 3))
    dims = graph.variable("dims", np.int64([5, 0]))
    if default:
        graph.all_inputs.append(dims)
    graph.output("y", ops.reshape(x, ops.add(dims, np.int64([1, 1]))))
    part = graph.extract(["x", "dims"], ["y"])
    model = part.to_proto()
    assert [value.name for value in model.graph.input] == ["x", "dims"]
    assert ("dims" in [tensor.name for tensor in model.graph.initializer]) == default
    assert [value.name for value in part.inputs] == (["x"] if default else ["x", "dims"])
    feeds = {"x": np.zeros((2, 3), np.float32)}
    for form in (part, tx.simplify(part), tx.load(model)):
        assert form.run(feeds | {"dims": np.int64([2, 1])}, backend="numpy")["y"].shape == (3, 2)
        if default:
            assert form.run(feeds, backend="numpy")["y"].shape == (6, 1)
    assert "dims" in [tensor.name for tensor in graph.extract(None, ["y"]).to_proto().graph.initializer]
