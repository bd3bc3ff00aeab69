"""Letterboxes before YOLO, and boxes from YOLO and SSD heads, compared with numpy."""

import io
import json
import os

import numpy as np
import onnxruntime
import pytest
from click.testing import CliRunner
from PIL import Image

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx_cli.program import program
from tenonnx_extensions.pipelines.heads import priors_of
from tenonnx_onnxruntime import extensions

DRAWN = np.random.default_rng(0)
NAMES = ["cat", "dog", "hen"]
BACKENDS = ["numpy", "onnxruntime"]


def yolo(shape, frame=(32, 48), names=NAMES):
    """A model whose output depends only on the mean of its images."""
    graph = tx.Graph("yolo", opsets={"ai.onnx": 17})
    images = graph.input("images", "float32", ("batch", 3, *frame))
    with graph.building():
        mean = ops.reduce_mean(images, [1, 2, 3], keepdims=1)
        graph.output("output0", ops.squeeze(mean, [1]) * np.float32(0) + head_of(shape))
    if names:
        graph.metadata["names"] = str(dict(enumerate(names)))
    return graph


def head_of(shape):
    drawn = np.random.default_rng(shape[-1])
    boxes = min(shape[1:])
    by_box = drawn.random((1, max(shape[1:]), boxes)).astype(np.float32)
    by_box[..., :4] *= np.float32([48, 32, 30, 20])
    return by_box if shape[2] == boxes else by_box.transpose(0, 2, 1)


def archive_of(**arrays):
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def overlap(one, others):
    start, end = np.maximum(one[:2], others[:, :2]), np.minimum(one[2:], others[:, 2:])
    inner = np.clip(end - start, 0, None).prod(-1)
    return inner / ((one[2:] - one[:2]).prod() + (others[:, 2:] - others[:, :2]).prod(-1) - inner)


def suppressed(corners, scores, threshold):
    """Indices of boxes after non-maximum suppression, best first; ``scores`` are of one class."""
    order = [k for k in np.argsort(-scores, kind="stable") if scores[k] > threshold]
    kept = []
    while order:
        first, order = order[0], order[1:]
        kept.append(first)
        order = [k for k, part in zip(order, overlap(corners[first], corners[order]), strict=True) if part <= 0.45]
    return kept


def corners_of(boxes):
    return np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], axis=1)


def expected_of(by_box, threshold, size, frame, boxed):
    """Scores, labels and boxes of one image, like in ultralytics."""
    classes = by_box[:, -3:] * (by_box[:, 4:5] if by_box.shape[1] == 8 else 1)
    corners, best = corners_of(by_box[:, :4]), classes.argmax(1)
    result = []
    for label in range(3):
        of_label = np.where(best == label, classes[:, label], 0)
        result += [(of_label[k], NAMES[label], k) for k in suppressed(corners, of_label, threshold)]
    result.sort(key=lambda each: -each[0])
    if boxed:
        scale = min(frame[0] / size[0], frame[1] / size[1])
        inner = [round(each * scale) for each in size]
        top, left = (round((whole - each) / 2 - 0.1) for whole, each in zip(frame, inner, strict=True))
        moved = (corners - [left, top, left, top]) / scale
    else:
        moved = corners * (np.array([size[1], size[0]] * 2) / ([frame[1], frame[0]] * 2))
    return result, np.clip(moved, 0, [size[1], size[0]] * 2)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("boxed", [True, False])
@pytest.mark.parametrize("shape", [(1, 7, 60), (1, 60, 8), (1, 60, 7)])
def test_boxes_of_yolo(shape, boxed, backend, tmp_path):
    graph = tx.decoder("detection", tmp_path, model=yolo(shape), threshold=0.25, letterbox=boxed)
    head, size = head_of(shape), (50, 40)
    result = graph.run({"output0": head, "image_size": np.array(size)}, backend=backend)
    by_box = head[0] if shape[2] < shape[1] else head[0].T
    expected, boxes = expected_of(by_box, 0.25, size, (32, 48), boxed)
    assert 3 < len(expected) < 60
    assert result["labels"].tolist() == [label for _, label, _ in expected]
    np.testing.assert_allclose(result["scores"], [score for score, _, _ in expected], rtol=1e-5)
    np.testing.assert_allclose(result["boxes"], boxes[[k for *_, k in expected]], rtol=1e-4, atol=1e-3)
    assert not result["images"].any()


