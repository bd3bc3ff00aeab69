"""Edits of every assignable property, checked on numpy, onnxruntime, a file and a copy; other edits are refused."""

import copy
import io
import pickle
from contextlib import nullcontext

import numpy as np
import onnx
import pytest
from models import example

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.extend import subgraph

X = np.array([[-1, 2, -3], [4, -5, 6]], np.float32)


def made():
    graph = tx.Graph(opsets={"ai.onnx": 17})
    x, z = graph.input("x", "float32", (2, 3)), graph.input("z", "float32", (2, 3))
    leaky = ops.transpose(ops.leaky_relu(x, alpha=0.1), perm=[0, 1])
    summed = ops.add(leaky, graph.variable("w", np.ones(3, np.float32)))
    total = ops.reduce_mean(summed, axes=[1], keepdims=1)
    graph.output("y", ops.reshape(total, graph.variable("s", np.array([2, 1]))))
    graph.nodes[0].name = "leaky"
    ops.relu(z)
    return graph


def read():
    """The same graph from a file, in which every node has its own message."""
    return tx.load(made().to_proto())


def node(graph, op_type):
    return next(node for node in graph.walk() if node.op_type == op_type)


def consumers(graph, feeds):
    """Results of each consumer of a graph."""
    stream = io.BytesIO()
    tx.export(graph, stream)
    onnx.checker.check_model(onnx.load_from_string(stream.getvalue()), full_check=True)
    graphs = {
        "itself": graph,
        "the file": tx.load(stream.getvalue()),
        "a copy": graph.copy(),
        "deepcopy": copy.deepcopy(graph),
        "pickle": pickle.loads(pickle.dumps(graph)),
        "simplified": tx.simplify(graph),
        "at 13": tx.retarget(graph, opset_version=13),
    }
    given = {name: array for name, array in feeds.items() if name in {v.name for v in graph.inputs}}
    return {
        f"{name} on {backend}": next(iter(each.run(given, backend=backend).values()))
        for name, each in graphs.items()
        for backend in ("numpy", "onnxruntime")
    }


def set_attribute(graph):
    node(graph, "LeakyRelu").attributes["alpha"] = 0.5


def update_attributes(graph):
    node(graph, "LeakyRelu").attributes.update(alpha=0.5)


def merge_attributes(graph):
    attributes = node(graph, "LeakyRelu").attributes
    attributes |= {"alpha": 0.5}


def replace_attributes(graph):
    node(graph, "LeakyRelu").attributes = {"alpha": 0.5}


def inside_editing(graph):
    with graph.editing():
        set_attribute(graph)


LEAKY = np.where(X < 0, 0.5 * X, X)
TENTH = np.where(X < 0, 0.1 * X, X)


@pytest.fixture(params=[made, read], ids=["built", "read"])
def graph(request):
    return request.param()


FEEDS = {"x": X, "z": X}


def all_give(graph, expected):
    for name, result in consumers(graph, FEEDS).items():
        np.testing.assert_allclose(result, expected, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    "edit", [set_attribute, update_attributes, merge_attributes, replace_attributes, inside_editing]
)
def test_an_attribute(graph, edit):
    edit(graph)
    assert node(graph, "LeakyRelu").attributes["alpha"] == 0.5
    all_give(graph, (LEAKY + 1).mean(1, keepdims=True))


def test_an_attribute_that_is_removed_has_its_default(graph):
    del node(graph, "LeakyRelu").attributes["alpha"]
    all_give(graph, (np.where(X < 0, 0.01 * X, X) + 1).mean(1, keepdims=True))
    attributes = node(graph, "LeakyRelu").attributes
    attributes["alpha"] = 0.5
    assert attributes.pop("alpha") == 0.5
    assert attributes == {}


