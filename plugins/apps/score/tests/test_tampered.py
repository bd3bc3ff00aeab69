"""Manifests and output folders edited by others: a clear error, and no other file is written."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenonnx as tx
from tenonnx_data.readers.files import mapped
from tenonnx_score.manifest import Manifest, schema_of

RUN = {
    "form": 2,
    "model": {"sha256": "0"},
    "options": {"format": "parquet"},
    "backend": "numpy",
    "batch": 1,
    "at_once": 1,
    "threads": 1,
    "exact": True,
    "whole_groups": True,
    "outputs": "",
}
PART = {"part": 0, "rows": 1, "bad": 0, "size": 4, "reason": "", "slices": [{"path": "a"}], "summary": {}}


def _lines(run: Any, *parts: Any) -> str:
    return "".join(json.dumps(line) + "\n" for line in (run, *parts))


TAMPERED = {
    "a list": "[1]\n",
    "a number": "5\n",
    "text": '"x"\n',
    "null": "null\n",
    "nothing": "",
    "deep": "[" * 100_000 + "\n",
    "another form": _lines(RUN | {"form": 1}),
    "no options": _lines({"form": 2}),
    "options are a list": _lines(RUN | {"options": []}),
    "format with a path": _lines(RUN | {"options": {"format": "x/../../precious.txt"}}),
    "model is text": _lines(RUN | {"model": "x"}),
    "batch is text": _lines(RUN | {"batch": "1"}),
    "batch of none": _lines(RUN | {"batch": 0}),
    "no threads": _lines(RUN | {"threads": 0}),
    "whole groups is a number": _lines(RUN | {"whole_groups": 1}),
    "backend is a number": _lines(RUN | {"backend": 5}),
    "part is text": _lines(RUN, PART | {"part": "../../precious.txt"}),
    "part is huge": _lines(RUN, PART | {"part": 10**400}),
    "part is negative": _lines(RUN, PART | {"part": -1}),
    "part is a truth value": _lines(RUN, PART | {"part": True}),
    "slices are a number": _lines(RUN, PART | {"slices": 5}),
    "slices without paths": _lines(RUN, PART | {"slices": [{}]}),
    "summary is a list": _lines(RUN, PART | {"summary": []}),
    "summary of text": _lines(RUN, PART | {"summary": {"y": {"count": "x", "nulls": 0}}}),
    "ends of two kinds": _lines(RUN, PART | {"summary": {"y": {"count": 1, "nulls": 0, "min": 1, "max": "a"}}}),
    "no reason": _lines(RUN, {name: value for name, value in PART.items() if name != "reason"}),
    "no size": _lines(RUN, {"part": 0}),
    "part is a list": _lines(RUN, []),
}


@pytest.mark.parametrize("text", TAMPERED.values(), ids=TAMPERED)
def test_tampered_manifests(text: str, tmp_path: Path) -> None:
    (tmp_path / "_manifest.jsonl").write_text(text)
    with pytest.raises(tx.InvalidCall, match="not a manifest"):
        Manifest.read(tmp_path)


def test_an_option_that_a_manifest_lacks_is_another(tmp_path: Path) -> None:
    (tmp_path / "_manifest.jsonl").write_text(_lines(RUN))
    result = Manifest.read(tmp_path)
    assert result is not None
    with pytest.raises(tx.InvalidCall, match="the option keep is another"):
        result.check(RUN | {"options": {"format": "parquet", "keep": None}})


@pytest.mark.parametrize("header", [b"{'descr': '<f4', ", b"{'descr': ((", b"\xff", b"[" * 90])
def test_the_header_of_an_array_is_not_executed(header: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    with pytest.raises(tx.InvalidFeed):
        mapped(str(tmp_path / "x.npy"))


def test_a_complete_manifest_is_read(tmp_path: Path) -> None:
    (tmp_path / "_manifest.jsonl").write_text(_lines(RUN, PART))
    (tmp_path / "part-000000.parquet").write_bytes(b"PAR1")
    result = Manifest.read(tmp_path)
    assert result is not None
    assert result.numbers == {0}
    with pytest.raises(tx.InvalidCall, match="outputs"):
        schema_of("no schema")


@pytest.mark.parametrize("name", ["_manifest.jsonl", "_lock", "._manifest.jsonl.tmp"])
def test_links_are_not_followed(name: str, relu: Callable[[Path], Path], tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.ones((3, 2), np.float32))
    (tmp_path / "precious.txt").write_text("precious")
    out = tmp_path / "out"
    out.mkdir()
    (out / name).symlink_to(tmp_path / "precious.txt")
    try:
        tx.score(relu(tmp_path), str(tmp_path / "rows.npy"), out)
    except tx.TenonnxError:
        assert name != "._manifest.jsonl.tmp"  # a killed writer's leftovers are removed
    assert (tmp_path / "precious.txt").read_text() == "precious"


@pytest.mark.parametrize("name", ["_manifest.jsonl", "_lock", "._manifest.jsonl.tmp", "part-000000.parquet"])
def test_pipes_are_not_waited_for(name: str, relu: Callable[[Path], Path], tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.ones((3, 2), np.float32))
    out = tmp_path / "out"
    out.mkdir()
    os.mkfifo(out / name)
    try:
        tx.score(relu(tmp_path), str(tmp_path / "rows.npy"), out)
    except tx.TenonnxError:
        assert name != "._manifest.jsonl.tmp"  # a killed writer's leftovers are removed


def test_a_pipe_in_the_place_of_the_model_is_not_waited_for(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.ones((3, 2), np.float32))
    os.mkfifo(tmp_path / "m.onnx")
    with pytest.raises(tx.InvalidCall, match="device, pipe or socket"):
        tx.score(tmp_path / "m.onnx", str(tmp_path / "rows.npy"), tmp_path / "out")


def test_a_model_that_is_not_protobuf(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.ones((3, 2), np.float32))
    (tmp_path / "m.onnx").write_bytes(b"SECRET-OF-ANOTHER-FILE")
    with pytest.raises(tx.InvalidModel):
        tx.score(tmp_path / "m.onnx", str(tmp_path / "rows.npy"), tmp_path / "out")


@pytest.fixture
def relu() -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        graph = tx.Graph(opsets={"ai.onnx": 17})
        with graph.building():
            graph.output("y", graph.input("x", "float32", ("N", 2)) * 2.0)
        tx.export(graph, folder / "m.onnx")
        return folder / "m.onnx"

    return write
