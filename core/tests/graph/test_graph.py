"""Building and editing graphs by hand."""

import subprocess
import sys

import numpy as np
import pytest
import tiny

from tenonnx.errors import InvalidCall
from tenonnx.extend import DType, primitive
from tenonnx.graph.graph import Graph, Node, Value
from tenonnx.graph.types import OptionalType, SequenceType, TensorType, join_types, unify_types
from tenonnx.op.build import Builder, subgraph
from tenonnx.op.call import interpreting
from tenonnx.op.evaluate import evaluate_graph
from tenonnx.transforms.summary import summary

X = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)


@pytest.fixture
def graph():
    made = Graph("g", opsets={"tiny": 5})
    x = made.input("x", "float32", ("n", "2*n"))
    made.output("y", tiny.exp(tiny.double(x)))
    return made


def test_dims_may_be_expressions(graph):
    assert str(graph.inputs[0].type) == "float32[n, 2*n]"
    assert str(graph.outputs[0].type) == "float32[n, 2*n]"


def test_sizes_are_integers_of_any_kind():
    graph = Graph()
    shape = graph.input("x", "float32", (np.int64(3), "n", None)).shape
    assert shape[::2] == (3, None)
    assert type(shape[0]) is int
    assert graph.input("y", TensorType(DType.float32, (np.int32(2),))).shape == (2,)
    graph.infer({"x": (3, np.int16(5), 7)})
    assert [type(dim) for dim in graph["x"].shape] == [int, int, int]


@pytest.mark.parametrize("shape", [3, "n", (2.5,), ((1, 2),), (-1,), ("-2",)])
def test_a_shape_is_a_tuple_of_dims(shape):
    graph = Graph()
    with pytest.raises(InvalidCall, match="is not a tuple of sizes"):
        graph.input("x", "float32", shape)
    graph.input("x", "float32", (None,))
    with pytest.raises(InvalidCall, match='a size of graph input "x" is'):
        graph.infer({"x": shape})


def test_names_are_given_once(graph):
    with pytest.raises(InvalidCall, match="is already used"):
        graph.input("x", "float32", (1,))
    with pytest.raises(InvalidCall, match="is already used"):
        graph.variable("y", X)


def test_values_are_found_by_name_and_similar_names_are_suggested(graph):
    assert graph["x"] is graph.inputs[0]
    with pytest.raises(KeyError, match="did you mean Double"):
        graph["Doble"]


def test_an_input_can_be_an_output():
    graph = Graph(opsets={"tiny": 5})
    graph.output("y", graph.input("x", "float32", (2,)))
    assert [node.op for node in graph.nodes] == [tiny.identity]


def test_outputs_belong_to_the_graph(graph):
    with pytest.raises(InvalidCall, match="is not a value of graph"):
        Graph().output("y", graph.inputs[0])


def test_replace_rewires_readers_and_keeps_output_names(graph):
    doubled = graph.nodes[0].outputs[0]
    with interpreting(Builder(graph)):
        squared = tiny.multiply(graph.inputs[0], graph.inputs[0])
    node = graph.nodes.pop()
    graph.insert(node, before=graph.nodes[0])
    graph.replace(doubled, squared)
    graph.remove(graph.nodes[1])
    assert [n.op_type for n in graph.nodes] == ["Mul", "Exp"]
    np.testing.assert_allclose(evaluate_graph(graph, [X])[0], np.exp(X * X))
    graph.replace(graph.outputs[0], squared)
    assert [v.name for v in graph.outputs] == ["y"]


def test_remove_refuses_what_is_read(graph):
    with pytest.raises(InvalidCall, match="cannot be removed") as caught:
        graph.remove(graph.nodes[0])
    assert "Exp" in str(caught.value)


def test_rename(graph):
    graph.rename(graph.inputs[0], "z")
    assert graph["z"] is graph.inputs[0]
    with pytest.raises(InvalidCall, match="is already used"):
        graph.rename(graph.inputs[0], "y")
    assert graph.unique_name("x") == "x", "the old name is free"


def test_uses(graph):
    assert graph.uses()[graph.inputs[0]] == [graph.nodes[0]]


def test_summary_names_everything(graph):
    text = summary(graph)
    for part in ('graph "g"', "tiny 5", "x: float32[n, 2*n]", "tiny::Double 1", "y: float32[n, 2*n] = Exp(Double)"):
        assert part in text


def test_values_of_two_graphs_do_not_mix(graph):
    other = Graph()
    with pytest.raises(InvalidCall, match="is not in graph"):
        tiny.add(graph.inputs[0], other.input("x", "float32", ("n", "2*n")))


