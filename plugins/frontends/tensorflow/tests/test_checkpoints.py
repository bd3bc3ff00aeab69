"""Checkpoints with inconsistent or excessive contents."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import tensor_bundle_pb2

import tenonnx as tx
from tenonnx_tensorflow.bundle import Checkpoint, _key_of_slice

_MAGIC = 0xDB4775248B80FB57


def _number(n: int) -> bytes:
    return bytes([n]) if n < 128 else bytes([n & 127 | 128]) + _number(n >> 7)


def _row(key: bytes, value: bytes, shared: int = 0) -> bytes:
    return _number(shared) + _number(len(key)) + _number(len(value)) + key + value


def _block(rows: Sequence[bytes]) -> bytes:
    return b"".join(rows) + struct.pack("<II", 0, 1)


def _written(folder: Path, rows: Sequence[bytes], *, times: int = 1, data: bytes = b"") -> Checkpoint:
    """A checkpoint with one block of rows, which its index lists ``times`` times."""
    block = _block(rows)
    handle = _number(0) + _number(len(block))
    listed = _block([_row(b"%09d" % k, handle) for k in range(times)])
    start = len(block) + 5
    footer = _number(0) + _number(0) + _number(start) + _number(len(listed))
    contents = block + bytes(5) + listed + bytes(5) + footer.ljust(40, b"\0") + struct.pack("<Q", _MAGIC)
    (folder / "v.index").write_bytes(contents)
    (folder / "v.data-00000-of-00001").write_bytes(data)
    return Checkpoint(folder / "v")


def _header() -> bytes:
    return _row(b"", tensor_bundle_pb2.BundleHeaderProto(num_shards=1).SerializeToString())


def _entry(shape: Sequence[int], slices: Sequence[Sequence[tuple[int, int]]] = (), size: int = 0) -> bytes:
    entry = tensor_bundle_pb2.BundleEntryProto(dtype=types_pb2.DT_FLOAT, size=size)
    for n in shape:
        entry.shape.dim.add(size=n)
    for each in slices:
        made = entry.slices.add()
        for begin, length in each:
            made.extent.add(start=begin, length=length)
    return bytes(entry.SerializeToString())


def test_a_listed_block_is_read_once(tmp_path: Path) -> None:
    rows = [_header(), *(_row(b"a%05d" % k, b"") for k in range(1000))]
    assert len(_written(tmp_path, rows).names()) == 1000
    with pytest.raises(tx.InvalidModel, match="overlap"):
        _written(tmp_path, rows, times=1000)


def test_names_that_unpack_to_more_than_the_memory_limit(tmp_path: Path) -> None:
    rows = [_header(), _row(b"x" * 10_000, b""), *(_row(b"%d" % k, b"", 10_000) for k in range(300))]
    with tx.limits.override(memory=1 << 20), pytest.raises(tx.LimitExceeded, match="names"):
        _written(tmp_path, rows)


@pytest.mark.parametrize(
    ("shape", "extent", "error"),
    [
        ([2, -1], [(0, 2), (0, 1)], tx.InvalidModel),
        ([1 << 20, 1 << 20], [(0, 2), (0, 1)], tx.LimitExceeded),
        ([4], [(3, 2)], tx.InvalidModel),
        ([4], [(-9, 2)], tx.InvalidModel),
    ],
    ids=["negative", "too large", "beyond the end", "before the start"],
)
def test_slices_that_do_not_fit(
    shape: list[int], extent: list[tuple[int, int]], error: type[Exception], tmp_path: Path
) -> None:
    part = [length for _, length in extent]
    rows = [_header(), _row(_key_of_slice("w", extent), _entry(part, size=8)), _row(b"w", _entry(shape, [extent]))]
    with pytest.raises(error):
        _written(tmp_path, sorted(rows), data=bytes(8)).read("w")


def test_a_scalar_in_one_slice(tmp_path: Path) -> None:
    rows = [_row(_key_of_slice("w", []), _entry([], size=4)), _row(b"w", _entry([], [[]]))]
    result = _written(tmp_path, [_header(), *sorted(rows)], data=b"\0\0\x80?").read("w")
    assert (result.shape, float(result)) == ((), 1.0)


def test_slices_that_fit_are_put_together(tmp_path: Path) -> None:
    parts = [[(0, 2)], [(2, 2)]]
    rows = [_row(_key_of_slice("w", part), _entry([2], size=8)) for part in parts]
    result = _written(tmp_path, [_header(), *rows, _row(b"w", _entry([4], parts))], data=b"\0\0\x80?" * 2).read("w")
    assert result.tolist() == [1.0, 1.0, 1.0, 1.0]
