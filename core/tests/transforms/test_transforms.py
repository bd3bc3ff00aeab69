"""Decomposition, folding, pruning, extraction and copying, on a tiny family."""

import numpy as np
import pytest
import tiny

import tenonnx as tx
from tenonnx.errors import InvalidCall, InvalidModel, LimitExceeded, NotDifferentiable, NotRepresentable, UnsupportedOp
from tenonnx.extend.transforms import constant_share, fold
from tenonnx.graph.graph import Graph, Node, Value
from tenonnx.op.evaluate import evaluate_graph
from tenonnx.op.graph_inference import infer
from tenonnx.op.op import Opaque, op
from tenonnx.op.rules import find_rule
from tenonnx.registry.discovery import Plugin
from tenonnx.registry.hookspecs import hookimpl
from tenonnx.registry.registry import Registry
from tenonnx.transforms.decompose import decompose
from tenonnx.transforms.extract import extract
from tenonnx.transforms.prune import prune
from tenonnx.transforms.retarget import retarget, retarget_to
from tenonnx.transforms.rewrite import Rewriter, copy_graph
from tenonnx.transforms.target import target_for
from tenonnx_standard.grad import grad

X = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)


def build(function, *, opsets=None):
    graph = Graph(opsets=opsets or {"tiny": 5})
    graph.registry = tiny.registry()
    results = function(graph.input("x", "float32", ("n", 2)))
    for name, value in zip("yz", results if isinstance(results, tuple) else (results,), strict=False):
        graph.output(name, value)
    return graph


def run(graph, *feeds):
    return evaluate_graph(graph, feeds or [X])


def names(graph):
    return [node.op_type for node in graph.nodes]


def test_decompose_expands_all_other_calls():
    graph = build(lambda x: tiny.affine(tiny.double(x), shift=1.0))
    lowered = decompose(graph, keep=lambda call: call.op.primitive)
    assert names(lowered) == ["Add", "Mul", "Add"]
    np.testing.assert_array_equal(run(lowered)[0], run(graph)[0])
    assert names(graph) == ["Double", "Affine"], "the source stays as it was"


def test_decompose_keeps_output_names_and_derives_new_ones():
    lowered = decompose(build(lambda x: tiny.affine(x, shift=1.0)), keep=lambda call: call.op.primitive)
    assert [v.name for v in lowered.outputs] == ["y"]
    assert lowered.nodes[0].outputs[0].name == "Affine/Mul"


def test_rules_for_ops_of_other_packages_exist_before_they_are_looked_up(monkeypatch):
    @op("Late", domain="tiny")
    def late(x):
        return tiny.double(x)

    class Package:
        @hookimpl
        def register_ops(self, registry):
            registry.add_rule(late, "toy", lambda x: x)

    monkeypatch.setattr(Plugin, "load", lambda plugin: Package())
    graph = build(late)
    graph.registry = Registry([Plugin("tiny", "late", "tenonnx.ops", "late", "1.0")])
    assert names(decompose(graph, keep=lambda call: find_rule(call.op, "toy") is not None)) == ["Late"]


def test_equal_constants_are_shared():
    lowered = decompose(build(lambda x: tiny.affine(tiny.affine(x))), keep=lambda call: call.op.primitive)
    constants = {v for node in lowered.nodes for v in node.uses if v.is_constant}
    assert sorted(v.data.array().item() for v in constants) == [0.0, 2.0]


def test_a_primitive_that_is_not_kept_is_refused():
    with pytest.raises(UnsupportedOp, match="primitive"):
        decompose(build(tiny.exp), keep=lambda call: False)


def test_a_body_that_calls_itself_is_refused():
    graph = Graph(opsets={"tiny": 5})
    x = graph.input("x", "float32", (2,))
    y = Value("y", x.type, graph=graph)
    graph.append(Node(tiny.looping, 1, [x], {}, [y]))
    graph.outputs.append(y)
    with pytest.raises((InvalidCall, LimitExceeded)):
        decompose(graph, keep=lambda call: False)


