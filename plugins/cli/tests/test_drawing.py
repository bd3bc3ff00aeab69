"""Drawings: every node is there, names are escaped, and the layout holds."""

import xml.etree.ElementTree as ET

import numpy as np
import pytest
import tiny

from tenonnx import Graph
from tenonnx_cli.drawing import to_dot, to_html, to_svg

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def graph():
    made = Graph('<a> & "b"', opsets={"tiny": 5})
    x = made.input('in "quotes"', "float32", ("n", 2))
    doubled = tiny.double(x)
    made.output("y", tiny.add(tiny.exp(doubled), doubled))
    made.output("z", tiny.add(doubled, np.float32(1)))
    return made


def test_svg_draws_each_node_once_and_no_two_at_one_place(graph):
    tree = ET.fromstring(to_svg(graph))
    labels = [text.text for text in tree.iter(f"{SVG}text")]
    assert sorted(labels[1:]) == sorted(["Add", "Add", "Double", "Exp", 'in "quotes"', "y", "z"])
    boxes = [{k: float(r.get(k)) for k in ("x", "y", "width", "height")} for r in tree.iter(f"{SVG}rect")]
    for k, one in enumerate(boxes):
        for other in boxes[:k]:
            apart = one["y"] != other["y"] or one["x"] >= other["x"] + other["width"]
            assert apart or other["x"] >= one["x"] + one["width"]
    assert len(list(tree.iter(f"{SVG}path"))) == 7, "one line for each value that is read"


def test_dot_names_nodes_and_edges(graph):
    text = to_dot(graph)
    assert text.count("->") == 7
    assert 'label="in \\"quotes\\""' in text
    assert "float32[n, 2]" in text


def test_nested_graphs_are_clusters_and_drawings_of_their_own():
    from tenonnx.op.build import subgraph

    graph = Graph("outer", opsets={"tiny": 5})
    x = graph.input("x", "float32", (2,))
    with graph.building():
        inner = subgraph(lambda: tiny.double(x), name="inner")
    assert [nested.name for nested in inner.nested()] == ["inner"]
    assert "Double" in to_svg(inner)


def test_a_page_has_the_interface_and_leaves_out_what_is_too_large(graph, monkeypatch):
    assert "float32[n, 2]" in to_html(graph)
    assert "&lt;a&gt; &amp;" in to_html(graph)
    assert graph._repr_html_() == to_html(graph)
    monkeypatch.setattr("tenonnx_cli.drawing.DRAWN", 1)
    assert "more than the 1 that are drawn" in to_html(graph)
