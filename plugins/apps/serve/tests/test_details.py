"""Details of values, paths and functions, and downloads of arrays and reports."""

import io
import json
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tenonnx_serve.reports import to_html, to_markdown

EXAMPLES = Path(__file__).parents[4] / "examples"
node = helper.make_node


def info(name):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3])


@pytest.fixture
def made():
    """x -> Relu -> If (with a subgraph that captures Relu's output) -> ExpNeg, a function -> y; MatMul with a
    weight."""
    weight = numpy_helper.from_array(np.arange(24, dtype=np.float32).reshape(2, 3, 4), "w")
    then = helper.make_graph([node("Exp", ["r"], ["t"], name="inner")], "then", [], [info("t")])
    other = helper.make_graph([node("Neg", ["x"], ["t"], name="else")], "else", [], [info("t")])
    nodes = [
        node("Relu", ["x"], ["r"], name="relu", doc_string="the first"),
        node("If", ["c"], ["i"], name="if", then_branch=then, else_branch=other),
        node("ExpNeg", ["i"], ["y"], name="call", domain="lab"),
        node("MatMul", ["x", "w"], ["z"], name="fc"),
        node("Abs", ["z"], ["dead"], name="dead"),
    ]
    body = [node("Exp", ["a"], ["b"]), node("Neg", ["b"], ["c"])]
    function = helper.make_function("lab", "ExpNeg", ["a"], ["c"], body, [helper.make_opsetid("", 17)])
    function.doc_string = "of a lab"
    flag = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    z = helper.make_tensor_value_info("z", TensorProto.FLOAT, [2, 2, 4])
    graph = helper.make_graph(nodes, "g", [info("x"), flag], [info("y"), z], [weight])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("lab", 1)]
    model = helper.make_model(graph, functions=[function], opset_imports=opsets, ir_version=9)
    model.doc_string = "a model"
    model.metadata_props.add(key="author", value="we")
    return model


@pytest.fixture
def asked(serve, made):
    page = serve()
    model = page.send("m.onnx", made.SerializeToString())["id"]
    about = page.ask(f"/models/{model}/open")

    def ask(task, status=200, **question):
        return page.ask(f"/models/{model}/{task}", status, **question)

    ask.page, ask.model, ask.about = page, model, about
    return ask


def test_values_lead_to_producers_and_consumers_and_paths_to_outputs(asked):
    relu = asked("node", key="n0")
    assert relu["doc"] == "the first"
    assert relu["inputs"][0]["from"] == {"key": "i0", "label": "x"}
    assert [each["label"] for each in relu["outputs"][0]["to"]] == ["if/then_branch/inner"]
    value = asked("value", key="n0:0")
    assert (value["name"], value["from"]["key"], value["readers"]) == ("r", "n0", 1)
    assert asked("value", key="i0")["name"] == "x"
    assert asked("value", 422, key="n0:9")["what"]
    lines = asked("draw", everything=True)["lines"]
    assert {line[5] for line in lines} >= {"i0", "n0:0", "n1:0", "n1/then_branch/n0:0"}
    steps = [each["label"] for each in asked("path", key="n0")["steps"]]
    assert steps == ["relu", "if/then_branch/inner", "t", "call", "y"]
    assert [each["label"] for each in asked("path", key="i0")["steps"]] == ["x", "fc", "z"]
    assert asked("path", key="n4")["steps"] == []
    assert asked("path", 422, key="n5/x/n1")["what"]


def test_functions_are_drawn_and_documented_on_pages_of_their_own(asked):
    assert (asked.about["doc"], asked.about["metadata"]) == ("a model", {"author": "we"})
    assert [(each["op"], each["doc"]) for each in asked.about["functions"]] == [("lab::ExpNeg", "of a lab")]
    assert asked("node", key="n2")["function"] == 0
    drawn = asked("draw", function=0)
    assert {box[0] for box in drawn["boxes"]} == {f"f0/body/{each}" for each in ("i0", "n0", "n1", "o0")}
    assert asked("node", key="f0/body/n1")["op"] == "Neg"
    assert [each["key"] for each in asked("path", key="f0/body/n0")["steps"]][-1] == "f0/body/o0"
    assert {box[0] for box in asked("draw", reveal="f0/body/n1")["boxes"]} == {box[0] for box in drawn["boxes"]}
    assert asked("draw", 422, function=1)["what"]
    assert asked("node", 422, key="f7/body/n0")["what"]