def test_an_attribute_changes_types_too():
    graph = read()  # at an opset where axes are an attribute
    with graph.editing():
        node(graph, "ReduceMean").attributes["axes"] = [0]
        graph["s"].data = np.array([1, 3])
    assert str(graph["y"].type) == "float32[1, 3]"
    all_give(graph, (TENTH + 1).mean(0, keepdims=True))


def test_inputs_of_a_node(graph):
    node(graph, "LeakyRelu").inputs = ["z"]
    graph.remove("x")
    all_give(graph, (TENTH + 1).mean(1, keepdims=True))
    node(graph, "Add").inputs = (graph["z"], graph["w"])
    all_give(graph, (X + 1).mean(1, keepdims=True))


def test_contents_of_a_variable(graph):
    graph["w"].data = np.float32([2, 2, 2])
    all_give(graph, (TENTH + 2).mean(1, keepdims=True))
    graph.assign({"w": np.float32([3, 3, 3])})
    all_give(graph, (TENTH + 3).mean(1, keepdims=True))
    graph["w"].data = np.full((2, 3), 4, np.float32)
    all_give(graph, (TENTH + 4).mean(1, keepdims=True))


def test_contents_that_determine_a_type(graph):
    graph.infer()
    graph.assign({"s": np.array([1, 2])})
    assert str(graph["y"].type) == "float32[1, 2]"
    all_give(graph, (TENTH + 1).mean(1).reshape(1, 2))


def test_the_op_of_a_node(graph):
    with graph.editing():
        node(graph, "LeakyRelu").attributes = {}
        node(graph, "LeakyRelu").op = ops.sigmoid
    all_give(graph, (1 / (1 + np.exp(-X)) + 1).mean(1, keepdims=True))


def test_the_op_of_a_node_by_name(graph):
    with graph.editing():
        del node(graph, "LeakyRelu").attributes["alpha"]
        node(graph, "LeakyRelu").op_type = "Sigmoid"
    assert node(graph, "Sigmoid").name == "leaky"
    all_give(graph, (1 / (1 + np.exp(-X)) + 1).mean(1, keepdims=True))


def test_the_op_of_a_node_in_another_domain(graph):
    gelu = tx.default_registry().lookup("com.microsoft", "Gelu", 1)
    with graph.editing():
        leaky = node(graph, "LeakyRelu")
        leaky.attributes, leaky.op, leaky.version = {}, gelu, 1
        graph.opsets["com.microsoft"] = 1
    graph.run(FEEDS, backend="numpy")
    result = graph.run(FEEDS, backend="onnxruntime")["y"]
    np.testing.assert_allclose(result, graph.run(FEEDS, backend="numpy")["y"], rtol=1e-5)
    assert {node.domain for node in graph.to_proto().graph.node} == {"", "com.microsoft"}


def test_the_name_of_a_node(graph):
    node(graph, "Add").name = "sum"
    graph["x"].name = "leaky_1"  # a node and a value may share a name
    node(graph, "ReduceMean").name = "leaky_1"
    names = [each.name for each in graph.to_proto().graph.node]
    assert {"sum", "leaky", "leaky_1"} <= set(names)


def test_numbers_and_arrays_of_numpy_as_attributes(graph):
    node(graph, "LeakyRelu").attributes["alpha"] = np.float32(0.5)
    node(graph, "Transpose").attributes = {"perm": np.array([0, 1])}
    all_give(graph, (LEAKY + 1).mean(1, keepdims=True))


def test_the_dtype_and_the_shape_of_an_input(graph):
    graph.remove(node(graph, "Relu"))
    graph["z"].dtype = "int64"
    graph["x"].shape = ("n", 3)
    graph["s"].data = np.array([-1, 1])
    assert (str(graph["z"].type), str(graph["y"].type)) == ("int64[2, 3]", "float32[n, 1]")
    all_give(graph, (TENTH + 1).mean(1, keepdims=True))
    assert [v.type.tensor_type.elem_type for v in graph.to_proto().graph.input] == [1, 7]


