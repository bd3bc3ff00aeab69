"""Drawings: every node is drawn, names are escaped, and the layout is valid."""

import itertools
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
import tiny

from tenonnx import Graph
from tenonnx_cli.drawing import group_keys, path_of, to_dot, to_html, to_svg
from tenonnx_cli.drawing.layers import Line, arrange
from tenonnx_cli.drawing.picture import picture

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
    labels = [text.text for text in tree.iter(f"{SVG}text") if text.get("font-size") is None]
    assert sorted(labels) == sorted(["Add", "Add", "Double", "Exp", 'in "quotes"', "y", "z"])
    boxes = [{k: float(r.get(k)) for k in ("x", "y", "width", "height")} for r in boxes_of(tree)]
    for k, one in enumerate(boxes):
        for other in boxes[:k]:
            assert apart(one, other)
    arrows = [path for path in tree.iter(f"{SVG}path") if path.get("marker-end")]
    assert len(arrows) == 7, "one line for each value that is read"
    assert "n×2" in {text.text for text in tree.iter(f"{SVG}text")}, "shapes beside lines"


def boxes_of(tree):
    """The rectangles except the background."""
    return [rect for rect in tree.iter(f"{SVG}rect") if rect.get("class") != "ground"]


def apart(one, other):
    beside = one["x"] >= other["x"] + other["width"] or other["x"] >= one["x"] + one["width"]
    return beside or one["y"] >= other["y"] + other["height"] or other["y"] >= one["y"] + one["height"]


