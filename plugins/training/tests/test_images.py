"""A folder of images for each class, as data of the Python API and of the command line."""

import json

import numpy as np
import pytest
from PIL import Image
from trained_models import digits, linear

import tenonnx as tx
import tenonnx_standard as ops
import tenonnx_training as tt
from tenonnx.errors import InvalidCall, InvalidFeed
from tenonnx_cli import main
from tenonnx_training.images import fitted


def model(channels=3, *, last=False, sides=(4, 6), classes=2, dtype="float32"):
    """A model that returns pixel sums as class scores."""
    graph = tx.Graph("sums", opsets={"ai.onnx": 21})
    shape = ("batch", *sides, channels) if last else ("batch", channels, *sides)
    x = graph.input("x", dtype, shape)
    w = graph.variable("w", np.linspace(-1, 1, channels * classes, dtype=np.float32).reshape(channels, classes))
    means = ops.reduce_mean(ops.cast(x, to=1), [1, 2] if last else [2, 3], keepdims=0)
    graph.output("y", means @ w)
    return graph


def saved(folder, sizes, *, channels=3, suffix="png", seed=0):
    """Write images of these sizes (height, width) by class."""
    random = np.random.default_rng(seed)
    for name, shapes in sizes.items():
        (folder / name).mkdir(parents=True)
        for k, shape in enumerate(shapes):
            pixels = random.integers(0, 256, (*shape, 3)[: 3 if channels == 3 else 2], np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{k}.{suffix}")
    return folder


def feeds(folder, graph, **options):
    result = tt.ImageFolder.of(folder).feeds(graph, **options)
    return result["x"][np.arange(len(result["x"]))], result["labels"]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
def test_images_are_what_the_model_takes(tmp_path, last, dtype):
    folder = saved(tmp_path, {"dog": [(4, 6)], "cat": [(4, 6), (4, 6)]})
    x, labels = feeds(folder, model(last=last, dtype=dtype))
    assert labels.tolist() == [0, 0, 1]
    pixels = np.asarray(Image.open(folder / "dog" / "0.png")).astype(np.float64)
    expected = pixels if last else pixels.transpose(2, 0, 1)
    assert x.dtype == dtype
    np.testing.assert_allclose(x[2], expected if dtype == "uint8" else expected / 255, atol=1e-3)


def test_channels_are_normalized(tmp_path):
    folder = saved(tmp_path, {"a": [(4, 6)], "b": [(4, 6)]})
    plain, _ = feeds(folder, model())
    x, _ = feeds(folder, model(), mean=(0.5, 0.25, 0), std=(0.5,))
    np.testing.assert_allclose(x, (plain - np.float32([[[0.5]], [[0.25]], [[0]]])) / 0.5, atol=1e-6)


@pytest.mark.parametrize(("height", "width"), [(20, 31), (9, 9), (3, 4), (4, 60)])
def test_images_are_scaled_as_by_pillow_and_cut(height, width):
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    factor = max(8 / height, 12 / width)
    sides = max(round(height * factor), 8), max(round(width * factor), 12)
    whole = np.asarray(Image.fromarray(pixels).resize(sides[::-1], Image.Resampling.BILINEAR), np.float64)
    top, left = (sides[0] - 8) // 2, (sides[1] - 12) // 2
    result = fitted(pixels, (8, 12))
    assert result.shape == (8, 12, 3)
    assert np.abs(result - whole[top : top + 8, left : left + 12]).max() < 1.5


def test_open_sides_are_those_that_are_asked_for_or_of_the_first_image(tmp_path):
    folder = saved(tmp_path, {"a": [(5, 7)], "b": [(10, 10)]}, channels=1, suffix="pgm")
    graph = model(1, sides=("h", "w"))
    assert feeds(folder, graph)[0].shape == (2, 1, 5, 7)
    assert feeds(folder, graph, size=(8, 8))[0].shape == (2, 1, 8, 8)


def test_folders_may_be_named_by_numbers(tmp_path):
    folder = saved(tmp_path, {"10": [(4, 6)], "2": [(4, 6)]})
    assert feeds(folder, model(classes=11))[1].tolist() == [10, 2]
    with pytest.raises(InvalidCall, match="each of the 10 classes"):
        feeds(folder, model(classes=10))


def test_the_same_training_as_by_arrays(tmp_path):
    """Eight-bit images of the digits give the same training as eight-bit arrays."""
    graph, images, labels = digits()
    images = np.rint(images[:40] * 255 / images.max()).astype(np.uint8)
    for k, (image, label) in enumerate(zip(images, labels, strict=False)):
        (tmp_path / str(label)).mkdir(exist_ok=True)
        Image.fromarray(image[0]).save(tmp_path / str(label) / f"{k}.png")
    folder = tt.ImageFolder.of(tmp_path)
    order = [int(file.stem) for file in folder.files]
    how = {"loss": "softmax_cross_entropy", "batch_size": 16, "epochs": 2, "backend": "numpy"}
    by_files = tt.fit(graph, folder.feeds(graph), **how)
    arrays = (images[order].astype(np.float32) / 255, labels[order])
    assert by_files.losses == tt.fit(digits()[0], arrays, **how).losses


@pytest.fixture
def files(tmp_path):
    tx.export(model(), tmp_path / "model.onnx")
    for name, seed in (("train", 0), ("test", 1)):
        sizes = {"cat": [(4, 6)] * 3, "dog": [(8, 9)] * 2} if name == "train" else {"dog": [(5, 5)] * 2}
        saved(tmp_path / name, sizes, seed=seed)
    return tmp_path


def run(*arguments):
    return main([str(argument) for argument in arguments])


def test_the_command_line_accepts_folders(files, capsys):
    common = (files / "model.onnx", "--loss", "softmax_cross_entropy", "--image-mean", "0.5", "--metric", "accuracy")
    how = ("--data", files / "train", "--validation", files / "test", "-o", files / "tuned.onnx", "--json")
    assert run("train", *common, *how) == 0
    shown = capsys.readouterr()
    assert "train: 5 images of the classes 0 cat, 1 dog" in shown.err
    (epoch,) = json.loads(shown.out)["epochs"]
    test = tt.ImageFolder.of(files / "test", ["cat", "dog"])
    assert test.labels.tolist() == [1, 1]
    tuned = tx.load(files / "tuned.onnx")
    expected = tt.evaluate(tuned, test.feeds(tuned, mean=[0.5]), loss="softmax_cross_entropy")
    assert epoch["validation_loss"] == pytest.approx(expected["loss"], rel=1e-5)
    assert run("evaluate", *common, "--data", files / "train") == 0
    assert "accuracy" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "train", "--labels", "y"], "has no arrays to name"),
        (["--data", "train", "--image-mean", "a"], "0.485,0.456,0.406"),
        (["--data", "train", "--image-std", "0"], "the std of images is zero"),
        (["--data", "train", "--image-mean", "1,2"], "does not fit 3 channels of floats"),
        (["--data", "test"], "each of the 2 classes"),
        (["--data", "train/cat"], "given      no folder"),
        (["--data", "empty"], "given      no image"),
        (["--data", "broken"], '0.png" is not an image'),
        (["--data", "data.npz", "--image-size", "4"], "without a folder of images"),
    ],
)
def test_invalid_folders(arguments, message, files, capsys):
    np.savez(files / "data.npz", x=np.zeros((1, 3, 4, 6), np.float32), labels=np.zeros(1, np.int64))
    for name in ("empty/a", "empty/b", "broken/a", "broken/b"):
        (files / name).mkdir(parents=True)
    for name in "ab":
        (files / "broken" / name / "0.png").write_bytes(b"no image")
    data = files / arguments[1]
    common = ("--loss", "softmax_cross_entropy", "-o", files / "tuned.onnx", "--data", data, *arguments[2:])
    assert run("train", files / "model.onnx", *common) == 2
    assert message in capsys.readouterr().err
    assert not (files / "tuned.onnx").exists()