def test_unknown_ops_are_refused_all_at_once():
    graph = build(tiny.exp)
    for k in range(2):
        value = Value(f"u{k}", graph=graph)
        graph.append(Node(Opaque("com.microsoft", "Gelu"), 1, [graph.inputs[0]], {}, [value], name=f"gelu_{k}"))
    with pytest.raises(UnsupportedOp, match="1 of its ops") as caught:
        decompose(graph, keep=lambda call: True)
    assert '2 nodes ("gelu_0", "gelu_1")' in str(caught.value)


def test_an_expansion_that_returns_its_input_keeps_the_output_name():
    graph = build(tiny.identity)
    copied = copy_graph(graph)
    assert [v.name for v in copied.outputs] == ["y"]


def test_fold_computes_what_is_static_and_leaves_draws():
    graph = Graph(opsets={"tiny": 5})
    w = graph.variable("w", X)
    x = graph.input("x", "float32", (2, 2))
    graph.output("y", tiny.add(x, tiny.exp(tiny.add(w, w))))
    graph.output("z", tiny.draw(w))
    folded = fold(graph)
    assert names(folded) == ["Add", "Draw"]
    np.testing.assert_allclose(run(folded, X)[0], X + np.exp(2 * X))


def test_prune_drops_dead_nodes_and_unused_variables():
    graph = Graph(opsets={"tiny": 5})
    w, x = graph.variable("w", X), graph.input("x", "float32", (2, 2))
    tiny.exp(w)
    graph.output("y", tiny.double(x))
    pruned = prune(graph)
    assert names(pruned) == ["Double"]
    assert pruned.variables == []
    assert [v.name for v in prune(graph, keep_variables=True).variables] == ["w"]


def test_extract_returns_the_part_between_two_values():
    graph = build(lambda x: tiny.exp(tiny.double(tiny.affine(x))))
    middle = graph.nodes[0].outputs[0].name
    part = extract(graph, [middle], ["y"])
    assert len(extract(graph, middle, "y").nodes) == len(part.nodes), "one name is no list of letters"
    assert names(part) == ["Double", "Exp"]
    np.testing.assert_allclose(run(part)[0], np.exp(2 * X))


def test_extract_names_missing_inputs():
    graph = Graph(opsets={"tiny": 5})
    a, b = graph.input("a", "float32", (2,)), graph.input("b", "float32", (2,))
    graph.output("y", tiny.add(a, b))
    with pytest.raises(InvalidCall, match="the part reads inputs of the model") as caught:
        extract(graph, ["a"], ["y"])
    assert "b" in str(caught.value)


# ----- retarget ---------------------------------------------------------------------------------------------------


def test_a_node_is_kept_if_its_meaning_is_unchanged():
    moved = retarget(build(lambda x: tiny.affine(x, scale=3.0), opsets={"tiny": 5}), {"tiny": 4})
    assert names(moved) == ["Affine"]
    assert moved.opsets == {"tiny": 4}


def test_an_element_type_that_the_target_lacks_is_refused_without_a_node_that_uses_it():
    graph = Graph(opsets={"ai.onnx": 18})
    graph.output("y", graph.input("x", "bfloat16", (2,)))
    with pytest.raises(NotRepresentable, match="cannot be expressed") as caught:
        retarget(graph, 11)
    assert 'graph input "x": bfloat16 does not exist at version 11' in str(caught.value)
    assert retarget(graph, 13).opsets["ai.onnx"] == 13


def test_a_node_is_lowered_to_the_older_meaning_where_that_can_say_it():
    graph = build(lambda x: tiny.affine(x, scale=3.0))
    moved = retarget_to(graph, target_for(graph, {"tiny": 3}))
    assert [node.op for node in moved.graph.nodes] == [tiny.shift_first]
    assert moved.changes[0].action == "lowered"
    np.testing.assert_array_equal(run(moved.graph)[0], 3 * X)


def test_a_node_is_expanded_where_the_older_meaning_cannot_say_it():
    graph = build(lambda x: tiny.affine(x, shift=1.0))
    moved = retarget_to(graph, target_for(graph, {"tiny": 3}))
    assert names(moved.graph) == ["Mul", "Add"]
    assert (moved.changes[0].action, moved.changes[0].into) == ("expanded", {"Mul": 1, "Add": 1})
    np.testing.assert_array_equal(run(moved.graph)[0], 2 * X + 1)


