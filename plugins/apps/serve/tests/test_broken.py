"""Broken models are drawn, with faults at the nodes that have them."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tenonnx as tx
from tenonnx_serve.tasks.broken import cut_values, faults_of, named_op, repair
from tenonnx_serve.tasks.keys import keyed
from tenonnx_serve.tasks.reading import read

node = helper.make_node


def info(name):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4])


def model_of(nodes, weights=(), inputs=("x",), outputs=("y",)):
    graph = helper.make_graph(nodes, "broken", [*map(info, inputs)], [*map(info, outputs)], list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def repaired(path):
    with pytest.raises(tx.TenonnxError) as refused:
        read(str(path))
    return repair(str(path), refused.value)


def branch(name, inner):
    return helper.make_graph([inner], name, [], [info("t")])


CYCLE = [
    node("Add", ["x", "c"], ["a"], name="add"),
    node("Relu", ["a"], ["b"], name="relu"),
    node("Tanh", ["b"], ["c"], name="tanh"),
    node("Exp", ["c"], ["y"], name="exp"),
]
TWICE = [
    node("Relu", ["x"], ["a"], name="r"),
    node("Tanh", ["x"], ["a"], name="t"),
    node("Exp", ["a"], ["y"], name="e"),
]
WEIGHT = numpy_helper.from_array(np.ones((4, 4), np.float32), "w")
SUBGRAPH = node(
    "If",
    ["c"],
    ["y"],
    name="if",
    then_branch=branch("then", node("Add", ["x", "ghost"], ["t"], name="inner")),
    else_branch=branch("else", node("Exp", ["x"], ["t"], name="other")),
)
SELF = [node("Add", ["x", "y"], ["y"], name="self")]
ROUND_IF = [
    node("Cast", ["y"], ["c"], name="cast", to=TensorProto.BOOL),
    node(
        "If",
        ["c"],
        ["y"],
        name="if",
        then_branch=branch("then", node("Exp", ["x"], ["t"], name="inner")),
        else_branch=branch("else", node("Relu", ["x"], ["t"], name="other")),
    ),
]


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        pytest.param(model_of(CYCLE), {"relu": "cycle", "tanh": "cycle", "add": "cycle"}, id="cycle"),
        pytest.param(model_of(SELF), {"self": "cycle"}, id="a node that reads itself"),
        pytest.param(model_of(ROUND_IF), {"cast": "cycle", "if": "cycle"}, id="a cycle through a node with subgraphs"),
        pytest.param(model_of(TWICE), {"r": '"t" gives', "t": '"r" gives'}, id="computed twice"),
        pytest.param(
            model_of([node("Relu", ["x"], ["w"], name="r"), node("Add", ["w", "x"], ["y"], name="a")], [WEIGHT]),
            {"r": "initializer gives"},
            id="computed, and an initializer",
        ),
        pytest.param(model_of([node("Relu", ["x"], ["y"], name="r")], [WEIGHT, WEIGHT]), {}, id="two initializers"),
        pytest.param(model_of([node("Add", ["x", "ghost"], ["y"], name="a")]), {"a": '"ghost"'}, id="from nowhere"),
        pytest.param(model_of([SUBGRAPH], inputs=("c", "x")), {"if/then_branch/inner": '"ghost"'}, id="in a subgraph"),
        pytest.param(model_of([node("Relu", ["x"] * 3, ["y"], name="r")]), {"r": "exactly 1 input"}, id="arity"),
        pytest.param(model_of([node("Exp", ["x"], ["a"], name="e")]), {}, id="an output that nothing computes"),
        pytest.param(model_of([node("Relu", ["x"], ["y"], name="r")], inputs=("x", "x")), {}, id="two inputs"),
    ],
)
def test_a_broken_model_is_drawn_with_its_faults(model, expected, tmp_path):
    onnx.save(model, tmp_path / "m.onnx")
    result = repaired(tmp_path / "m.onnx")
    texts = {label: " ".join(faults_of(each)) for _, label, each in keyed(result.graph)}
    assert {label for label, text in texts.items() if text} == set(expected)
    assert all(text in texts[label] for label, text in expected.items())
    assert expected or result.faults, "what has no node is told of an input or output"
    assert len(list(keyed(result.graph))) == len(list(walk(model.graph)))
    assert {named_op(each).rpartition(":")[2] for _, _, each in keyed(result.graph)} == {
        each.op_type for each in walk(model.graph)
    }


def walk(graph):
    for each in graph.node:
        yield each
        for attribute in each.attribute:
            if attribute.HasField("g"):
                yield from walk(attribute.g)


def test_the_line_that_closes_a_cycle_is_known(tmp_path):
    onnx.save(model_of(CYCLE), tmp_path / "m.onnx")
    graph = repaired(tmp_path / "m.onnx").graph
    (cut,) = [(each.name, cut_values(each)) for each in graph.nodes if cut_values(each)]
    makers = {each.name for each in graph.nodes if cut[1][0] in [value.name for value in each.outputs]}
    assert (cut[0], makers) in [("relu", {"add"}), ("tanh", {"relu"}), ("add", {"tanh"})]


@pytest.mark.parametrize("rest", [None, b"short", "outside"])
def test_weights_without_data_need_no_memory_and_have_no_contents(serve, tmp_path, rest):
    weight = TensorProto(name="w", dims=[4, 10**10], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    location = "../gone.bin" if rest == "outside" else "gone.bin"
    for key, value in {"location": location, "offset": "0", "length": str(16 * 10**10)}.items():
        weight.external_data.add(key=key, value=value)
    (tmp_path / "m.onnx").write_bytes(
        model_of([node("MatMul", ["x", "w"], ["y"], name="fc")], [weight]).SerializeToString()
    )
    if isinstance(rest, bytes):
        (tmp_path / "gone.bin").write_bytes(rest)
    page = serve(tmp_path)
    model = page.ask("/models", file="m.onnx")["id"]
    about = page.ask(f"/models/{model}/open")
    assert about["missing"]
    assert str(tmp_path) not in str(about["broken"])
    assert '"w" is missing' in about["faults"][0]["what"]
    details = page.ask(f"/models/{model}/node", key="n0")
    assert details["inputs"][1]["missing"]
    assert details["inputs"][1]["contents"] == ""
    assert "missing" in page.ask(f"/models/{model}/histogram", 422, key="n0", place=1)["what"]
    answer = page.client.get(f"/api/models/{model}/array", params={"key": "n0", "place": 1, "format": ".npy"})
    assert answer.status_code == 422


def test_the_page_marks_faults_in_boxes_and_groups_and_keeps_the_message(serve):
    nodes = [
        node("Foo", ["x"] if k == 0 else [f"v{k}"], [f"v{k + 1}"], name=f"/layer.{k // 2}/foo.{k}", domain="acme")
        for k in range(4)
    ]
    made = model_of(nodes, outputs=("v4",))
    made.opset_import.append(helper.make_opsetid("acme", 1))
    page = serve()
    model = page.send("m.onnx", made.SerializeToString())["id"]
    about = page.ask(f"/models/{model}/open")
    assert about["broken"] is None
    assert [each["key"] for each in about["faults"]] == ["n0", "n1", "n2", "n3"]
    assert "acme::Foo" in about["faults"][0]["what"]
    closed = page.ask(f"/models/{model}/draw", opened=[])["faults"]
    assert closed == {"g:/layer.0": "2 faults inside", "g:/layer.1": "2 faults inside"}
    everything = page.ask(f"/models/{model}/draw", everything=True)
    assert set(everything["faults"]) >= {"n0", "n1", "n2", "n3"}
    model = page.send("cycle.onnx", model_of(CYCLE).SerializeToString())["id"]
    about = page.ask(f"/models/{model}/open")
    assert "cycle" in about["broken"]["what"]
    keys = {label: key for key, _, label, *_ in about["index"]}
    assert about["back"] == [[keys["add"], keys["relu"]]]


def test_files_without_a_graph_stay_refused(tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"no model")
    with pytest.raises(tx.TenonnxError) as refused:
        read(str(tmp_path / "m.onnx"))
    with pytest.raises(tx.TenonnxError) as again:
        repair(str(tmp_path / "m.onnx"), refused.value)
    assert again.value is refused.value