def test_images_are_sorted_by_their_scores(tmp_path):
    graph = tx.decoder("detection", tmp_path, model=yolo((1, 60, 7)), threshold=0.25)
    head = np.concatenate([head_of((1, 60, 7)), head_of((1, 60, 7))[:, ::-1] * np.float32(0.9)])
    result = graph.run({"output0": head, "image_size": np.array([32, 48])})
    assert result["images"].tolist() == sorted(result["images"].tolist())
    for image in (0, 1):
        scores = result["scores"][result["images"] == image]
        assert len(scores)
        assert scores.tolist() == sorted(scores, reverse=True)


@pytest.mark.parametrize("with_priors", [True, False])
def test_boxes_of_ssd(with_priors, tmp_path):
    count = 40
    priors = np.concatenate([DRAWN.random((count, 2)), DRAWN.uniform(0.1, 0.5, (count, 2))], axis=1).astype(np.float32)
    logits = (DRAWN.normal(size=(1, count, 4)) * 2).astype(np.float32)
    offsets = DRAWN.normal(size=(1, count, 4)).astype(np.float32)
    centers = priors[:, :2] + offsets[0, :, :2] * np.float32(0.1) * priors[:, 2:]
    corners = corners_of(np.concatenate([centers, priors[:, 2:] * np.exp(offsets[0, :, 2:] * np.float32(0.2))], axis=1))
    config = {"model_type": "ssd", "id2label": dict(enumerate(NAMES))}
    if with_priors:
        np.save(tmp_path / "priors.npy", priors)
        config["priors"] = "priors.npy"
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = tx.Graph(opsets={"ai.onnx": 17})
    for name, size in (("logits", 4), ("pred_boxes", 4)):
        model.output(name, ops.relu(model.input(f"{name}/in", "float32", ("batch", count, size))))
    graph = tx.decoder("detection", tmp_path, model=model, threshold=0.3)
    boxes = offsets if with_priors else corners[None]
    result = graph.run({"logits": logits, "pred_boxes": boxes, "image_size": np.array([20, 50])})
    shares = np.exp(logits[0]) / np.exp(logits[0]).sum(-1, keepdims=True)
    pixels = np.clip(corners * [50, 20, 50, 20], 0, [50, 20, 50, 20])
    expected = [
        (shares[k, label + 1], NAMES[label], k)
        for label in range(3)
        for k in suppressed(pixels, shares[:, label + 1], 0.3)
    ]
    expected.sort(key=lambda each: -each[0])
    assert len(expected) > 3
    assert result["labels"].tolist() == [label for _, label, _ in expected]
    np.testing.assert_allclose(result["boxes"], pixels[[k for *_, k in expected]], rtol=1e-4, atol=1e-3)


def bilinear(pixels, height, width):
    """Pixels resized without antialiasing, like cv2.INTER_LINEAR except for fixed-point arithmetic."""
    result = pixels.astype(float)
    for axis, size in ((0, height), (1, width)):
        at = np.clip((np.arange(size) + 0.5) * result.shape[axis] / size - 0.5, 0, result.shape[axis] - 1)
        low = np.minimum(at.astype(int), max(result.shape[axis] - 2, 0))
        part = (at - low).reshape((-1, 1, 1) if axis == 0 else (1, -1, 1))
        high = np.minimum(low + 1, result.shape[axis] - 1)
        result = np.take(result, low, axis) * (1 - part) + np.take(result, high, axis) * part
    return result


@pytest.mark.parametrize("size", [(50, 40), (20, 90), (32, 48), (7, 9), (33, 95)])
def test_a_letterbox(size):
    graph = tx.image_processor("letterbox", model=yolo((1, 60, 7)))
    given = DRAWN.integers(0, 256, (*size, 3)).astype(np.uint8)
    result = next(iter(graph.run({"images": given[None]}, backend="onnxruntime").values()))[0].transpose(1, 2, 0)
    scale = min(32 / size[0], 48 / size[1])
    rows, columns = round(size[0] * scale), round(size[1] * scale)
    top, left = round((32 - rows) / 2 - 0.1), round((48 - columns) / 2 - 0.1)
    expected = np.full((32, 48, 3), 114.0)
    expected[top : top + rows, left : left + columns] = bilinear(given, rows, columns)
    np.testing.assert_allclose(result * 255, expected, atol=0.51)


