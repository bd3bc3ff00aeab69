"""Paths and streams that cannot be read or written, and names that are not UTF-8."""

import io
import sys

import numpy as np
import pytest

import tenonnx as tx


class Full(io.RawIOBase):
    def writable(self):
        return True

    def write(self, data):
        raise OSError(28, "No space left on device")


def closed():
    stream = io.BytesIO()
    stream.close()
    return stream


@pytest.mark.parametrize("stream", [io.StringIO(), Full(), closed()], ids=["text", "full", "closed"])
def test_a_stream_that_rejects_the_model_is_reported(stream):
    with pytest.raises(tx.InvalidCall, match="cannot write binary data to the stream"):
        tx.export(tx.Graph(opsets={"ai.onnx": 21}), stream)


@pytest.mark.parametrize(
    ("path", "keywords", "match"),
    [
        (None, {}, "neither a path nor a binary stream"),
        ("a\0b.onnx", {}, "names no file"),
        ("m.onnx", {"external_data_threshold": "1"}, "a number of bytes"),
    ],
)
def test_invalid_destinations_are_reported(path, keywords, match, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(tx.InvalidCall, match=match):
        tx.export(tx.Graph(opsets={"ai.onnx": 21}), path, **keywords)


@pytest.mark.parametrize("suffix", [".onnx", ".safetensors"])
def test_a_name_with_a_nul_is_refused(suffix):
    with pytest.raises(tx.InvalidCall, match="cannot read"):
        tx.load("a\0b" + suffix)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have names of text alone")
@pytest.mark.parametrize("suffix", [".onnx", ".safetensors"])
def test_a_file_name_may_have_invalid_utf_8(suffix, tmp_path):
    path = tmp_path / ("\udcff" + suffix)
    graph = tx.Graph(opsets={"ai.onnx": 21})
    graph.variable("w", np.ones(4, np.float32))
    graph.outputs.append(graph.input("x", "float32", (2,)))
    for _ in range(2):
        graph.save(path) if suffix == ".safetensors" else tx.export(graph, path)
    assert tx.load(path).variables[0].data.array().sum() == 4
    if suffix == ".onnx":
        with pytest.raises(tx.TenonnxError, match="UTF-8"):  # names in a model are UTF-8
            tx.export(graph, path, external_data_threshold=0)
