"""Detection pipelines from file bytes to labeled boxes, and unsupported detectors."""

import io
import json

import numpy as np
import onnxruntime
import pytest
from click.testing import CliRunner
from PIL import Image

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx_cli.program import program
from tenonnx_extensions.images import decode_image
from tenonnx_onnxruntime import extensions

DRAWN = np.random.default_rng(0)
LABELS = {"0": "cat", "1": "dog", "2": "hen"}
DETR = {"image_processor_type": "DetrImageProcessor", "size": {"shortest_edge": 24, "longest_edge": 40}}


def detector(classes, queries=6):
    """A random detector: means of rows and columns of pixels, multiplied by a matrix."""
    graph = tx.Graph("detector", opsets={"ai.onnx": 17})
    pixels = graph.input("pixel_values", "float32", ("batch", 3, "rows", "columns"))
    with graph.building():
        means = ops.reduce_mean(pixels, [2, 3], keepdims=0)
        for name, size in (("logits", classes), ("pred_boxes", 4)):
            weight = graph.variable(f"{name}/w", DRAWN.normal(size=(3, queries * size)).astype(np.float32) * 3)
            bias = graph.variable(f"{name}/b", DRAWN.normal(size=queries * size).astype(np.float32))
            result = ops.reshape(ops.matmul(means, weight) + bias, np.array([0, queries, size]))
            graph.output(name, result if name == "logits" else ops.sigmoid(result))
    return graph


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def corners(boxes, height, width):
    centers, sizes = boxes[..., :2], boxes[..., 2:]
    return np.concatenate([centers - sizes / 2, centers + sizes / 2], -1) * np.float32([width, height, width, height])


def config(folder, kind):
    (folder / "config.json").write_text(json.dumps({"model_type": kind, "id2label": LABELS}))
    (folder / "preprocessor_config.json").write_text(json.dumps(DETR))


@pytest.mark.parametrize("kind", ["detr", "yolos"])
def test_each_box_has_its_most_probable_class(kind, tmp_path):
    config(tmp_path, kind)
    model = detector(4)
    feeds = {
        "logits": DRAWN.normal(size=(3, 6, 4)).astype(np.float32),
        "pred_boxes": DRAWN.random((3, 6, 4), np.float32),
    }
    result = tx.decoder("detection", tmp_path, model=model, threshold=0.3).run(
        feeds | {"image_size": np.array([20, 50])}
    )
    shares = softmax(feeds["logits"])[..., :-1]
    best = shares.max(-1)
    images, places = np.nonzero(best > 0.3)
    assert 0 < len(images) < best.size
    np.testing.assert_allclose(result["scores"], best[images, places], rtol=1e-5)
    assert result["labels"].tolist() == [LABELS[str(k)] for k in shares.argmax(-1)[images, places]]
    np.testing.assert_allclose(
        result["boxes"], corners(feeds["pred_boxes"], 20, 50)[images, places], rtol=1e-4, atol=1e-4
    )
    np.testing.assert_array_equal(result["images"], images)


@pytest.mark.parametrize(("kind", "count"), [("rt_detr", 6), ("deformable_detr", 18)])
def test_pairs_of_a_box_and_a_class_compete(kind, count, tmp_path):
    config(tmp_path, kind)
    feeds = {
        "logits": DRAWN.normal(size=(2, 6, 3)).astype(np.float32),
        "pred_boxes": DRAWN.random((2, 6, 4), np.float32),
    }
    graph = tx.decoder("detection", tmp_path, model=detector(3), threshold=0.5)
    result = graph.run(feeds | {"image_size": np.array([20, 50])})
    shares = 1 / (1 + np.exp(-feeds["logits"].reshape(2, -1)))
    order = np.argsort(-shares, axis=1)[:, :count]
    pairs = [(image, pair) for image in range(2) for pair in order[image] if shares[image, pair] > 0.5]
    np.testing.assert_allclose(result["scores"], [shares[pair] for pair in pairs], rtol=1e-5)
    assert result["labels"].tolist() == [LABELS[str(pair % 3)] for _, pair in pairs]
    boxes = corners(feeds["pred_boxes"], 20, 50)
    np.testing.assert_allclose(result["boxes"], [boxes[i, pair // 3] for i, pair in pairs], rtol=1e-4, atol=1e-4)


def test_detection_from_file_bytes_to_boxes(tmp_path):
    config(tmp_path, "detr")
    model = detector(4)
    model.save(tmp_path / "m.onnx")
    arguments = ["compose", str(tmp_path), str(tmp_path / "m.onnx"), "-o", str(tmp_path / "whole.onnx"), "--encoded"]
    done = CliRunner().invoke(program, [*arguments, "--decode", "detection", "--threshold", "0.2"])
    assert done.exit_code == 0, done.output
    whole = tx.load(tmp_path / "whole.onnx")
    pixels = DRAWN.integers(0, 256, (30, 46, 3)).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    result = whole.run({"image": np.frombuffer(stream.getvalue(), np.uint8)})
    outputs = model.run({"pixel_values": tx.image_processor(tmp_path).run({"images": pixels[None]})["pixel_values"]})
    decoded = tx.decoder("detection", tmp_path, model=model, threshold=0.2)
    expected = decoded.run(outputs | {"image_size": np.array([30, 46])})
    assert len(expected["labels"])
    assert result["labels"].tolist() == expected["labels"].tolist()
    np.testing.assert_allclose(result["boxes"], expected["boxes"], rtol=1e-4, atol=1e-3)
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(extensions.library())
    session = onnxruntime.InferenceSession(tmp_path / "whole.onnx", options)
    results = dict(
        zip(result, session.run(list(result), {"image": np.frombuffer(stream.getvalue(), np.uint8)}), strict=True)
    )
    assert results["labels"].tolist() == expected["labels"].tolist()


def test_models_without_boxes_are_refused(tmp_path):
    config(tmp_path, "mask2former")
    with pytest.raises(tx.NotRepresentable, match=r"(?s)model_type has no decoder.*mask2former"):
        tx.decoder("detection", tmp_path, model=detector(4))
    config(tmp_path, "detr")
    with pytest.raises(tx.InvalidModel, match="3 names for 4 classes"):
        tx.decoder("detection", tmp_path, model=detector(5))
    with pytest.raises(tx.InvalidCall, match="threshold lies outside"):
        tx.decoder("detection", tmp_path, model=detector(4), threshold=1)
    model = detector(4)
    model.outputs[1].name = "boxes"
    with pytest.raises(tx.InvalidCall, match="no outputs that are decoded for detection"):
        tx.decoder("detection", tmp_path, model=model)
    model.save(tmp_path / "m.onnx")
    for option in (["--threshold", "0.5"], ["--decode", "segmentation", "--threshold", "0.5"]):
        done = CliRunner().invoke(
            program, ["compose", str(tmp_path), str(tmp_path / "m.onnx"), "-o", "w.onnx", *option]
        )
        assert (done.exit_code, "--threshold was given without" in done.output) == (2, True)


@pytest.mark.parametrize("contents", [b"", b"GIF89a", b"\x89PNG\r\n\x1a\n" + bytes(20), b"\xff\xd8\xff" + bytes(9)])
def test_invalid_image_bytes_are_refused(contents):
    with pytest.raises(tx.TypeMismatch, match="cannot decode the bytes as JPEG or PNG"):
        decode_image(np.frombuffer(contents, np.uint8))