def test_upgrading_an_old_meaning_is_expansion_too():
    graph = Graph(opsets={"tiny": 3})
    graph.registry = tiny.registry()
    x = graph.input("x", "float32", (2, 2))
    y = Value("y", x.type, graph=graph)
    graph.append(Node(tiny.shift_first, 3, [x], {"shift": 1.0}, [y], name="old"))
    graph.outputs.append(y)
    moved = retarget(graph, {"tiny": 5})
    assert names(moved) == ["Affine", "Affine"]
    np.testing.assert_array_equal(run(moved)[0], 2 * (X + 1))


def test_inputs_become_attributes_again_on_old_opsets():
    graph = build(lambda x: tiny.sum_(x, [1]))
    moved = retarget(graph, {"tiny": 3})
    (node,) = moved.nodes
    assert node.attributes == {"axes": [1]}
    assert len(node.inputs) == 1
    np.testing.assert_array_equal(run(moved)[0], X.sum(1, keepdims=True))


def test_a_computed_input_cannot_become_an_attribute():
    graph = Graph(opsets={"tiny": 5})
    graph.registry = tiny.registry()
    x, axes = graph.input("x", "float32", (2, 2)), graph.input("axes", "int64", (1,))
    y = Value("y", x.type, graph=graph)
    graph.append(Node(tiny.sum_, 5, [x, axes], {}, [y], name="total"))
    graph.outputs.append(y)
    with pytest.raises(NotRepresentable, match="1 node cannot be expressed") as caught:
        retarget(graph, {"tiny": 3})
    assert 'node "total"' in str(caught.value)
    assert "here it is computed" in str(caught.value)


def test_every_refusal_is_named_at_once():
    graph = build(lambda x: tiny.newest_primitive(tiny.newest_primitive(x)))
    with pytest.raises(NotRepresentable, match="2 nodes cannot be expressed"):
        retarget(graph, {"tiny": 3})


def test_a_domain_that_is_not_in_the_target_is_expanded_or_refused():
    graph = build(tiny.double)
    with pytest.raises(NotRepresentable, match="domain tiny is not in the target"):
        retarget(graph, domains=["ai.onnx"])


# ----- gradients --------------------------------------------------------------------------------------------------


def scalar(function):
    graph = Graph(opsets={"tiny": 5})
    graph.registry = tiny.registry()
    x = graph.input("x", "float64", (2, 2))
    graph.output("loss", tiny.sum_(function(x), keep=0))
    return graph


def test_gradient_goes_through_bodies():
    graph = grad(scalar(lambda x: tiny.exp(tiny.double(x))), "loss", "x")
    assert [v.name for v in graph.outputs] == ["loss", "x/grad"]
    x = X.astype(np.float64)
    np.testing.assert_allclose(run(graph, x)[1], 2 * np.exp(2 * x))


def test_gradients_of_several_uses_add_up():
    graph = grad(scalar(lambda x: tiny.multiply(x, x)), "loss", "x")
    np.testing.assert_allclose(run(graph, X.astype(np.float64))[1], 2 * X)


def test_a_value_without_influence_has_the_gradient_zero():
    graph = scalar(tiny.exp)
    graph.input("unused", "float64", (3,))
    made = grad(graph, "loss", ["unused"])
    assert run(made, X.astype(np.float64), np.ones(3))[1].tolist() == [0, 0, 0]


def test_every_node_that_breaks_the_path_is_named():
    with pytest.raises(NotDifferentiable) as caught:
        grad(scalar(lambda x: tiny.add(tiny.round_(x), tiny.round_(tiny.double(x)))), "loss", "x")
    assert str(caught.value).count("tiny::Round@1") == 2


def test_a_gradient_is_that_of_a_scalar():
    graph = build(tiny.exp)
    with pytest.raises(InvalidCall, match="it is not a scalar"):
        grad(graph, "y", "x")


def test_seeds_make_vector_jacobian_products():
    graph = grad(build(tiny.exp), "y", "x", seeds={"y": "g"})
    y, gx = run(graph, X, 10 * np.ones_like(X))
    np.testing.assert_allclose(gx, 10 * np.exp(X))
    np.testing.assert_allclose(y, np.exp(X))


def test_unknown_names_are_refused():
    with pytest.raises(InvalidCall, match='no value "lost"'):
        grad(scalar(tiny.exp), "lost", "x")