def test_a_weight_is_taken_away_as_npy_and_csv(asked):
    def taken(format, status=200, key="n3", place="1"):
        path = f"/api/models/{asked.model}/array"
        answer = asked.page.client.get(path, params={"key": key, "place": place, "format": format})
        assert answer.status_code == status, answer.text
        return answer.content

    expected = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    assert np.array_equal(np.load(io.BytesIO(taken(".npy"))), expected)
    assert np.array_equal(np.loadtxt(io.StringIO(taken(".csv").decode()), delimiter=","), expected.reshape(6, 4))
    for refused in (
        {"format": ".pkl"},
        {"place": "0"},
        {"place": "-1"},
        {"place": "x"},
        {"place": "9" * 5000},
        {"key": "n9"},
    ):
        assert b"what" in taken(**{"format": ".npy", "status": 422, **refused})
    assert not list(asked.page.server.folder.joinpath("results").iterdir()), "nothing is left behind"


def test_a_value_is_computed_and_taken_away(asked):
    def job(**options):
        return asked.page.done(task="compute", model=asked.model, options=options)

    done = job(value="z", format=".csv", backend="numpy")
    assert done["state"] == "done", done["error"]
    rows = asked.page.client.get(f"/api/jobs/{done['id']}/file").text.splitlines()
    assert len(rows) == 4
    assert len(rows[0].split(",")) == 4
    for wrong in ({"value": "nothing"}, {"value": "z", "backend": "x"}, {"value": "z", "format": "../x"}):
        assert job(**wrong)["state"] == "failed"
    assert '"seed" is not a whole number' in str(job(value="z", format=".csv", seed="three")["error"])


class _Text(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.text = [], ""

    def handle_starttag(self, tag, _):
        self.tags.append(tag)

    def handle_data(self, data):
        self.text += data


def test_the_report_of_an_export_is_a_page_and_markdown(serve):
    page = serve(EXAMPLES)
    model = page.ask("/models", file="digits/digits.onnx")["id"]
    job = page.done(task="export", model=model, options={"convert": {"--opset": ["13"]}})
    for format, kind in (("html", "text/html"), ("md", "text/markdown")):
        answer = page.client.get(f"/api/jobs/{job['id']}/report.{format}")
        assert answer.headers["content-type"].startswith(kind)
        assert "attachment" in answer.headers["content-disposition"]
        for text in ("Passed ✓", "probabilities", "Opsets", "tenonnx convert", "digits"):
            assert text in answer.text
    assert page.client.get(f"/api/jobs/{job['id']}/report.pdf").status_code == 404
    assert page.client.get("/api/jobs/none/report.md").status_code == 404


def test_names_of_a_model_are_escaped_in_a_report():
    name = "<img src=x onerror=alert(1)> | `x` @someone #1"
    row = {"name": name, "backend": "numpy", "absolute": 0.5, "relative": None, "equal": False, "reason": name}
    result = {
        "command": f"tenonnx convert '{name}' ```",
        "passed": False,
        "opsets": {"ai.onnx": 17},
        "ir_version": 9,
        "nodes": {"kept": 1, "rewritten": 0, "groups": []},
        "verification": {"outputs": [row]},
        "notes": [name],
    }
    read = _Text()
    read.feed(to_html(name, result))
    assert "img" not in read.tags
    assert name in read.text
    (line,) = [line for line in to_markdown(name, result).splitlines() if line.startswith("| \\<img")]
    assert line.count(" | ") == 4, "cells stay cells"
    assert "@" not in line.replace("\\@", "")
    assert "````console" in to_markdown(name, result)
    blockers = [{"op": "Foo", "reason": "no form", "do": "", "nodes": [["n", "n0"]]}]
    refused = {"command": "c", "refused": {"error": {"what": "no"}, "blockers": blockers}}
    assert "Not possible ✗" in to_markdown("m", refused)
    assert json.dumps("no form")[1:-1] in to_html("m", refused)


def test_each_start_of_the_server_has_its_own_number(serve):
    numbers = {serve().client.get("/api/alive").json()["server"] for _ in range(2)}
    assert len(numbers) == 2


def test_layouts_are_cached(serve):
    import tenonnx as tx
    from tenonnx_cli.drawing import picture
    from tenonnx_cli.drawing.picture import _arranged

    ops = ["Relu", "Tanh", "Sigmoid", "Softsign"]  # equal groups share one layout
    nodes = [node(ops[k // 10], [f"v{k}"], [f"v{k + 1}"], name=f"/layer.{k // 10}/r.{k}") for k in range(40)]
    graph = tx.load(helper.make_model(helper.make_graph(nodes, "g", [info("v0")], [info("v40")]), ir_version=9))
    _arranged.cache_clear()
    picture(graph, {"g:/layer.0", "g:/layer.1"})
    before = _arranged.cache_info().misses
    picture(graph, {"g:/layer.0", "g:/layer.1", "g:/layer.2"})
    assert _arranged.cache_info().misses == before + 2, "the group that was opened, and what it is in"
    picture(graph, {"g:/layer.0", "g:/layer.1"})
    assert _arranged.cache_info().misses == before + 2


def test_onnx_files_of_the_test_are_valid(made):
    onnx.checker.check_model(made)