def test_subgraphs_capture_what_they_use(graph):
    with interpreting(Builder(graph)):
        inner = subgraph(lambda z: tiny.add(z, graph.inputs[0]), [("z", graph.inputs[0].type)])
    assert [v.name for v in inner.captures] == ["x"]
    assert inner.captures[0] is not graph.inputs[0]
    assert inner.parent is graph
    assert inner.outputs[0].name in graph.names()


def test_absent_inputs_stay_absent():
    value = Value("a", TensorType(1))
    node = Node(tiny.affine, 5, [value, None], {}, [Value("b"), None])
    assert node.uses == (value,)


@pytest.mark.parametrize(
    ("a", "b", "unified", "joined"),
    [
        (TensorType(1, (2, None)), TensorType(1, (None, 3)), TensorType(1, (2, 3)), TensorType(1, (None, None))),
        (TensorType(1), TensorType(1, (2,)), TensorType(1, (2,)), TensorType(1)),
        (SequenceType(None), SequenceType(TensorType(1)), SequenceType(TensorType(1)), SequenceType(None)),
        (None, OptionalType(None), OptionalType(None), None),
    ],
)
def test_two_facts_about_a_type(a, b, unified, joined):
    assert unify_types(a, b) == unified
    assert join_types(a, b) == joined


def test_facts_that_contradict_are_refused():
    with pytest.raises(ValueError, match="differ in dtype"):
        unify_types(TensorType(1), TensorType(7))
    with pytest.raises(ValueError, match="ranks 1 and 2"):
        unify_types(TensorType(1, (2,)), TensorType(1, (2, 2)))


def test_assigned_contents_replace_what_was_inferred():
    graph = Graph(opsets={"ai.onnx": 1})
    weight = graph.variable("w", np.float32([1, 2]))
    tiny.add(graph.input("x", "float32", (2,)), weight)
    graph.nodes[0].outputs[0]._replace_fields(data=weight.data)
    graph.assign({"w": np.float32([3, 4])})
    assert weight.data.array().tolist() == [3, 4]
    assert graph.nodes[0].outputs[0].data is None


@pytest.mark.parametrize(
    ("name", "array"), [("v", np.float32([1, 2])), ("w", np.float64([1, 2])), ("w", np.float32([1]))]
)
def test_assignment_keeps_types(name, array):
    graph = Graph()
    weight = graph.variable("w", np.float32([1, 2]))
    with pytest.raises(InvalidCall):
        graph.assign({name: array})
    assert weight.data.array().tolist() == [1, 2]


def test_importing_the_graph_module_provides_all_methods():
    program = """
from tenonnx.extend import DType, primitive
from tenonnx.graph.graph import Graph
import subprocess
import sys

import numpy as np
graph = Graph("g", opsets={"ai.onnx": 21})
graph.output("y", graph.input("x", "float32", (2,)) + 1)
assert graph.run({"x": np.ones(2, np.float32)}, backend="numpy")["y"].tolist() == [2, 2]
assert "Add" in graph.copy().infer().summary()
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_ops_without_inputs_are_called_into_a_graph():
    @primitive("Seven", domain="tiny", type=lambda *, times: TensorType(DType.float32, ()))
    def seven(*, times=1): ...

    seven.numpy(lambda times: np.float32(7 * times))
    graph = Graph(opsets={"tiny": 4})
    with graph.building("lucky"):
        graph.output("y", tiny.add(seven(times=2), np.float32(1)))
    assert [node.op_type for node in graph.nodes] == ["Seven", "Add"]
    assert graph.nodes[0].name.startswith("lucky/")
    assert graph.run({}, backend="numpy")["y"] == 15
    assert seven(times=2) == 14, "outside it computes"


def test_a_node_of_no_graph_is_changed_freely():
    value = Value("x", TensorType(DType.float32, (2,)))
    made = Value("y")
    node = Node(tiny.add, 1, [value, value], {"a": 1}, [made], name="n")
    assert node.graph is None
    node.version, node.inputs, node.attributes, node.name = 2, [value], {"b": [1]}, "m"
    assert (node.version, node.inputs, node.attributes, node.name) == (2, (value,), {"b": [1]}, "m")
    with pytest.raises(InvalidCall, match=r"cannot assign Node\.outputs"):
        node.outputs = ()
    graph = Graph()
    graph.append(node)
    assert (node.graph, made.graph, made.producer) == (graph, graph, node)
    made.producer = None
    assert node.graph is None


def test_properties_are_those_of_the_class():
    """Every assignable field is a property or a slot, so that Python tools find it."""
    for kind in (Value, Node):
        assert "__setattr__" not in vars(kind)
        with pytest.raises(AttributeError):
            kind.__new__(kind).unknown = 1
