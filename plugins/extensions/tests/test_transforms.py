"""Transforms of torchvision and timm as graphs: equal to Pillow and numpy, or refused by name.

The objects imitate names and attributes of torchvision's, so that the tests do not require it.
"""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx_cli.program import program

DRAWN = np.random.default_rng(0)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIZES = [(40, 40), (33, 51), (71, 64), (120, 41), (20, 90), (35, 36)]
TIMM = {"input_size": [3, 28, 28], "crop_pct": 0.875, "interpolation": "bicubic", "mean": MEAN, "std": STD}


def made(name, **fields):
    """An object of a new class with that name."""
    return type(name, (SimpleNamespace,), {})(**fields)


def compose(*transforms):
    return made("Compose", transforms=list(transforms))


def resized(pixels, edge, resample):
    """Resize so that the shortest edge has that length."""
    rows, columns = pixels.shape[:2]
    least = min(rows, columns)
    size = (
        edge if columns <= rows else int(edge * columns / least),
        edge if rows <= columns else int(edge * rows / least),
    )
    return np.asarray(Image.fromarray(pixels).resize(size, resample))


def cropped(pixels, edge):
    """The center crop of an image that is large enough."""
    top, left = (round((size - edge) / 2) for size in pixels.shape[:2])
    return pixels[top : top + edge, left : left + edge]


def normalized(pixels):
    return (pixels.astype(np.float32) / np.float32(255) - np.float32(MEAN)) / np.float32(STD)


def check(graph, expected):
    for rows, columns in SIZES:
        given = DRAWN.integers(0, 256, (rows, columns, 3)).astype(np.uint8)
        result = graph.run({"images": given[None]})["pixel_values"][0].transpose(1, 2, 0)
        np.testing.assert_allclose(result, expected(given), rtol=1e-6, atol=1e-6)


def test_a_compose_of_torchvision():
    graph = tx.image_processor(
        compose(
            made("Resize", size=32, interpolation=SimpleNamespace(value="bilinear"), max_size=None, antialias=True),
            made("CenterCrop", size=(28, 28)),
            compose(made("ToTensor"), made("Normalize", mean=list(MEAN), std=list(STD))),
        )
    )
    check(graph, lambda given: normalized(cropped(resized(given, 32, 2), 28)))
    assert str(graph.outputs[0].type) == "float32[batch, 3, 28, 28]"


def test_a_size_of_two_numbers_and_unscaled_pixels():
    resize = made("Resize", size=[20, 30], interpolation="bicubic", max_size=None)
    graph = tx.image_processor(compose(resize, made("PILToTensor")))
    assert graph.outputs[0].dtype is tx.DType.uint8
    check(graph, lambda given: np.asarray(Image.fromarray(given).resize((30, 20), 3)))


def test_an_image_smaller_than_the_crop_is_padded_with_zeros():
    graph = tx.image_processor(compose(made("CenterCrop", size=27), made("PILToTensor")))
    given = DRAWN.integers(1, 256, (20, 33, 3)).astype(np.uint8)
    result = graph.run({"images": given[None]})["pixel_values"][0].transpose(1, 2, 0)
    np.testing.assert_array_equal(result[3:23], given[:, 3:30])
    assert not result[:3].any()
    assert not result[23:].any()


@pytest.mark.parametrize("is_nested", [True, False])
def test_a_configuration_of_timm(is_nested, tmp_path):
    config = {"architecture": "vit", "pretrained_cfg": TIMM} if is_nested else TIMM
    (tmp_path / "config.json").write_text(json.dumps(config))
    check(tx.image_processor(tmp_path), lambda given: normalized(cropped(resized(given, 32, 3), 28)))


def test_a_configuration_of_timm_in_front_of_a_model(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(TIMM))
    model = tx.Graph(opsets={"ai.onnx": 17})
    model.output("y", ops.reduce_mean(model.input("x", "float32", ("batch", 3, 28, 28)), [2, 3]))
    model.save(tmp_path / "m.onnx")
    arguments = ["compose", str(tmp_path / "config.json"), str(tmp_path / "m.onnx"), "-o", str(tmp_path / "whole.onnx")]
    done = CliRunner().invoke(program, arguments)
    assert done.exit_code == 0, done.output
    given = DRAWN.integers(0, 256, (50, 60, 3)).astype(np.uint8)
    result = tx.load(tmp_path / "whole.onnx").run({"images": given[None]})["y"]
    expected = normalized(cropped(resized(given, 32, 3), 28)).mean((0, 1))
    np.testing.assert_allclose(result.reshape(3), expected, rtol=1e-4)


def test_crop_mode_squash_of_timm(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(TIMM | {"input_size": [3, 14, 28], "crop_mode": "squash"}))

    def expected(given):
        whole = np.asarray(Image.fromarray(given).resize((32, 16), 3))
        return normalized(whole[1:15, 2:30])

    check(tx.image_processor(tmp_path), expected)


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (compose(made("RandomCrop", size=3)), "cannot convert the transform RandomCrop"),
        (compose(made("Resize", size=3, interpolation="bilinear", max_size=9)), "max_size"),
        (compose(made("Resize", size=3, interpolation="area", max_size=None)), "unsupported interpolation"),
        (compose(made("ToTensor"), made("Resize", size=3, interpolation="box", max_size=None)), "Resize of a tensor"),
        (compose(made("ConvertImageDtype", dtype="torch.float16")), "dtype"),
        (compose(made("Normalize", mean=[0.5, 0.5], std=[1, 1])), "three channels"),
        (compose(made("Normalize", mean=[0.5], std=[0.0])), "three channels"),
    ],
)
def test_a_transform_without_a_graph_is_refused(transform, message):
    with pytest.raises(tx.NotRepresentable, match=message):
        tx.image_processor(transform)


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        ({"crop_mode": "border"}, tx.NotRepresentable, "crop_mode"),
        ({"input_size": [3, 14, 28]}, tx.NotRepresentable, "crop_mode"),
        ({"interpolation": "random"}, tx.NotRepresentable, "unsupported interpolation"),
        ({"input_size": [28]}, tx.InvalidModel, "does not describe RGB images"),
        ({"mean": [0.5]}, tx.InvalidModel, "does not describe RGB images"),
        ({"crop_pct": -1}, tx.InvalidModel, "does not describe RGB images"),
    ],
)
def test_a_configuration_of_timm_without_a_graph_is_refused(config, error, message, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(TIMM | config))
    with pytest.raises(error, match=message):
        tx.image_processor(tmp_path)
