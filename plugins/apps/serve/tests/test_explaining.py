"""Attributions for the page: heat maps of images, bars of tables, colors of tokens."""

import io
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

EXAMPLES = Path(__file__).parents[4] / "examples"


@pytest.fixture
def page(serve):
    return serve(EXAMPLES)


def explained(page, model, feeds=None, **options):
    job = page.done(task="explain", model=model, options=options, **({"feeds": feeds} if feeds else {}))
    assert job["state"] == "done", job["error"]
    return job


def sent(page, **arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return page.send("feeds.npz", buffer.getvalue(), feeds="1")["id"]


def opened(page, way):
    return page.ask("/models", file=way)["id"]


def test_an_image_gets_a_heat_map_that_sums_to_the_difference(page):
    image = np.random.default_rng(0).random((2, 1, 8, 8), np.float32)
    model = opened(page, "digits_cnn/digits-cnn.onnx")
    job = explained(page, model, sent(page, images=image), method="integrated-gradients", steps="64", target="3")
    (result,) = job["result"]["attributions"]
    assert (result["name"], result["kind"], result["shape"]) == ("images/attribution", "image", [2, 1, 8, 8])
    archive = np.load(io.BytesIO(page.client.get(f"/api/jobs/{job['id']}/file").content))
    heat = np.array([row["heat"] for row in result["rows"]])
    np.testing.assert_allclose(heat, archive["images/attribution"].sum(axis=1), rtol=1e-5)
    picture = np.array(result["rows"][1]["picture"])
    assert (picture.shape, picture.min(), picture.max()) == ((8, 8, 1), 0, 255)
    assert np.unravel_index(picture[..., 0].argmax(), (8, 8)) == np.unravel_index(image[1, 0].argmax(), (8, 8))
    assert job["result"]["delta"] < 0.05
    assert job["result"]["inputs"]["images"]["given"]


def test_a_table_gets_its_features_in_the_order_of_their_attributions(page):
    row = np.array([[5.1, 3.5, 1.4, 0.2]], np.float32)
    graph = onnx.load(EXAMPLES / "iris/tree.onnx").graph
    model = opened(page, "iris/iris.onnx")
    name = onnx.load(EXAMPLES / "iris/iris.onnx").graph.input[0].name
    result = explained(page, model, sent(page, **{name: row}), method="gradient-times-input")["result"]
    (table,) = result["attributions"]
    (bars,) = table["rows"]
    assert table["kind"] == "table"
    parts = np.abs(bars["parts"])
    assert (np.diff(parts) <= 0).all()
    np.testing.assert_allclose(bars["values"], row[0][bars["features"]], rtol=1e-6)
    assert graph.node


def tokens_model():
    """The sum of rows of a table: token 2 contributes positively, token 3 negatively."""
    table = np.array([[0, 0], [0, 0], [3, 1], [-2, 0]], np.float32)
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("ReduceSum", ["rows", "axes"], ["y"], keepdims=0),
    ]
    weights = [numpy_helper.from_array(table, "table"), numpy_helper.from_array(np.array([1, 2]), "axes")]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["n", "tokens"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])
    graph = helper.make_graph(nodes, "tokens", [ids], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_tokens_get_colors_by_the_sum_over_their_embedding(page):
    model = page.send("tokens.onnx", tokens_model().SerializeToString())["id"]
    result = explained(page, model, sent(page, ids=np.array([[1, 2, 3]])), method="gradient-times-input")["result"]
    (tokens,) = result["attributions"]
    assert tokens["kind"] == "tokens"
    assert tokens["numbered"]
    assert tokens["rows"] == [{"tokens": [1, 2, 3], "parts": [0.0, 4.0, -2.0]}]


def test_a_large_image_is_drawn_smaller():
    from tenonnx_serve.tasks.explain import _smaller

    image = np.arange(300 * 150.0).reshape(300, 150, 1)
    small = _smaller(image)
    assert small.shape == (100, 50, 1)
    np.testing.assert_allclose(small[0, 0], image[:3, :3].mean())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"method": "lime"}, "unknown method"),
        ({"target": "three"}, "not a whole number"),
        ({"seed": "three"}, "not a whole number"),
        ({"method": "grad-cam"}, "no value was given for Grad-CAM"),
        ({"method": "tree-shap"}, "no tree ensemble"),
        ({"of": "nothing"}, "nothing"),
    ],
)
def test_models_that_cannot_be_explained_are_reported(page, options, said):
    job = page.done(task="explain", model=opened(page, "digits_cnn/digits-cnn.onnx"), options=options)
    assert job["state"] == "failed"
    assert said in str(job["error"])


def test_rows_to_compare_with_are_asked_for(page):
    job = page.done(task="explain", model=opened(page, "iris/iris.onnx"), options={"method": "kernel-shap"})
    assert "background rows" in job["error"]["what"]