def test_the_type_of_an_input(graph):
    graph["x"].type = tx.TensorType(tx.DType.float32, ("n", 3))
    graph["s"].data = np.array([-1, 1])
    assert str(graph["y"].type) == "float32[n, 1]"
    all_give(graph, (TENTH + 1).mean(1, keepdims=True))
    feeds = {"x": np.concatenate([X, X]), "z": X}
    assert {result.shape for result in consumers(graph, feeds).values()} == {(4, 1)}


def test_the_default_of_an_input(graph):
    graph["x"].data = X
    assert [value.name for value in graph.inputs] == ["z"]
    all_give(graph, (TENTH + 1).mean(1, keepdims=True))


def test_names(graph):
    graph["x"].name = "image"
    graph["y"].name = "score"
    graph["w"].name = "bias"
    graph.name = "net"
    message = graph.to_proto()
    assert (message.graph.input[0].name, message.graph.output[0].name, message.graph.name) == ("image", "score", "net")
    for result in consumers(graph, {"image": X, "z": X}).values():
        np.testing.assert_allclose(result, (TENTH + 1).mean(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize(
    "remove",
    [
        lambda g: g.inputs.remove(g["z"]),
        lambda g: g.inputs.pop(),
        lambda g: g.remove("z"),
        lambda g: g.remove(g["z"]),
        lambda g: setattr(g, "inputs", ["x"]),
        lambda g: g.inputs.__delitem__(1),
    ],
)
def test_an_input_that_nothing_reads_is_removed(graph, remove):
    graph.remove(node(graph, "Relu"))
    remove(graph)
    assert [value.name for value in graph.inputs] == ["x"]
    assert [value.name for value in graph.to_proto().graph.input] == ["x"]
    all_give(graph, (TENTH + 1).mean(1, keepdims=True))


def test_inputs_in_another_order(graph):
    graph.inputs = graph.inputs[::-1]
    assert [value.name for value in graph.to_proto().graph.input] == ["z", "x"]
    graph.inputs.reverse()
    assert [value.name for value in graph.inputs] == ["x", "z"]


def test_outputs(graph):
    graph.outputs.append(node(graph, "Relu").outputs[0])
    result = graph.run(FEEDS, backend="onnxruntime")
    assert list(result) == [value.name for value in graph.outputs] == [v.name for v in graph.to_proto().graph.output]
    del graph.outputs[0]
    assert len(graph.run(FEEDS)) == len(graph.to_proto().graph.output) == 1


def test_opsets_and_metadata(graph):
    graph.metadata["who"] = "us"
    graph.opsets["ai.onnx"] = 13
    message = graph.to_proto()
    assert message.opset_import[0].version == 13
    assert message.metadata_props[0].value == "us"
    all_give(graph, (TENTH + 1).mean(1, keepdims=True))


def test_edits_in_a_subgraph():
    graph = tx.Graph(opsets={"ai.onnx": 17})
    x, flag = graph.input("x", "float32", (2, 3)), graph.input("flag", "bool", ())
    with graph.building():
        branches = [subgraph(lambda a=a: ops.leaky_relu(x, alpha=a), name=f"b{k}") for k, a in enumerate((0.1, 0.2))]
        graph.output("y", ops.if_(flag, then_branch=branches[0], else_branch=branches[1]))
    graph = tx.load(graph.to_proto())
    then = node(graph, "If").attributes["then_branch"]
    then.nodes[0].attributes["alpha"] = 0.5
    for result in consumers(graph, {"x": X, "flag": np.array(True)}).values():
        np.testing.assert_allclose(result, LEAKY, rtol=1e-5)
    with pytest.raises(tx.InvalidCall, match=r"comes from"):
        then.nodes[0].inputs[0].type = tx.TensorType(tx.DType.int64, (1,))


# ----- refused edits --------------------------------------------------------------------------------------------------


REFUSED = {
    "a cycle": (lambda g: setattr(node(g, "Add"), "inputs", [node(g, "Add").outputs[0], g["w"]]), "has a cycle"),
    "a longer cycle": (lambda g: setattr(node(g, "LeakyRelu"), "inputs", [g["y"]]), "has a cycle"),
    "a value of another graph": (
        lambda g: setattr(node(g, "Add"), "inputs", [made()["x"], g["w"]]),
        "the value is not in graph",
    ),
    "an array": (lambda g: setattr(node(g, "Add"), "inputs", [X, X]), "is not a value"),
    "no list": (lambda g: setattr(node(g, "Add"), "inputs", g["x"]), "are not a list of values"),
    "too many inputs": (
        lambda g: setattr(node(g, "Add"), "inputs", [g["x"]] * 3),
        "does not accept what it would read",
    ),
    "one place": (lambda g: node(g, "Add").inputs.__setitem__(0, g["z"]), "replaced all at once"),
    "an unknown attribute": (
        lambda g: node(g, "LeakyRelu").attributes.update(alhpa=1.0),
        "does not accept what it would read",
    ),
    "an attribute of another kind": (lambda g: node(g, "ReduceMean").attributes.update(axes="x"), "axes"),
    "an axis that is not there": (lambda g: node(g, "ReduceMean").attributes.update(axes=[7]), "does not accept"),
    "a list in place": (lambda g: node(g, "Transpose").attributes["perm"].append(0), "is replaced, not changed"),
    "attributes that are none": (lambda g: setattr(node(g, "Add"), "attributes", 3), "not a mapping"),
    "outputs of a node": (lambda g: setattr(node(g, "Add"), "outputs", [g["x"]]), "cannot assign Node"),
    "captures of a node": (lambda g: setattr(node(g, "Add"), "captures", [g["x"]]), "cannot assign Node"),
    "no op": (lambda g: setattr(node(g, "Add"), "op", 3), "neither an op nor the name of one"),
    "an input that is read": (lambda g: g.inputs.remove(g["x"]), "cannot be removed"),
    "an input by append": (lambda g: g.inputs.append(g["y"]), "are not some of its inputs, each once"),
    "an input twice": (lambda g: g.inputs.append(g["x"]), "are not some of its inputs, each once"),
    "a variable that is read": (lambda g: g.remove("w"), "cannot be removed"),
    "a computed type": (lambda g: setattr(g["y"], "type", g["x"].type), "comes from its node"),
    "the type of a variable": (lambda g: setattr(g["w"], "type", g["x"].type), "comes from its contents"),
    "a type that is read": (
        lambda g: setattr(g["x"], "type", tx.TensorType(tx.DType.int64, (2, 3))),
        "does not accept",
    ),
    "a type that is none": (lambda g: setattr(g["x"], "type", "float32"), "is not a type"),
    "computed contents": (lambda g: setattr(g["y"], "data", X), "cannot set the contents"),
    "contents of another type": (lambda g: setattr(g["w"], "data", np.ones(3)), "does not accept what it would read"),
    "contents that are none": (lambda g: setattr(g["w"], "data", [1.0]), "are not an array"),
    "a default of another type": (lambda g: setattr(g["x"], "data", np.ones(3)), "the default of input"),
    "a name that is there": (lambda g: setattr(g["x"], "name", "w"), "already used"),
    "no name": (lambda g: setattr(g["x"], "name", ""), "empty or no string"),
    "a name of another node": (
        lambda g: setattr(node(g, "Add"), "name", "leaky"),
        "not a string, or another node has it",
    ),
    "a name of a node that is none": (
        lambda g: setattr(node(g, "Add"), "name", 3),
        "not a string, or another node has it",
    ),
    "an op that is none": (lambda g: setattr(node(g, "Add"), "op_type", "Adt"), "no op .* in ai.onnx"),
    "an op that takes less": (
        lambda g: setattr(node(g, "Add"), "op_type", "Relu"),
        "does not accept what it would read",
    ),
    "a domain": (lambda g: setattr(node(g, "Add"), "domain", "com.microsoft"), "cannot assign"),
    "a label": (lambda g: setattr(node(g, "Add"), "label", "x"), "cannot assign"),
    "a title": (lambda g: setattr(node(g, "Add"), "title", "x"), "cannot assign"),
    "uses": (lambda g: setattr(node(g, "Add"), "uses", ()), "cannot assign"),
    "subgraphs": (lambda g: setattr(node(g, "Add"), "subgraphs", ()), "cannot assign"),
    "a computed dtype": (lambda g: setattr(g["y"], "dtype", "float16"), "comes from its node"),
    "a computed shape": (lambda g: setattr(g["y"], "shape", (1, 2)), "comes from its node"),
    "the dtype of a variable": (lambda g: setattr(g["w"], "dtype", "float16"), "comes from its contents"),
    "the shape of a variable": (lambda g: setattr(g["w"], "shape", (1, 3)), "comes from its contents"),
    "a dtype that is read": (lambda g: setattr(g["x"], "dtype", "int64"), "does not accept"),
    "a dtype that is none": (lambda g: setattr(g["x"], "dtype", "float33"), "float33"),
    "the rank": (lambda g: setattr(g["x"], "rank", 3), "cannot assign"),
    "the number of dims": (lambda g: setattr(g["x"], "ndim", 3), "cannot assign"),
    "whether it is constant": (lambda g: setattr(g["x"], "is_constant", True), "cannot assign"),
    "no part of a graph": (lambda g: setattr(g, "opset", 13), "opsets"),
    "a method of a graph": (lambda g: setattr(g, "input", []), "is not an attribute that can be assigned"),
    "the outermost graph": (lambda g: setattr(g, "root", g), "is not an attribute that can be assigned"),
    "outputs by name": (lambda g: setattr(g, "outputs", ["y"]), "hold something other than values"),
    "no outputs": (lambda g: setattr(g, "outputs", None), "cannot be"),
    "nodes that are none": (lambda g: setattr(g, "nodes", ["relu"]), "hold something other than nodes"),
    "no opsets": (lambda g: setattr(g, "opsets", 17), "cannot be"),
    "no metadata": (lambda g: setattr(g, "metadata", "us"), "cannot be"),
    "no functions": (lambda g: setattr(g, "functions", None), "cannot be"),
    "no training state": (lambda g: setattr(g, "training_state", {}), "TrainingState"),
    "a name of a graph that is none": (lambda g: setattr(g, "name", None), "cannot be"),
    "no IR version": (lambda g: setattr(g, "ir_version", "8"), "cannot be"),
    "no doc": (lambda g: setattr(g, "doc", 3), "cannot be"),
}


@pytest.mark.parametrize(("edit", "message"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("together", [False, True], ids=["alone", "inside editing"])
def test_other_edits_are_refused_and_change_nothing(graph, edit, message, together):
    graph.infer()
    before = graph.to_proto(), graph.summary()
    with pytest.raises(tx.TenonnxError, match=message), graph.editing() if together else nullcontext():
        edit(graph)
    assert (graph.to_proto(), graph.summary()) == before
    all_give(graph, (TENTH + 1).mean(1, keepdims=True))


def test_unknown_names_are_answered_with_suggestions(graph):
    with pytest.raises(tx.InvalidCall) as caught:
        graph.opset = 13
    assert caught.value.given == "13"
    assert caught.value.do == "did you mean opsets?"


HALVES = {
    "a node that is read": lambda g: g.nodes.remove(node(g, "LeakyRelu")),
    "an input that is read": lambda g: g.all_inputs.remove(g["x"]),
    "nodes in another order": lambda g: g.nodes.reverse(),
    "a node put in by hand": lambda g: g.nodes.insert(0, g.nodes.pop()),
    "an output of another graph": lambda g: g.outputs.append(made()["x"]),
    "a text as a node": lambda g: g.nodes.append("relu"),
    "a text as an output": lambda g: g.outputs.append("y"),
    "an array as a variable": lambda g: g.variables.append(X),
    "another producer": lambda g: setattr(g["y"], "producer", node(g, "Add")),
}


@pytest.mark.parametrize("edit", HALVES.values(), ids=HALVES)
@pytest.mark.parametrize("consumer", ["to_proto", "run", "save"])
def test_lists_that_were_changed_in_place_are_checked_when_the_graph_is_used(graph, edit, consumer, tmp_path):
    graph.nodes.remove(node(graph, "Relu"))
    edit(graph)
    arguments = {"run": [FEEDS], "save": [tmp_path / "model.safetensors"]}
    with pytest.raises(tx.InvalidCall):
        getattr(graph, consumer)(*arguments.get(consumer, []))


@pytest.mark.parametrize("consumer", ["to_proto", "run", "save"])
def test_an_output_that_was_appended_twice_is_returned_twice(graph, consumer, tmp_path):
    once = graph.run(FEEDS, "numpy")
    graph.outputs.append(graph["y"])
    if consumer == "run":
        result = graph.run(FEEDS, "numpy")
        assert result.keys() == once.keys()
        np.testing.assert_array_equal(result["y"], once["y"])
    elif consumer == "save":
        graph.save(tmp_path / "model.safetensors")
        assert [value.name for value in tx.load(tmp_path / "model.safetensors").outputs] == ["y", "y"]
    else:
        assert [value.name for value in tx.load(graph.to_proto()).outputs] == ["y", "y"]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda g: g.metadata.update(who=3), "metadata"),
        (lambda g: g.opsets.update({"ai.onnx": "13"}), "opset"),
        (lambda g: g.opsets.update({"ai.onnx": 0}), "opset"),
    ],
)
def test_properties_that_no_file_can_have_are_refused(graph, edit, message):
    edit(graph)
    with pytest.raises(tx.TenonnxError, match=message):
        graph.to_proto()


def test_the_body_of_a_function_of_a_model_is_not_edited():
    text = """<ir_version: 8, opset_import: ["": 17, "own": 1]>
        g (float[2, 3] x) => (float[2, 3] y) { y = own.f (x) }
        <domain: "own", opset_import: ["": 17]> f (a) => (b) { b = LeakyRelu <alpha = 0.1> (a) }"""
    graph = tx.load(onnx.parser.parse_model(text))
    body = next(iter(graph.functions.values())).body
    with pytest.raises(tx.InvalidCall, match="inline"):
        body.nodes[0].attributes["alpha"] = 0.5
    np.testing.assert_allclose(graph.run({"x": X}, "numpy")["y"], TENTH, rtol=1e-6)


# ----- contents as arrays ---------------------------------------------------------------------------------------------


def test_weights_are_read_as_arrays(tmp_path):
    graph = tx.load(example("digits_cnn/digits-cnn"))
    tx.export(graph, tmp_path / "model.onnx", external_data_threshold=0)
    graph.save(tmp_path / "model.safetensors")
    half = tx.lower_precision(graph, "float16").graph
    expected = onnx.numpy_helper.to_array(graph.to_proto().graph.initializer[0])
    name = graph.to_proto().graph.initializer[0].name
    for each in (graph, tx.load(tmp_path / "model.onnx"), tx.load(tmp_path / "model.safetensors"), half):
        value = each[name]
        for result in (np.asarray(value), np.asarray(value.data), np.array(value)):
            assert result.shape == expected.shape
            np.testing.assert_allclose(result, expected, rtol=1e-2 if each is half else 0)
        assert np.asarray(value, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(graph[name])[...] = 0
    for value in (graph.inputs[0], graph.outputs[0]):
        with pytest.raises(tx.UnknownType, match="its contents are not known"):
            np.asarray(value)
