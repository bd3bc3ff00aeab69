"""Descriptions of models for the page: drawing, nodes, weights, costs and definitions."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tenonnx as tx
from tenonnx_serve.tasks.compare import node_fates
from tenonnx_serve.tasks.run import run

EXAMPLES = Path(__file__).parents[4] / "examples"


@pytest.fixture
def page(serve):
    return serve(EXAMPLES)


def looked(page, way):
    model = page.ask("/models", file=way)["id"]
    return lambda task, status=200, **question: page.ask(f"/models/{model}/{task}", status, **question)


def test_a_model_is_drawn_and_a_definition_opens_in_place(page):
    ask = looked(page, "exports/resnet-dynamo.onnx")
    about = ask("open")
    assert about["inputs"][0]["image"] == {"batch": 0, "height": 2, "width": 3}
    drawn = ask("draw")
    assert {box[0] for box in drawn["boxes"]} >= {key for key, *_ in about["index"]}
    opened = ask("draw", opened=["n1"])
    inner = [box[0] for box in opened["boxes"] if box[0].startswith("n1/body/n")]
    assert inner, "Relu by simpler ops"
    assert ask("node", key=inner[0])["op"]
    assert ask("node", 422, key="n999")["what"]
    assert ask("node", 422, key="../x")["what"]


def test_a_node_shows_its_inputs_attributes_and_documentation(page):
    ask = looked(page, "exports/resnet-dynamo.onnx")
    node = ask("node", key="n0")
    assert (node["op"], node["inputs"][1]["called"], node["attributes"]["strides"]) == ("Conv", "W", "[2, 2]")
    assert node["documentation"]
    result = ask("histogram", key="n0", place=1)
    assert sum(result["counts"]) == result["size"] == 8 * 3 * 7 * 7
    assert ask("histogram", 422, key="n0", place=0)["what"], "not a weight"
    assert ask("histogram", 422, key="n0", place=-1)["what"]
    assert ask("costs")["nodes"]["n0"][0] > 0


def test_groups_around_a_node_open_to_show_it(page):
    nodes = [
        helper.make_node("Relu", [f"v{k}"], [f"v{k + 1}"], name=f"/layer.{k // 10}/block.{k // 5}/relu.{k}")
        for k in range(20)
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("v0", "v20")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    model = page.send("m.onnx", helper.make_model(graph).SerializeToString())["id"]
    closed = {box[0] for box in page.ask(f"/models/{model}/draw", opened=[])["boxes"]}
    assert closed == {"i0", "o0", "g:/layer.0", "g:/layer.1"}
    drawn = page.ask(f"/models/{model}/draw", opened=[], reveal="n12")
    assert "n12" in {box[0] for box in drawn["boxes"]}
    assert set(drawn["opened"]) == {"g:/layer.1", "g:/layer.1/block.2"}
    assert "g:/layer.0" in page.ask(f"/models/{model}/costs")["nodes"]


def test_names_of_a_model_are_texts_and_never_html(page):
    name = "<script>alert(1)</script>"
    node = helper.make_node("Relu", [name], ["y"], name='"><img src=x onerror=alert(1)>')
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
    )
    model = page.send("m.onnx", helper.make_model(graph).SerializeToString())["id"]
    assert page.ask(f"/models/{model}/open")["inputs"][0]["name"] == name
    assert page.ask(f"/models/{model}/draw")["boxes"][0][6] == name, "JSON, which the page makes texts of"
    static = Path(__file__).parents[1] / "src" / "tenonnx_serve" / "static"
    for path in static.glob("*.js"):
        text = path.read_text()
        for word in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "http://",
            "https://",
        ):
            assert word not in text.replace('"http://www.w3.org/2000/svg"', ""), f"{path.name} has {word}"


def test_files_that_are_not_models_are_reported_with_advice(page):
    for body in (b"", b"no model", b"<html></html>", onnx.ModelProto().SerializeToString()):
        model = page.send("m.onnx", body)["id"]
        assert page.ask(f"/models/{model}/open", 422)["what"]
        page.client.delete(f"/api/models/{model}")


def test_numbers_that_json_lacks_are_null():
    from tenonnx_serve.frames import HEAD, framed

    assert framed({"a": [float("nan"), 1.5, float("inf")]})[HEAD.size :] == b'{"a": [null, 1.5, null]}'
    assert np.isfinite(1.5)


def test_a_function_of_a_model_opens_in_place(page):
    body = [helper.make_node("Exp", ["a"], ["b"]), helper.make_node("Neg", ["b"], ["c"])]
    function = helper.make_function("lab", "ExpNeg", ["a"], ["c"], body, [helper.make_opsetid("", 17)])
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("ExpNeg", ["x"], ["y"], domain="lab")], "g", ends[:1], ends[1:])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("lab", 1)]
    made = helper.make_model(graph, functions=[function], opset_imports=opsets, ir_version=9)
    model = page.send("m.onnx", made.SerializeToString())["id"]
    page.ask(f"/models/{model}/open")
    drawn = page.ask(f"/models/{model}/draw", opened=["n0"])
    inner = sorted(box[0] for box in drawn["boxes"] if box[0].startswith("n0/body/n"))
    assert [page.ask(f"/models/{model}/node", key=key)["op"] for key in inner] == ["Exp", "Neg"]


def branching(then):
    """A model that returns Exp or ``then`` of its input."""
    one = [helper.make_tensor_value_info("z", TensorProto.FLOAT, [2])]
    branches = {
        "then_branch": helper.make_graph(
            [helper.make_node(then, ["x"], ["t"]), helper.make_node("Neg", ["t"], ["z"])], "then", [], one
        ),
        "else_branch": helper.make_graph([helper.make_node("Exp", ["x"], ["z"])], "else", [], one),
    }
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    flag = helper.make_tensor_value_info("flag", TensorProto.BOOL, [])
    node = helper.make_node("If", ["flag"], ["y"], **branches)
    return tx.load(helper.make_model(helper.make_graph([node], "g", [ends[0], flag], ends[1:]), ir_version=9))


def test_nodes_of_subgraphs_are_compared_too():
    ours, theirs, pairs = node_fates(branching("Relu"), branching("Relu"))
    assert pairs == {key: key for key in ours}
    assert set(ours.values()) == set(theirs.values()) == {"equal"}
    assert set(ours) == {"n0", "n0/then_branch/n0", "n0/then_branch/n1", "n0/else_branch/n0"}
    ours, theirs, _ = node_fates(branching("Relu"), branching("Abs"))
    assert theirs == {
        "n0": "changed",
        "n0/then_branch/n0": "changed",
        "n0/then_branch/n1": "equal",
        "n0/else_branch/n0": "equal",
    }
    assert ours == theirs
    ours, theirs, _ = node_fates(branching("Relu"), tx.Graph())
    assert set(ours.values()) == {"removed"}
    assert len(ours) == 4
    assert not theirs


@pytest.mark.parametrize(
    ("changes", "fate"),
    [
        ({}, "equal"),
        ({"scale": 2.0}, "weights"),
        ({"alpha": 0.5}, "attributes"),
        ({"alpha": 0.5, "scale": 2.0}, "changed"),
        ({"op": "MatMul", "alpha": None}, "changed"),
    ],
)
def test_changes_of_a_node_are_shown(changes, fate):
    def made(scale=1.0, alpha=0.25, op="Gemm"):
        attributes = {} if alpha is None else {"alpha": alpha}
        weight = onnx.numpy_helper.from_array(np.eye(4, dtype=np.float32) * np.float32(scale), "w")
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 4]) for name in "xy"]
        nodes = [helper.make_node(op, ["x", "w"], ["h"], **attributes), helper.make_node("Relu", ["h"], ["y"])]
        return tx.load(helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:], [weight]), ir_version=9))

    ours, theirs, pairs = node_fates(made(), made(**changes))
    assert ours == theirs == {"n0": fate, "n1": "equal"}
    assert pairs == {"n0": "n0", "n1": "n1"}


def test_a_run_shows_the_time_of_nodes(tmp_path):
    path = EXAMPLES / "digits" / "digits.onnx"
    output = []
    result = run(lambda **step: output.append(step["step"]), str(path), "digits", str(tmp_path), {"backend": "numpy"})
    assert output[-1] == "Timing nodes"
    nodes = tx.load(path).nodes
    assert {each["key"] for each in result["times"]} <= {f"n{k}" for k in range(len(nodes))}
    assert all(nodes[int(each["key"][1:])].label == each["name"] for each in result["times"])


def test_a_backend_that_is_not_installed_is_refused(tmp_path):
    path = EXAMPLES / "digits" / "digits.onnx"
    with pytest.raises(tx.InvalidCall, match='no backend "numpi" is installed') as caught:
        run(lambda **_: None, str(path), "digits", str(tmp_path), {"backend": "numpi"})
    assert caught.value.do == "did you mean numpy?"
