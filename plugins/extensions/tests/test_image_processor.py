"""Image processor graphs: equal to Pillow and numpy, connected to models, and unsupported configurations."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx_cli.program import program
from tenonnx_extensions.pipelines.resampling import FILTERS, resize

DRAWN = np.random.default_rng(0)
BACKENDS = ["numpy", "onnxruntime"]


def image(height, width):
    return DRAWN.integers(0, 256, (height, width, 3)).astype(np.uint8)


def resized(pixels, height, width, resample):
    return np.asarray(Image.fromarray(pixels).resize((width, height), resample))


def cropped(pixels, height, width):
    """The center crop, in a large enough frame of zeros."""
    rows, columns = pixels.shape[:2]
    framed = np.zeros((max(rows, height), max(columns, width), 3), np.uint8)
    top, left = -(-(framed.shape[0] - rows) // 2), -(-(framed.shape[1] - columns) // 2)
    framed[top : top + rows, left : left + columns] = pixels
    top, left = (framed.shape[0] - height) // 2, (framed.shape[1] - width) // 2
    return framed[top : top + height, left : left + width]


def rescaled(pixels, factor=1 / 255):
    return (pixels.astype(np.float64) * factor).astype(np.float32)


def normalized(pixels, mean, std):
    return (pixels.astype(np.float32) - np.array(mean, np.float32)) / np.array(std, np.float32)


def processor(folder, **config):
    (folder / "preprocessor_config.json").write_text(json.dumps(config))
    return tx.image_processor(folder)


def pixels_of(graph, given, backend="onnxruntime"):
    return graph.run({"images": given[None]}, backend=backend)["pixel_values"][0].transpose(1, 2, 0)


# ----- steps ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("resample", [0, *FILTERS])
def test_resizing_equals_pillow(resample, backend):
    graph = tx.Graph(opsets={"ai.onnx": 17})
    images = graph.input("images", "float64", (1, 3, "rows", "columns"))
    sizes = [graph.input(name, "int64", ()) for name in ("height", "width")]
    with graph.building():
        graph.output("resized", resize(images, *sizes, resample))
    few_rows, few_columns = (200, 60, 31, 50), (60, 200, 50, 31)  # first the row pass, then the column pass
    for rows, columns, height, width in [few_rows, few_columns, (1, 1, 7, 9), *DRAWN.integers(1, 150, (12, 4))]:
        given = image(rows, columns)
        feeds = {"images": given.transpose(2, 0, 1)[None].astype(float), "height": height, "width": width}
        result = graph.run({name: np.asarray(value) for name, value in feeds.items()}, backend=backend)["resized"]
        expected = resized(given, int(height), int(width), resample)
        np.testing.assert_array_equal(result[0].transpose(1, 2, 0), expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_shortest_edge_and_crop(backend, tmp_path):
    graph = processor(tmp_path, image_processor_type="CLIPImageProcessor", size=40, crop_size=32)
    mean, std = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
    for rows, columns in [(40, 40), (33, 50), (71, 64), (300, 41), (20, 90)]:
        given = image(rows, columns)
        least = min(rows, columns)
        height, width = (40, 40 * columns // least) if rows <= columns else (40 * rows // least, 40)
        expected = normalized(rescaled(cropped(resized(given, height, width, 3), 32, 32)), mean, std)
        np.testing.assert_array_equal(pixels_of(graph, given, backend), expected)
    assert str(graph.outputs[0].type) == "float32[batch, 3, 32, 32]"


@pytest.mark.parametrize(("height", "width"), [(31, 64), (64, 30), (51, 71), (20, 20)])
def test_a_crop_of_a_small_image_is_padded_with_zeros(height, width, tmp_path):
    config = {"do_resize": False, "do_rescale": False, "do_normalize": False, "do_center_crop": True}
    graph = processor(tmp_path, image_processor_type="ViTImageProcessor", crop_size=[height, width], **config)
    for rows, columns in [(50, 50), (31, 80), (80, 31)]:
        given = image(rows, columns)
        result = pixels_of(graph, given)
        assert result.dtype == np.uint8
        np.testing.assert_array_equal(result, cropped(given, height, width))


def test_images_of_one_size_are_a_batch(tmp_path):
    graph = processor(
        tmp_path, feature_extractor_type="ViTFeatureExtractor", size=24, image_mean=0.4, image_std=[0.5] * 3
    )
    given = np.stack([image(30, 40) for _ in range(3)])
    result = graph.run({"images": given}, backend="onnxruntime")["pixel_values"]
    for row, each in zip(result, given, strict=True):
        expected = normalized(rescaled(resized(each, 24, 24, 2)), [0.4] * 3, [0.5] * 3)
        np.testing.assert_array_equal(row.transpose(1, 2, 0), expected)


@pytest.mark.parametrize(
    ("rows", "columns", "height", "width"),  # 79 as 80 * 50 / 333 * 333 / 50 is just below 80
    [(60, 90, 40, 60), (90, 60, 60, 40), (40, 70, 40, 70), (30, 120, 20, 80), (50, 333, 12, 79)],
)
def test_padding_and_its_mask(rows, columns, height, width, tmp_path):
    config = {"size": {"shortest_edge": 40, "longest_edge": 80}, "pad_size": {"height": 80, "width": 81}}
    graph = processor(tmp_path, image_processor_type="DetrImageProcessor", **config)
    given = image(rows, columns)
    result = graph.run({"images": given[None]}, backend="onnxruntime")
    expected = np.zeros((80, 81, 3), np.float32)
    inside = resized(given, height, width, 2)
    expected[:height, :width] = normalized(rescaled(inside), (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    np.testing.assert_array_equal(result["pixel_values"][0].transpose(1, 2, 0), expected)
    np.testing.assert_array_equal(
        result["pixel_mask"][0], np.pad(np.ones((height, width)), ((0, 80 - height), (0, 81 - width)))
    )


def test_sizes_within_limits_and_multiples_of_a_size(tmp_path):
    config = {"do_rescale": False, "do_normalize": False, "do_pad": False}
    box = {"max_height": 40, "max_width": 50}
    graph = processor(tmp_path, image_processor_type="DetrImageProcessor", size=box, **config)
    assert pixels_of(graph, image(80, 60)).shape == (40, 30, 3)
    assert pixels_of(graph, image(20, 100)).shape == (10, 50, 3)
    graph = processor(tmp_path, image_processor_type="YolosImageProcessor", size=50, max_size=90, **config)
    assert pixels_of(graph, image(100, 130)).shape == (48, 64, 3)
    assert pixels_of(graph, image(100, 300)).shape == (16, 80, 3)


def test_settings_of_single_processor_classes(tmp_path):
    given = image(60, 80)
    plain = {"do_normalize": False}
    graph = processor(tmp_path, image_processor_type="ConvNextImageProcessor", size={"shortest_edge": 28}, **plain)
    expected = cropped(resized(given, 32, 42, 3), 28, 28)
    np.testing.assert_array_equal(pixels_of(graph, given), rescaled(expected))
    graph = processor(tmp_path, image_processor_type="ConvNextImageProcessorFast", size={"shortest_edge": 384}, **plain)
    np.testing.assert_array_equal(pixels_of(graph, given), rescaled(resized(given, 384, 384, 3)))
    sizes = {"size": {"shortest_edge": 28}, "crop_size": 24}
    graph = processor(tmp_path, image_processor_type="LevitImageProcessor", **sizes, **plain)
    np.testing.assert_array_equal(pixels_of(graph, given), rescaled(cropped(resized(given, 32, 42, 3), 24, 24)))
    graph = processor(tmp_path, image_processor_type="PoolFormerImageProcessor", crop_pct=0.8, **sizes, **plain)
    np.testing.assert_array_equal(pixels_of(graph, given), rescaled(cropped(resized(given, 35, 46, 3), 24, 24)))
    graph = processor(tmp_path, image_processor_type="MobileViTImageProcessor", **sizes)
    expected = rescaled(cropped(resized(given, 28, 37, 3), 24, 24))[..., ::-1]
    np.testing.assert_array_equal(pixels_of(graph, given), expected)
    graph = processor(tmp_path, image_processor_type="EfficientNetImageProcessor", size=20, rescale_offset=True)
    expected = normalized(rescaled(resized(given, 20, 20, 3)) - np.float32(1), [0.5] * 3, [0.5] * 3) / np.float32(0.5)
    np.testing.assert_array_equal(pixels_of(graph, given), expected)


# ----- in front of models ---------------------------------------------------------------------------------------------


def model(labels, rank, dtype="float32", name="pixel_values"):
    """Scores from the means of channels, or a map of scores of half the size."""
    graph = tx.Graph("model", opsets={"ai.onnx": 17})
    pixels = graph.input(name, dtype, ("batch", 3, 16, 16))
    weights = DRAWN.standard_normal((labels, 3)).astype(dtype)
    if rank == 2:
        graph.output("logits", ops.reduce_mean(pixels, [2, 3], keepdims=0) @ weights.T)
    else:
        graph.output("logits", ops.conv(pixels, weights[:, :, None, None], strides=[2, 2]))
    return graph


def composed(folder, graph, *options, **config):
    (folder / "preprocessor_config.json").write_text(json.dumps(config))
    graph.save(folder / "model.onnx")
    arguments = ["compose", str(folder), str(folder / "model.onnx"), "-o", str(folder / "whole.onnx"), *options]
    done = CliRunner().invoke(program, arguments)
    assert done.exit_code == 0, done.output
    return tx.load(folder / "whole.onnx")


VIT = {"image_processor_type": "ViTImageProcessor", "size": 16}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", ["single_label_classification", "multi_label_classification"])
def test_classification_in_one_file(kind, backend, tmp_path):
    names = [f"class {k}" for k in range(7)]
    (tmp_path / "config.json").write_text(json.dumps({"id2label": dict(enumerate(names)), "problem_type": kind}))
    graph = model(7, 2, name="input")
    whole = composed(tmp_path, graph, "--decode", "classification", **VIT)
    assert [value.name for value in whole.inputs] == ["images"]
    assert [value.name for value in whole.outputs] == ["scores", "labels"]
    given = image(50, 31)
    result = whole.run({"images": given[None]}, backend=backend)
    pixels = normalized(rescaled(resized(given, 16, 16, 2)), [0.5] * 3, [0.5] * 3).transpose(2, 0, 1)[None]
    logits = graph.run({"input": pixels}, backend="numpy")["logits"][0].astype(float)
    expected = np.exp(logits) / np.exp(logits).sum() if kind.startswith("single") else 1 / (1 + np.exp(-logits))
    order = np.argsort(-expected)[:5]
    np.testing.assert_allclose(result["scores"][0], expected[order], rtol=1e-4)
    assert result["labels"][0].tolist() == [names[k] for k in order]


@pytest.mark.parametrize("backend", BACKENDS)
def test_segmentation_in_one_file(backend, tmp_path):
    graph = model(4, 4)
    whole = composed(tmp_path, graph, "--decode", "segmentation", **VIT)
    assert [value.name for value in whole.outputs] == ["segmentation"]
    given = resized(image(4, 4), 45, 30, 2)
    result = whole.run({"images": given[None]}, backend=backend)["segmentation"][0]
    pixels = normalized(rescaled(resized(given, 16, 16, 2)), [0.5] * 3, [0.5] * 3).transpose(2, 0, 1)[None]
    scores = graph.run({"pixel_values": pixels}, backend="numpy")["logits"][0].astype(float)
    for axis, size in ((1, 45), (2, 30)):
        at = np.clip((np.arange(size) + 0.5) * scores.shape[axis] / size - 0.5, 0, scores.shape[axis] - 1)
        low = np.minimum(at.astype(int), scores.shape[axis] - 2)
        part = (at - low).reshape((-1, 1) if axis == 1 else (1, -1))
        scores = np.take(scores, low, axis) * (1 - part) + np.take(scores, low + 1, axis) * part
    first, second = np.sort(scores, axis=0)[[-1, -2]]
    clear = first - second > 1e-4
    assert clear.mean() > 0.9
    assert result.shape == (45, 30)
    np.testing.assert_array_equal(result[clear], scores.argmax(0)[clear])


def test_pixels_in_the_type_of_the_model(tmp_path):
    whole = composed(tmp_path, model(3, 2, "float16"), **VIT)
    assert whole.run({"images": image(20, 20)[None]}, backend="numpy")["logits"].dtype == np.float16


def test_a_model_of_another_size_or_without_pixels_is_refused(tmp_path):
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(VIT | {"size": 20}))
    graph = model(3, 2)
    with pytest.raises(tx.InvalidCall, match="does not accept"):
        tx.compose(tx.image_processor(tmp_path, model=graph), graph)
    other = tx.Graph(opsets={"ai.onnx": 17})
    other.output("y", ops.relu(other.input("x", "float32", (2,))))
    with pytest.raises(tx.InvalidCall, match="reads none of the image processor's outputs"):
        tx.image_processor(tmp_path, model=other)


def test_undecodable_models_are_refused(tmp_path):
    with pytest.raises(tx.InvalidCall, match="unknown task"):
        tx.decoder("depth", tmp_path, model=model(3, 2))
    with pytest.raises(tx.InvalidCall, match="no output logits of 4 dims"):
        tx.decoder("segmentation", tmp_path, model=model(3, 2))
    with pytest.raises(tx.InvalidModel, match="cannot read"):
        tx.decoder("classification", tmp_path, model=model(3, 2))
    for config, message in [
        ({}, "has no id2label"),
        ({"id2label": {"one": "a"}}, "has no id2label"),
        ({"id2label": {"1": "a"}}, "has no id2label"),
        ({"id2label": {"0": "a", "1": "b"}}, "does not match the model"),
    ]:
        (tmp_path / "config.json").write_text(json.dumps(config))
        with pytest.raises(tx.InvalidModel, match=message):
            tx.decoder("classification", tmp_path, model=model(3, 2))
    model(3, 2).save(tmp_path / "m.onnx")
    arguments = ["compose", *[str(tmp_path / "m.onnx")] * 2, "-o", str(tmp_path / "w.onnx"), "--decode", "segmentation"]
    done = CliRunner().invoke(program, arguments)
    assert done.exit_code == 2
    assert "--decode was given without an image processor" in done.output


# ----- configurations without a graph ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"image_processor_type": "Pix2StructImageProcessor"}, "image_processor_type"),
        ({"size": {"longest_edge": 20}}, "size"),
        ({"size": {"height": 20}}, "size"),
        ({"resample": 9}, "resample"),
        ({"resample": True}, "resample"),
        ({"do_thumbnail": True}, "do_thumbnail"),
        ({"crop_pct": 0.9}, "crop_pct"),
        ({"size_divisor": 32}, "size_divisor"),
        ({"data_format": "channels_last"}, "data_format"),
        ({"image_processor_type": "DPTImageProcessor", "keep_aspect_ratio": True}, "keep_aspect_ratio"),
        ({"image_processor_type": "DPTImageProcessor", "ensure_multiple_of": 32}, "ensure_multiple_of"),
        ({"image_processor_type": "ConvNextImageProcessor", "size": {"height": 9, "width": 9}}, "size"),
        ({"image_processor_type": "ConvNextImageProcessor", "do_center_crop": True, "crop_size": 9}, "do_center_crop"),
    ],
)
def test_a_setting_without_a_graph_is_refused_by_its_key(config, key, tmp_path):
    with pytest.raises(tx.NotRepresentable, match=f"unsupported setting of the image processor: {key}"):
        processor(tmp_path, **VIT | config)


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"size": -1}, "size"),
        ({"size": "224"}, "size"),
        ({"size": {"height": 2.5, "width": 3}}, "size"),
        ({"image_mean": [0.5, 0.5]}, "image_mean"),
        ({"image_std": ["a", "b", "c"]}, "image_std"),
        ({"rescale_factor": 0}, "rescale_factor"),
        ({"do_center_crop": True}, "crop_size"),
    ],
)
def test_a_wrong_value_is_refused_by_its_key(config, key, tmp_path):
    with pytest.raises(tx.InvalidModel, match=f"wrong value of {key}"):
        processor(tmp_path, **VIT | config)


def test_invalid_files_are_refused(tmp_path):
    with pytest.raises(tx.InvalidModel, match="cannot read"):
        tx.image_processor(tmp_path)
    with pytest.raises(tx.InvalidModel, match="lacks the type of the image processor"):
        processor(tmp_path, size=3)
    (tmp_path / "preprocessor_config.json").write_text("{")
    with pytest.raises(tx.InvalidModel, match="is not JSON"):
        tx.image_processor(tmp_path)
