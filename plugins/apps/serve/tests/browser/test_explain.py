"""Attributions on the page: heat maps, bars and colored tokens."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from axe_playwright_python.sync_playwright import Axe
from onnx import TensorProto, helper, numpy_helper
from playwright.sync_api import expect

EXAMPLES = Path(__file__).parents[5] / "examples"

#: The color of a canvas pixel: [r, g, b].
PIXEL = "([x, y]) => [...document.querySelector('canvas.heat').getContext('2d').getImageData(x, y, 1, 1).data]"


@pytest.fixture
def explain(opened, address):
    def start(model, path=None, **options):
        page = opened(address, **options)
        if isinstance(model, Path):
            page.get_by_label("Choose a model").set_input_files(model)
        else:
            page.get_by_role("button", name=model, exact=True).last.click()
        expect(page.get_by_role("heading", name="Export", exact=True)).to_be_visible(timeout=60_000)
        page.get_by_role("navigation").get_by_role("button", name="Explain", exact=True).click()
        if path:
            page.get_by_label("Values of inputs").set_input_files(path)
            expect(page.get_by_text(path.name)).to_be_visible(timeout=60_000)
        return page

    return start


def go(page):
    page.get_by_role("button", name="Explain", exact=True).last.click()
    expect(page.locator("figure.attribution").first).to_be_visible(timeout=60_000)


def model_of(nodes, inputs, outputs, weights):
    graph = helper.make_graph(nodes, "made", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_heat_map_is_red_where_pixels_are_for_the_output(explain, tmp_path):
    """The model is a weighted sum of pixels: the upper left one has a positive weight, the lower right one a
    negative."""
    weight = np.zeros((1, 3, 8, 8), np.float32)
    weight[0, :, 0, 0], weight[0, :, 7, 7] = 1, -1
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["m"]),
        helper.make_node("ReduceSum", ["m", "axes"], ["y"], keepdims=0),
    ]
    info = helper.make_tensor_value_info
    weights = [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(np.array([1, 2, 3]), "axes")]
    ends = info("x", TensorProto.FLOAT, ["n", 3, 8, 8]), info("y", TensorProto.FLOAT, ["n"])
    onnx.save(model_of(nodes, [ends[0]], [ends[1]], weights), tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", x=np.ones((2, 3, 8, 8), np.float32) + np.eye(8, dtype=np.float32))
    page = explain(tmp_path / "m.onnx", tmp_path / "x.npz")
    go(page)
    red, gray, blue = (page.evaluate(PIXEL, [at, at]) for at in (10, 140, 270))
    assert red[0] > red[2] + 50
    assert blue[2] > blue[0] + 50
    assert abs(gray[0] - gray[2]) < 10
    page.get_by_label("Row", exact=True).select_option("1")
    expect(page.locator("canvas.heat")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download attributions").click()
    download.value.save_as(tmp_path / "found.npz")
    assert np.load(tmp_path / "found.npz")["x/attribution"].shape == (2, 3, 8, 8)


def test_a_table_has_bars(explain):
    page = explain("iris/iris.onnx")
    page.get_by_label("Method").select_option("gradient-times-input")
    go(page)
    region = page.get_by_role("region", name="Attribution of each feature")
    expect(region.locator("tbody tr")).to_have_count(4)
    widths = region.locator(".bar > span").evaluate_all("all => all.map((each) => parseFloat(each.style.width))")
    assert max(widths) == 50
    expect(page.get_by_text("Random inputs")).to_be_visible()


def test_tokens_are_colored_and_have_the_texts_of_a_vocabulary(explain, tmp_path):
    table = np.array([[0, 0], [0, 0], [3, 1], [-2, 0]], np.float32)
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("ReduceSum", ["rows", "axes"], ["y"], keepdims=0),
    ]
    info = helper.make_tensor_value_info
    weights = [numpy_helper.from_array(table, "table"), numpy_helper.from_array(np.array([1, 2]), "axes")]
    ends = info("ids", TensorProto.INT64, ["n", "tokens"]), info("y", TensorProto.FLOAT, ["n"])
    onnx.save(model_of(nodes, [ends[0]], [ends[1]], weights), tmp_path / "m.onnx")
    np.savez(tmp_path / "ids.npz", ids=np.array([[1, 2, 3]]))
    words = {"<b>": 1, "good": 2, "bad": 3}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": words}, "added_tokens": []}))
    page = explain(tmp_path / "m.onnx", tmp_path / "ids.npz")
    page.get_by_text("More", exact=True).click()
    page.get_by_label("Vocabulary").set_input_files(tmp_path / "tokenizer.json")
    expect(page.get_by_text("tokenizer.json, 3 tokens")).to_be_visible()
    go(page)
    tokens = page.locator(".token")
    expect(tokens).to_have_count(3)
    assert [text.split()[0] for text in tokens.all_inner_texts()] == ["<b>", "good", "bad"]
    colors = tokens.evaluate_all("all => all.map((each) => each.style.backgroundColor)")
    assert colors[1].startswith("rgba(200, 38, 50")
    assert colors[2].startswith("rgba(31, 95, 196")


def test_a_vocabulary_of_lines_may_begin_with_a_bracket(explain, tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[CLS]\ngood")
    page = explain("iris/iris.onnx")
    page.get_by_text("More", exact=True).click()
    page.get_by_label("Vocabulary").set_input_files(tmp_path / "vocab.txt")
    expect(page.get_by_text("vocab.txt, 3 tokens")).to_be_visible()


def test_a_method_that_does_not_fit_says_why(explain):
    page = explain("digits/digits.onnx")
    page.get_by_label("Method").select_option("tree-shap")
    page.get_by_role("button", name="Explain", exact=True).last.click()
    expect(page.get_by_role("alert")).to_contain_text("no tree ensemble", timeout=60_000)


@pytest.mark.parametrize("options", [{}, {"color_scheme": "dark"}, {"viewport": {"width": 390, "height": 780}}])
def test_attributions_keep_nobody_out(explain, options):
    for model in ("digits_cnn/digits-cnn.onnx", "iris/iris.onnx"):
        page = explain(model, **options)
        go(page)
        reported = Axe().run(page).response["violations"]
        assert not [(each["id"], [node["html"][:200] for node in each["nodes"]]) for each in reported]
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
