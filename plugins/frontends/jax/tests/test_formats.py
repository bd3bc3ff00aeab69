"""Models written as StableHLO: symbolic dims, relations of dims, and unsupported graphs."""

from pathlib import Path

import jax
import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.errors import NotRepresentable
from tenonnx_cli import main

EXAMPLES = Path(__file__).parents[4] / "examples"

SUFFIXES = ["stablehlo", "mlir"]


def read(path):
    return jax.export.deserialize(bytearray(path.read_bytes()))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_model_is_written_with_its_batch(suffix, tmp_path, capsys):
    path = tmp_path / f"digits.{suffix}"
    assert main(["convert", str(EXAMPLES / "digits/digits.onnx"), "-o", str(path)]) == 0
    output = capsys.readouterr().out
    assert "in jax" in output
    assert path.stat().st_size > 10_000
    if suffix == "stablehlo":
        feeds = {"pixels": np.random.default_rng(0).random((5, 64), np.float32)}
        with jax.enable_x64(True):
            result = read(path).call(feeds)
        expected = tx.load(EXAMPLES / "digits/digits.onnx").run(feeds, backend="numpy")
        np.testing.assert_array_equal(result["label"], expected["label"])
        np.testing.assert_allclose(result["probabilities"], expected["probabilities"], rtol=1e-4, atol=1e-6)
    else:
        assert "stablehlo.dot_general" in path.read_text()


@pytest.mark.parametrize("name", ["decoder/decoder", "gpt2/gpt2", "llama/llama"])
def test_decoders_keep_all_their_dims(name, tmp_path):
    report = tx.convert(EXAMPLES / f"{name}.onnx", tmp_path / "m.stablehlo")
    assert report.verification.equal
    assert any("=1" in covered for run in report.verification.runs for covered in run.covers)
    dims = {str(dim) for shape in read(tmp_path / "m.stablehlo").in_avals for dim in shape.shape}
    assert len([dim for dim in dims if dim.isidentifier()]) >= 3


def test_relations_that_the_file_requires_are_reported(tmp_path):
    report = tx.convert(EXAMPLES / "decoder/decoder.onnx", tmp_path / "m.stablehlo")
    assert "note: the file does not take total=1: it needs total - sequence >= 0" in report.notes


def built(make, *shape, dtype="float32"):
    graph = tx.Graph(opsets={"ai.onnx": 17})
    graph.output("y", make(graph.input("x", dtype, shape)))
    return graph


SYMBOLIC = {
    "reshape to what is left": lambda x: ops.reshape(x, np.array([0, -1])),
    "shape as numbers": lambda x: ops.cast(ops.shape(x), to=1),
    "size": lambda x: ops.size(x),
    "range of a size": lambda x: ops.range_(np.int64(0), ops.squeeze(ops.shape(x, start=0, end=1)), np.int64(1)),
    "backwards": lambda x: ops.range_(ops.squeeze(ops.shape(x, start=0, end=1)), np.int64(0), np.int64(-2)),
    "expand": lambda x: ops.expand(ops.reduce_sum(x, np.array([0]), keepdims=1), ops.shape(x)),
    "zeros of a shape": lambda x: ops.constant_of_shape(ops.shape(x)),
    "all but the first": lambda x: ops.slice_(x, np.array([1]), np.array([2**63 - 1]), np.array([0])),
    "the last": lambda x: ops.slice_(x, np.array([-1]), np.array([2**63 - 1]), np.array([0])),
    "mean over the batch": lambda x: ops.reduce_mean(x, np.array([0])),
    "divided by the size": lambda x: x / ops.cast(ops.squeeze(ops.shape(x, start=0, end=1)), to=1),
    "larger of two sizes": lambda x: ops.maximum(ops.shape(x), np.array([2, 2, 2], np.int64)),
    "gather of a shape": lambda x: ops.gather(ops.shape(x), np.array(0)),
    "static size of a shape": lambda x: ops.cast(x, to=7) * ops.gather(ops.shape(x), np.array(1)),
    "quotient of sizes": lambda x: ops.constant_of_shape(ops.shape(x) * np.array([4, 4, 4]) / np.array([4, 2, 2])),
    "sizes that cancel out": lambda x: (
        x + ops.cast(ops.unsqueeze(ops.sub(*[ops.gather(ops.shape(x), np.array(0))] * 2), np.array([0])), to=1)
    ),
    "transposed and flat": lambda x: ops.flatten(ops.transpose(x, perm=[1, 0, 2])),
    "index of the largest": lambda x: ops.argmax(x, axis=0),
}


@pytest.mark.parametrize("name", SYMBOLIC)
def test_sizes_stay_symbolic(name, tmp_path):
    report = tx.convert(built(SYMBOLIC[name], "n", 3, 4), tmp_path / "m.stablehlo")
    assert report.verification.equal
    covered = {each for run in report.verification.runs for each in run.covers}
    assert {"n=1"} < covered


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    ("graph", "said"),
    [
        (built(lambda x: ops.non_zero(x), "n", 3), "dims"),
        (built(lambda x: ops.identity(x), "n", dtype="string"), "no arrays of these types"),
    ],
    ids=["a size by contents", "text"],
)
def test_unsupported_graphs_are_refused(graph, said, suffix, tmp_path):
    with pytest.raises(NotRepresentable, match=said):
        tx.convert(graph, tmp_path / f"m.{suffix}")
    assert list(tmp_path.iterdir()) == []


def test_integers_of_64_bits_stay_so(tmp_path):
    graph = built(lambda x: x + np.int64(2**40), "n", dtype="int64")
    assert tx.convert(graph, tmp_path / "m.stablehlo").verification.equal
    with jax.enable_x64(True):
        assert read(tmp_path / "m.stablehlo").call({"x": np.array([1])})["y"].tolist() == [2**40 + 1]
