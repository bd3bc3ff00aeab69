"""In-place edits: order, cycles, types, and rollback after an error."""

import numpy as np
import pytest
import tiny

from tenonnx.errors import InvalidCall
from tenonnx.graph.graph import Graph, Node, Value
from tenonnx.op.evaluate import evaluate_graph

X = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)


@pytest.fixture
def graph():
    """The graph of y = exp(x + x)."""
    made = Graph("g", opsets={"tiny": 5})
    x = made.input("x", "float32", ("n", "2*n"))
    made.output("y", tiny.exp(tiny.double(x)))
    return made


def state(graph):
    """Everything that an edit may change, as text."""
    values = [(v.name, str(v.type)) for v in graph.values()]
    nodes = [(n.title, [v.name for v in n.uses], [v.name for v in n.outputs]) for n in graph.nodes]
    return values, nodes, [v.name for v in graph.all_inputs], [v.name for v in graph.outputs]


def computed(graph, x=X):
    return evaluate_graph(graph, [x])[0]


def test_an_inserted_node_precedes_its_consumers(graph):
    x = graph["x"]
    graph.replace(graph.nodes[0].outputs[0], tiny.multiply(x, x))
    graph.remove(next(n for n in graph.nodes if n.op_type == "Double"))
    assert [n.op_type for n in graph.nodes] == ["Mul", "Exp"]
    np.testing.assert_allclose(computed(graph), np.exp(X * X))


def test_a_value_is_replaced_by_what_comes_from_it(graph):
    doubled = graph.nodes[0].outputs[0]
    result = graph.insert_after(doubled, lambda value: tiny.double(tiny.double(value)))
    assert result.producer in graph.nodes
    np.testing.assert_allclose(computed(graph, X / 4), np.exp(2 * X))


def test_an_output_keeps_its_name(graph):
    graph.insert_after("y", tiny.double)
    assert [v.name for v in graph.outputs] == ["y"]
    np.testing.assert_allclose(computed(graph), 2 * np.exp(2 * X))
    graph.replace("y", "x")
    assert [v.name for v in graph.outputs] == ["y"]
    assert graph.outputs[0] is not graph["x"], "an input has a name of its own"
    np.testing.assert_array_equal(computed(graph), X)


def test_an_input_and_a_variable_can_be_followed():
    graph = Graph("g", opsets={"tiny": 5})
    x = graph.input("x", "float32", (2, 2))
    graph.output("y", tiny.add(x, graph.variable("w", X)))
    graph.insert_after("x", tiny.double)
    graph.insert_after("w", tiny.exp)
    np.testing.assert_allclose(computed(graph), 2 * X + np.exp(X))


def test_a_cycle_is_refused_naming_the_way_round(graph):
    before = state(graph)
    double, exp = graph.nodes
    with pytest.raises(InvalidCall, match="has a cycle") as caught, graph.editing():
        double.inputs = (exp.outputs[0],)
    assert "Double" in str(caught.value)
    assert "Exp" in str(caught.value)
    assert state(graph) == before


def test_a_handmade_node_is_sorted(graph):
    held = Value("held")
    node = Node(tiny.double, 5, [graph["x"]], {}, [held], name="mine")
    with graph.editing():
        graph.insert(node)
        graph.nodes[0].inputs = (held,)
    assert graph.nodes[0].name == "mine"
    assert str(held.type) == "float32[n, 2*n]"
    np.testing.assert_allclose(computed(graph), np.exp(4 * X))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda g: g.insert_after("x", lambda value: None), "did not return one value"),
        (lambda g: g.insert_after("nothing", tiny.double), "available"),
        (lambda g: g.insert_after("x", lambda value: 1 / 0), "division"),
        (lambda g: g.replace("x", Graph().input("z", "float32", (1,))), "is not in graph"),
        (lambda g: g.remove(g.nodes[0]), "cannot be removed"),
        (lambda g: g.remove(Node(tiny.double, 5, [], {})), "cannot remove a node"),
        (lambda g: g.insert_after("x", g["y"]), "not a function"),
        (lambda g: g.remove("y"), "cannot remove"),
        (lambda g: g.remove(None), "cannot remove"),
        (lambda g: g.rename("x", 3), "already used|no string"),
        (lambda g: g.input(3, "float32", ()), "already used|no string"),
        (lambda g: g.input("z", "float32", (-1,)), "is not a tuple of sizes"),
        (lambda g: g.input("z", "float32", "n"), "is not a tuple of sizes"),
        (lambda g: g.variable("z", [1.0]), "are not an array"),
        (lambda g: g.rename("x", "y"), "already used|no string"),
        (lambda g: g.rename("x", ""), "already used|no string"),
        (lambda g: g.insert(Node(tiny.double, 5, [g["x"]], {}, [Value("y")])), "is already used in graph"),
        (lambda g: g.insert(Node(tiny.double, 5, [g["x"]], {}, [g["y"]])), "output of another node"),
        (
            lambda g: g.insert(Node(tiny.double, 5, [Value("far")], {}, [Value("z")])),
            "reads a value that is not in graph",
        ),
        (
            lambda g: g.insert(Node(tiny.double, 5, [g["x"]], {}, [Value("z")]), before=Node(tiny.exp, 5, [], {})),
            "is not in graph",
        ),
    ],
)
def test_after_an_error_nothing_has_changed(graph, edit, message):
    graph.infer()
    before = state(graph)
    with pytest.raises((InvalidCall, ZeroDivisionError), match=message):
        edit(graph)
    values, nodes, inputs, outputs = state(graph)
    assert (nodes, inputs, outputs) == before[1:]
    assert set(before[0]) <= set(values)
    np.testing.assert_allclose(computed(graph), np.exp(2 * X))


def test_a_consumer_has_to_accept_its_new_input():
    graph = Graph("g", opsets={"tiny": 5})
    x = graph.input("x", "float32", (2, 2))
    graph.output("y", tiny.add(x, graph.variable("w", X)))
    other = graph.variable("other", np.zeros((3,), np.float32))
    before = state(graph)
    with pytest.raises(InvalidCall, match="does not accept what it would read"):
        graph.replace("w", other)
    assert state(graph) == before


def test_several_edits_count_together(graph):
    before = state(graph)

    def edit():
        with graph.editing():
            graph.insert_after("x", tiny.double)
            graph.rename("x", "y")

    with pytest.raises(InvalidCall, match=r"already used|no string"):
        edit()
    assert state(graph) == before


def test_a_name_is_free_once_its_node_is_gone(graph):
    double, exp = graph.nodes
    with graph.editing():
        graph.outputs.clear()
        graph.remove([exp, double])
    graph.output("y", tiny.exp(graph["x"]))
    np.testing.assert_allclose(computed(graph), np.exp(X))


def test_renamed_by_name(graph):
    graph.rename("x", "image")
    assert [v.name for v in graph.inputs] == ["image"]
    graph.rename("image", "x")
    with pytest.raises(InvalidCall, match="available"):
        graph.rename("image", "z")