def ladder(steps, name=lambda step: "", back=lambda step: step // 2):
    """A chain of additions, each of the previous node and an earlier one, with node names from ``name``."""
    graph = Graph("ladder", opsets={"tiny": 5})
    values = [graph.input("x", "float32", ("n", 2))]
    for step in range(steps):
        values.append(tiny.add(values[-1], values[back(step)]))
        graph.nodes[-1].name = name(step)
    graph.output("y", values[-1])
    return graph


def test_lines_lead_from_box_to_box_and_through_no_other():
    drawn = picture(ladder(60))
    boxes = [{"x": b.x, "y": b.y, "width": b.width, "height": b.height} for b in drawn.boxes]
    crossed = 0
    for points in (line.points for line in drawn.lines):
        assert points[0][1] < points[-1][1], "downwards"
        ends = [any(abs(p[1] - edge) < 1 for b in boxes for edge in (b["y"], b["y"] + b["height"])) for p in points]
        assert ends[0]
        assert ends[-1]
        for x, y in points[1:-1]:
            crossed += any(
                b["x"] < x < b["x"] + b["width"] and b["y"] + 0.5 < y < b["y"] + b["height"] - 0.5 for b in boxes
            )
    assert crossed == 0


def test_nodes_of_one_path_are_a_group_that_opens():
    graph = ladder(40, lambda step: f"/layer.{step // 10}/add.{step}")
    closed = picture(graph, set())
    assert [box.title for box in closed.boxes if box.kind == "group"] == [f"layer.{k}" for k in range(4)]
    assert all(box.facts == ["10 nodes"] for box in closed.boxes if box.kind == "group")
    opened = picture(graph, {"g:/layer.1"})
    (group,) = (box for box in opened.boxes if box.inside)
    inside = [box for box in opened.boxes if box.kind == "node"]
    assert len(inside) == 10
    for box in inside:
        assert group.x <= box.x
        assert box.x + box.width <= group.x + group.width
        assert group.y < box.y
        assert box.y + box.height < group.y + group.height
    assert len(picture(graph).boxes) == 46, "all are open where there is room: 40 nodes, 4 groups, x and y"


def test_nodes_that_make_a_weight_are_just_above_its_reader():
    """The graph has two nodes that compute a weight, and a chain of ten nodes, the last of which reads the weight."""
    chain = [0, *range(3, 13)]
    lines = [Line(1, 2), Line(2, 12), *(Line(source, target) for source, target in itertools.pairwise(chain))]
    tops = arrange([(20.0, 10.0)] * 13, lines, first=[0]).tops
    assert tops[1:3] == [tops[10], tops[11]]
    assert all(len(line.points) <= 4 for line in lines), "no line passes a layer"


def test_large_graphs_are_drawn_with_closed_groups_and_stay_narrow():
    def near(step):
        return max(step - 15, 0)

    graph = ladder(2000, lambda step: f"/layer.{step // 100}/block.{step // 10}/add.{step}", near)
    drawn = picture(graph)
    assert len(drawn.boxes) < 200
    assert drawn.width < 2000
    assert len(picture(ladder(2000, back=near)).boxes) == 2002, "names without paths make no groups"


@pytest.mark.parametrize("calls", [1, 3])
def test_a_module_that_is_called_again_is_another_group(calls):
    """Otherwise edges would lead upwards."""
    graph = ladder(6 * calls, lambda step: f"/{'ab'[step // 3 % 2]}/add.{step}", back=lambda step: step)
    drawn = picture(graph, set())
    again = [f"{name} ({call})" for call in range(2, calls + 1) for name in "ab"]
    assert [box.title for box in drawn.boxes] == ["x", "a", "b", *again, "y"]
    assert not any(line.points[0][1] > line.points[-1][1] + 1 for line in drawn.lines)
    keys = group_keys(graph)
    assert keys[graph.nodes[0]] == ["g:/a"]
    assert keys[graph.nodes[-1]] == ["g:/b" if calls == 1 else f"g:/b ({calls})"]


def test_a_node_shows_its_weights_and_non_default_attributes():
    import tenonnx_standard as ops

    graph = Graph("g", opsets={"ai.onnx": 17})
    x = graph.input("x", "float32", (1, 3, 8, 8))
    weight = graph.variable("encoder.weight", np.zeros((4, 3, 3, 3), "f4"))
    graph.output("y", ops.conv(x, weight, strides=[2, 2], group=1))
    (box,) = (box for box in picture(graph).boxes if box.kind == "node")
    assert box.facts == ["weight ⟨4×3×3×3⟩", "strides = 2, 2"]


def test_constants_of_few_elements_are_written_out():
    import tenonnx_standard as ops

    graph = Graph("g", opsets={"ai.onnx": 17})
    x = graph.input("x", "float32", (4, 8))
    graph.output("y", ops.slice_(x, np.array([3, 0]), np.array([9, 1])))
    graph.output("z", ops.gather(x, np.array(2), axis=1))
    first, second = (box for box in picture(graph).boxes if box.kind == "node")
    assert [fact.partition(" ")[2] for fact in first.facts] == ["= [3, 0]", "= [9, 1]"]
    assert [fact.partition(" ")[2] for fact in second.facts] == ["= 2", "= 1"]


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


def test_a_page_has_the_interface_and_the_drawing(graph):
    assert "float32[n, 2]" in to_html(graph)
    assert "&lt;a&gt; &amp;" in to_html(graph)
    assert graph._repr_html_() == to_html(graph)


def test_a_page_has_the_details_of_each_box_to_be_shown_by_a_click(graph):
    page = to_html(graph)
    boxes = re.findall(r'<g class="box-(\d+)" tabindex="0">', page)
    assert len(boxes) == len(set(boxes)) == len(picture(graph).boxes)
    for number in boxes:
        assert f".tenonnx-graph:has(.box-{number}:focus) .of-{number}{{display:block}}" in page
        assert page.count(f'class="details of-{number}"') == 1
    assert "<script" not in page
    assert 'class="box-' not in to_svg(graph)


def test_nodes_are_grouped_by_the_modules_that_pytorch_notes():
    from types import SimpleNamespace

    graph = Graph("noted", opsets={"tiny": 5})
    value = graph.input("x", "float32", (2,))
    for k in range(6):
        value = tiny.double(value)
        scopes = f"['', 'encoder', 'encoder.layer.{k // 3}', 'double_{k}']"
        entry = SimpleNamespace(key="pkg.torch.onnx.name_scopes", value=scopes)
        graph.nodes[-1].origin = SimpleNamespace(metadata_props=[entry])
    graph.output("y", value)
    assert path_of(graph.nodes[0]) == ["encoder", "layer", "0"]
    closed = {box.title for box in picture(graph, opened=[]).boxes if box.kind == "group"}
    assert closed == {"0", "1"}, "what is around all of them is not drawn"