def test_classes_that_the_training_data_lack(files, capsys):
    saved(files / "other", {"cat": [(4, 6)], "fox": [(4, 6)]})
    common = ("--loss", "softmax_cross_entropy", "-o", files / "tuned.onnx", "--data", files / "train")
    assert run("train", files / "model.onnx", *common, "--validation", files / "other") == 2
    assert "fox" in capsys.readouterr().err


def test_models_without_images(tmp_path):
    folder = tt.ImageFolder.of(saved(tmp_path, {"a": [(4, 6)], "b": [(4, 6)]}))
    for graph in (model(5), linear()):
        with pytest.raises(InvalidCall, match="no single input with 1 or 3 channels"):
            folder.feeds(graph)


def test_a_file_that_is_gone(tmp_path):
    folder = tt.ImageFolder.of(saved(tmp_path, {"a": [(4, 6)], "b": [(4, 6)]}))
    result = folder.feeds(model())["x"]
    folder.files[1].unlink()
    with pytest.raises(InvalidFeed, match="cannot read"):
        result[np.array([1])]


class Counting(tt.Samples):
    """Rows that are made on access."""

    shape = (6, 2)

    def __init__(self):
        self.read = []

    def __getitem__(self, chosen):
        self.read.append(len(chosen))
        return np.stack([np.float32([k, 1]) for k in chosen])


def test_samples_of_ones_own_are_read_batch_by_batch():
    rows, y = Counting(), np.ones((6, 1), np.float32)
    result = tt.fit(linear(), (rows, y), loss="mean_squared_error", batch_size=4)
    assert rows.read == [4, 2]
    whole = rows[np.arange(6)]
    assert result.losses == tt.fit(linear(), (whole, y), loss="mean_squared_error", batch_size=4).losses