@pytest.mark.parametrize("encoded", [False, True])
def test_one_file_from_pixels_or_bytes_to_boxes(encoded, tmp_path):
    yolo((1, 60, 8)).save(tmp_path / "yolo.onnx")
    arguments = ["compose", "letterbox", str(tmp_path / "yolo.onnx"), "-o", str(tmp_path / "whole.onnx")]
    arguments += ["--decode", "detection", "--threshold", "0.25", *(["--encoded"] if encoded else [])]
    done = CliRunner().invoke(program, arguments)
    assert done.exit_code == 0, done.output
    pixels = DRAWN.integers(0, 256, (50, 40, 3)).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    feeds = {"image": np.frombuffer(stream.getvalue(), np.uint8)} if encoded else {"images": pixels[None]}
    expected, boxes = expected_of(head_of((1, 60, 8))[0], 0.25, (50, 40), (32, 48), True)
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(extensions.library())
    session = onnxruntime.InferenceSession(tmp_path / "whole.onnx", options)
    labels, result = session.run(["labels", "boxes"], feeds)
    assert labels.tolist() == [label for _, label, _ in expected]
    np.testing.assert_allclose(result, boxes[[k for *_, k in expected]], rtol=1e-4, atol=1e-3)


def test_mismatched_models_and_options_are_refused(tmp_path):
    with pytest.raises(tx.InvalidCall, match="a letterbox has no size"):
        tx.image_processor("letterbox")
    with pytest.raises(tx.InvalidCall, match="no single input of images of a known size"):
        tx.image_processor("letterbox", model=yolo((1, 60, 7), frame=("rows", "columns")))
    with pytest.raises(tx.InvalidModel, match="do not fit the model's output"):
        tx.decoder("detection", tmp_path, model=yolo((1, 60, 12)))
    with pytest.raises(tx.InvalidModel, match="cannot read"):
        tx.decoder("detection", tmp_path, model=yolo((1, 60, 7), names=()))
    broken = yolo((1, 60, 7))
    broken.metadata["names"] = "{0: 'a', 2: 'b'}"
    with pytest.raises(tx.InvalidModel, match="cannot read"):
        tx.decoder("detection", tmp_path, model=broken)


@pytest.mark.parametrize(
    ("priors", "message"),
    [
        (None, "cannot read"),
        (np.zeros((3, 4), np.float32), "number of priors"),
        (np.zeros((40, 3), np.float32), "wrong shape"),
        (np.zeros((40, 4), np.int64), "wrong shape"),
        (np.array([None]), "cannot read"),
    ],
)
def test_invalid_priors_are_refused(priors, message, tmp_path):
    config = {"model_type": "ssd", "id2label": dict(enumerate(NAMES)), "priors": "priors.npy"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    if priors is not None:
        np.save(tmp_path / "priors.npy", priors)
    model = tx.Graph(opsets={"ai.onnx": 17})
    for name in ("logits", "pred_boxes"):
        model.output(name, ops.relu(model.input(f"{name}/in", "float32", ("batch", 40, 4))))
    with pytest.raises(tx.InvalidModel, match=message):
        tx.decoder("detection", tmp_path, model=model)


@pytest.mark.parametrize("kind", ["outside", "link", "pipe", "archive", "empty"])
def test_unreadable_files_of_priors(kind, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    path, outside = folder / "priors.npy", tmp_path / "outside.npy"
    np.save(outside, np.zeros((40, 4), np.float32))
    make = {
        "outside": lambda: None,
        "link": lambda: path.symlink_to(outside),
        "pipe": lambda: os.mkfifo(path),
        "archive": lambda: path.write_bytes(archive_of(priors=np.zeros((40, 4), np.float32))),
        "empty": path.touch,
    }
    make[kind]()
    location = "../outside.npy" if kind == "outside" else "priors.npy"
    boxes = tx.Graph(opsets={"ai.onnx": 17}).input("boxes", "float32", ("batch", 40, 4))
    with pytest.raises(tx.InvalidModel if kind in ("archive", "empty") else tx.UnsafePath):
        priors_of({"priors": location}, folder, boxes)


def test_colors_of_classes():
    model = tx.Graph(opsets={"ai.onnx": 17})
    model.output("logits", ops.relu(model.input("x", "float32", ("batch", 21, 4, 4))))
    logits = np.full((1, 21, 4, 4), -1, np.float32)
    classes = np.arange(16).reshape(4, 4)
    np.put_along_axis(logits, classes[None, None], 1, axis=1)
    result = tx.decoder("segmentation", ".", model=model, colors=True).run(
        {"logits": logits, "image_size": np.array([4, 4])}
    )
    assert result["colors"].dtype == np.uint8
    # The first colors of Pascal VOC: background, aeroplane, bicycle, bird, boat, bottle, bus, car, cat.
    known = [(0, 0, 0), (128, 0, 0), (0, 128, 0), (128, 128, 0), (0, 0, 128), (128, 0, 128), (0, 128, 128)]
    known += [(128, 128, 128), (64, 0, 0)]
    assert result["colors"][0].reshape(-1, 3)[:9].tolist() == [list(color) for color in known]