def test_a_graph_built_by_hand_declares_its_domains(tmp_path):
    graph = Graph(opsets={"ai.onnx": 21})
    graph.registry = tiny.registry()
    graph.output("y", tiny.affine(graph.input("x", "float32", (2,)), shift=1.0))
    tx.export(graph, tmp_path / "graph.onnx")
    again = tx.load(tmp_path / "graph.onnx", registry=tiny.registry())
    assert again.opsets["tiny"] == tiny.affine.version
    assert again.nodes[0].op is tiny.affine


def test_a_graph_built_by_hand_is_of_the_newest_version_that_an_op_of_it_needs():
    @op("Older", domain="hand", since=1)
    def older(x):
        return tiny.exp(x)

    @op("Newer", domain="hand", since=3)
    def newer(x):
        return tiny.exp(x)

    graph = build(lambda x: newer(older(x)))
    assert target_for(graph).opsets["hand"] == 3
    assert names(retarget(graph)) == ["Older", "Newer"]


def test_a_typo_in_a_domain_is_reported():
    with pytest.raises(InvalidCall, match='no domain "tinny"'):
        retarget(build(tiny.double), {"tinny": 1})
    with pytest.raises(InvalidCall, match='no domain "onnx"'):
        retarget(build(tiny.double), domains=["onnx"])


def test_versions_of_domains_are_not_dropped():
    with pytest.raises(InvalidCall, match="domains are not a list of names") as caught:
        retarget(build(tiny.double), domains={"tiny": 3})
    assert caught.value.do == "give their versions as opset_version"


@pytest.mark.parametrize(
    ("error", "expected"),
    [(AttributeError, InvalidCall), (MemoryError, LimitExceeded), (AssertionError, AssertionError)],
)
def test_an_error_in_a_rule_is_not_blamed_on_the_graph(error, expected):
    @op("Broken", domain="tiny")
    def broken(x):
        return x

    graph = build(broken)

    @broken.type
    def broken_type(x):
        raise error("of the rule")

    for use in (lambda: infer(graph, strict=False), lambda: retarget(graph, {"tiny": 4})):
        with pytest.raises(expected, match="of the rule"):
            use()


def test_an_unforeseen_error_of_a_rule_is_the_cause_of_the_refusal():
    @op("Narrow", domain="tiny")
    def narrow(x):
        return x

    graph = build(narrow)
    narrow.type(lambda x: [][1])
    with pytest.raises(InvalidModel, match="cannot be computed") as caught:
        infer(graph)
    causes = [caught.value]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    assert isinstance(causes[-1], IndexError)


def test_a_value_is_accepted_instead_of_its_name():
    graph = build(lambda x: tiny.sum_(tiny.multiply(x, x), keep=0))
    by_name, by_value = grad(graph, "y", "x"), grad(graph, graph["y"], [graph["x"]])
    assert [v.name for v in by_value.outputs] == [v.name for v in by_name.outputs] == ["y", "x/grad"]


@pytest.mark.parametrize("opset", ["4", 4.0, True, {"tiny": "4"}])
def test_an_opset_is_an_integer(opset):
    with pytest.raises(InvalidCall, match="neither a whole number"):
        retarget(build(tiny.double), opset_version=opset)


def test_a_single_domain_is_accepted():
    assert retarget(build(tiny.double), domains="tiny").opsets == {"tiny": 5}


@pytest.mark.parametrize("multiplications", [1, 1 << 40])
def test_folding_stops_at_its_budget(multiplications):
    made = op("Costly", domain="tiny")(lambda x: tiny.exp(x))
    made.rule("cost", lambda x: multiplications)
    graph = Graph(opsets={"tiny": 5})
    graph.output("y", made(graph.variable("w", np.ones(10_000, np.float32))))
    assert names(fold(graph)) == ([] if multiplications == 1 else ["Costly"])


def test_a_constant_counts_once_for_a_node_that_reads_it_twice():
    graph = Graph(opsets={"tiny": 5})
    constant = graph.variable("c", np.zeros(8, np.float32))
    graph.output("y", tiny.add(constant, constant))
    shares = []

    def decide(rewriter, call):
        shares.append(constant_share(rewriter, call))

    Rewriter(graph, decide).run()
    assert shares == [32]
