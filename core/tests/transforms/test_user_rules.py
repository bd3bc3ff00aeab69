"""A user's rules for one graph, and local functions."""

import numpy as np
import onnx
import pytest
import tiny
from onnx import TensorProto, helper

import tenonnx as tx
from tenonnx.errors import InvalidCall, TypeMismatch
from tenonnx.op.evaluate import evaluate_graph

X = np.array([1.0, 2.0], np.float32)
OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("tiny", 5), helper.make_opsetid("local", 1)]


def model_of(nodes, functions=()):
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    graph = helper.make_graph(list(nodes), "g", [x], [y])
    return helper.make_model(graph, opset_imports=OPSETS, functions=list(functions), ir_version=10)


def node(op, inputs, outputs, *, domain="tiny", name="", **attributes):
    return helper.make_node(op, inputs, outputs, domain=domain, name=name, **attributes)


CHAIN = [node("Double", ["x"], ["a"], name="first"), node("Double", ["a"], ["y"], name="second")]


def load(model, **keywords):
    return tx.load(model, registry=tiny.registry(), **keywords)


@pytest.mark.parametrize(("key", "expected"), [("Double", 1), ("tiny::Double", 1), ("second", 2)])
def test_rules_go_by_op_type_or_node_name(key, expected):
    graph = load(model_of(CHAIN), rules={key: lambda node, x: tiny.affine(x, scale=1.0)})
    np.testing.assert_array_equal(evaluate_graph(graph, [X])[0], expected * X)
    assert [v.name for v in graph.outputs] == ["y"]


def test_a_rule_may_go_on():
    graph = load(model_of(CHAIN), rules={"Double": lambda node, x: None})
    assert [n.name for n in graph.nodes] == ["first", "second"]


def test_rules_define_unknown_ops():
    model = model_of([node("Mystery", ["x"], ["y"], factor=3.0)])
    graph = load(model, rules={"Mystery": lambda node, x: tiny.multiply(x, node.attributes["factor"])})
    np.testing.assert_array_equal(evaluate_graph(graph, [X])[0], 3 * X)


@pytest.mark.parametrize("values", [1, 3])
def test_a_rule_has_to_replace_every_output(values):
    model = model_of([node("Pair", ["x"], ["a", "y"], name="two")])
    with pytest.raises(InvalidCall, match=r'the rule "Pair" for node "two" .* did not return 2 values') as caught:
        load(model, rules={"Pair": lambda node, x: (tiny.double(x),) * values})
    assert caught.value.given == ("1 value" if values == 1 else f"{values} values")


def test_a_rule_that_no_node_asks_for_is_named():
    with pytest.raises(InvalidCall, match="the key of a rule") as caught:
        load(model_of(CHAIN), rules={"Duoble": lambda node, x: x})
    assert caught.value.given == "'Duoble'"
    assert "Double" in caught.value.available


def test_a_rule_has_to_return_values():
    with pytest.raises(InvalidCall, match="returned something other than values") as caught:
        load(model_of(CHAIN), rules={"first": lambda node, x: np.ones(2)})
    assert caught.value.given == "ndarray"


def test_a_rule_has_to_keep_the_types():
    with pytest.raises(TypeMismatch, match=r'the rule "tiny::Double" for node "first".*output "a"') as caught:
        load(model_of(CHAIN), rules={"tiny::Double": lambda node, x: tiny.shape(x)})
    assert (caught.value.given, caught.value.available) == ("int64[1]", "float32[2]")


@pytest.mark.parametrize("rules", [{"Double": 3}, [("Double", max)], "Double"])
def test_rules_are_functions_by_name(rules):
    with pytest.raises(InvalidCall, match=r"rules (are neither a mapping from|do not map) names"):
        load(model_of(CHAIN), rules=rules)


@pytest.mark.parametrize("rule", [lambda node: None, lambda node, x, y: None, lambda: None])
def test_a_rule_has_to_accept_the_node_and_its_inputs(rule):
    with pytest.raises(
        InvalidCall, match=r'the rule "first" for node "first" .* does not take the node and its 1 input'
    ):
        load(model_of(CHAIN), rules={"first": rule})


def test_an_error_of_a_rule_names_the_rule():
    with pytest.raises(ZeroDivisionError) as caught:
        load(model_of(CHAIN), rules={"second": lambda node, x: 1 / 0})
    (note,) = caught.value.__notes__
    assert note.startswith('raised by the rule "second" for node "second"')


def local_function(*nodes, attributes=(), name="Local"):
    return helper.make_function("local", name, ["a"], ["b"], list(nodes), OPSETS, attributes=list(attributes))


def test_local_functions_are_ops_of_their_graph():
    scaled = node("Affine", ["a"], ["b"])
    scaled.attribute.append(onnx.AttributeProto(name="scale", ref_attr_name="by", type=onnx.AttributeProto.FLOAT))
    function = local_function(scaled, attributes=["by"])
    graph = load(model_of([node("Local", ["x"], ["y"], domain="local", by=5.0)], [function]))
    np.testing.assert_array_equal(evaluate_graph(graph, [X])[0], 5 * X)
    without = load(model_of([node("Local", ["x"], ["y"], domain="local")], [function]))
    np.testing.assert_array_equal(evaluate_graph(without, [X])[0], 2 * X)


def test_local_functions_win_over_packages_and_may_call_each_other():
    inner = local_function(node("Exp", ["a"], ["b"]), name="Inner")
    outer = helper.make_function("tiny", "Double", ["a"], ["b"], [node("Inner", ["a"], ["b"], domain="local")], OPSETS)
    graph = load(model_of([node("Double", ["x"], ["y"])], [outer, inner]))
    np.testing.assert_allclose(evaluate_graph(graph, [X])[0], np.exp(X), rtol=1e-6)


def test_unchanged_functions_are_kept_and_others_inlined():
    function = local_function(node("Affine", ["a"], ["b"], shift=1.0))
    graph = load(model_of([node("Local", ["x"], ["y"], domain="local", name="call")], [function]))
    kept = tx.retarget(graph, {"ai.onnx": 18})
    assert [n.op_type for n in kept.nodes] == ["Local"]
    assert len(kept.functions) == 1
    inlined = tx.retarget(graph, {"tiny": 3})
    assert [n.op_type for n in inlined.nodes] == ["Mul", "Add"]
    assert not inlined.functions
    np.testing.assert_array_equal(evaluate_graph(inlined, [X])[0], 2 * X + 1)
